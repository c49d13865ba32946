"""Clusters of Spark on loopback: a standalone master with two workers, and the processes of executors."""

import os
import re
import signal
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from bascule.spark.spark_home import linked_home

from tests import java_start
from tests.waiting import until

EXECUTOR = "CoarseGrainedExecutorBackend"
WORKER = "org.apache.spark.deploy.worker.Worker"
LIMIT_S = 300.0


def spark_home() -> Path:
    """The folder of the PySpark package."""
    import pyspark  # noqa: PLC0415 - only for tests on Spark

    return Path(pyspark.__file__).parent


def own_home(folder: Path) -> Path:
    """A SPARK_HOME with the Spark of the package: workers of `local-cluster` always write to SPARK_HOME/work."""
    folder.mkdir()
    return linked_home(spark_home(), folder)


def clean_environment(**more: str) -> dict[str, str]:
    """The environment of this process without settings of Spark, but for those that start a JVM fast; on loopback."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK", "PYSPARK")) or name in (java_start.SUBMIT, java_start.LAUNCHER)
    }
    return {**kept, "SPARK_LOCAL_IP": "127.0.0.1", **more}


@contextmanager
def standalone_cluster(folder: Path, cores: int = 2, **environment: str) -> Generator[str]:
    """The URL of a standalone master on loopback, with two workers.

    Args:
        folder: existing; for logs, and for what the workers write.
        cores: of each worker.
        environment: of master and workers.
    """
    started: list[subprocess.Popen[bytes]] = []
    environment = clean_environment(
        SPARK_WORKER_DIR=str(folder / "work"),
        SPARK_DAEMON_MEMORY="256m",
        SPARK_DAEMON_JAVA_OPTS=java_start.brief_options(),
        **environment,
    )

    def start(log: Path, *arguments: str) -> Path:
        command = [spark_home() / "bin/spark-class", *arguments]
        with log.open("wb") as output:
            started.append(subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT))
        return log

    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    try:
        log = start(folder / "master.log", "org.apache.spark.deploy.master.Master", *ports)
        master = _found(log, r"spark://127\.0\.0\.1:\d+")
        for number in range(2):
            log = start(folder / f"worker{number}.log", WORKER, *ports, "-c", str(cores), "-m", "1g", master)
            _found(log, "registered with master")
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def _found(log: Path, pattern: str) -> str:
    """The first match in a log, within five minutes."""
    until(lambda: re.search(pattern, log.read_text()) is not None, LIMIT_S, what=log.read_text)
    match = re.search(pattern, log.read_text())
    assert match is not None
    return match[0]


def ancestor(pid: int, name: str) -> int:
    """The process, among those that a process descends from, whose command line has a name."""
    while pid > 1:
        pid = int(re.search(r"PPid:\t(\d+)", Path(f"/proc/{pid}/status").read_text())[1])  # type: ignore[index]
        if name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError(f"no process above is a {name}")


def kill(pid: int) -> None:
    """Kill a process as if its machine had failed; returns when it is gone."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: is_gone(pid), LIMIT_S, what=f"process {pid} is gone")


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        return re.search(r"State:\tZ", Path(f"/proc/{pid}/status").read_text()) is not None
    except (FileNotFoundError, ProcessLookupError):
        return True
