"""Starts the JVMs of tests in less than half of the processor time; `python -m tests.java_start` makes what that needs.

A JVM of Spark lives for seconds in a test, and spends them on loading 20,000 classes and on compiling code that runs
once. The archive has those classes loaded and checked; the JVM maps it, unless its version, its class path or a jar is
another one: then it starts as without it. Tests marked `alone` judge speed and run without these options.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).resolve().parents[1]
ARCHIVE: Final = REPOSITORY / "target" / "java" / "spark.jsa"
SUBMIT: Final = "SPARK_SUBMIT_OPTS"
"""Options of the JVM of a driver; Spark adds them before those of the session."""
LAUNCHER: Final = "SPARK_LAUNCHER_OPTS"
"""Options of the JVM that makes the command line of the driver's."""
_BRIEF: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a short run on few cores: the quick compiler alone, and no threads that collect garbage beside the run."""
_NO_UI: Final = "-Dspark.ui.enabled=false"
_SILENT: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_LIMIT_S: Final = 600.0


def set_environment() -> None:
    """Give all JVMs that this process and its children start the options, unless the environment has its own."""
    os.environ.setdefault(SUBMIT, f"{brief_options()} {_NO_UI}")
    os.environ.setdefault(LAUNCHER, _BRIEF)


def brief_options() -> str:
    """The options of a JVM that loads Spark and lives for seconds."""
    archive = f"-XX:SharedArchiveFile={ARCHIVE} {_SILENT}" if ARCHIVE.exists() else ""
    return f"{_BRIEF} {archive}".strip()


@contextmanager
def as_users() -> Generator[None]:
    """JVMs that start within have no options of `set_environment`."""
    kept = {name: os.environ.pop(name) for name in (SUBMIT, LAUNCHER) if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def main() -> None:
    """Make the archive of the classes that a driver has loaded at its end, unless there is a newer one than Spark."""
    import pyspark  # noqa: PLC0415 - only to make the archive

    home = Path(pyspark.__file__).parent
    if ARCHIVE.exists() and ARCHIVE.stat().st_mtime > max(jar.stat().st_mtime for jar in (home / "jars").iterdir()):
        return
    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVE.parent) as folder:
        made = Path(folder) / ARCHIVE.name
        # The archive names the jars by this home; drivers with links to it find the same files.
        options = {"SPARK_HOME": str(home), SUBMIT: f"{_BRIEF} {_NO_UI} -XX:ArchiveClassesAtExit={made} {_SILENT}"}
        command = [sys.executable, "-m", "tests.java_start", folder]
        subprocess.run(command, env={**os.environ, **options}, cwd=REPOSITORY, check=True, timeout=_LIMIT_S)
        if made.exists():
            made.replace(ARCHIVE)
        else:
            print("this Java makes no archive of classes: tests that run Spark take longer")


def run(folder: Path) -> None:
    """A driver that does what those of tests do: it archives a stream, reads it, and counts in a streaming query."""
    import bascule.spark  # noqa: PLC0415 - only to make the archive
    import bascule.testing  # noqa: PLC0415
    from pyspark import SparkContext  # noqa: PLC0415

    with bascule.testing.broker() as broker, broker.connect() as client:
        client.create_stream("s")
        client.publish("s", b"value")
        spark = bascule.spark.session("archive of classes", master="local[2]")
        to, address = str(folder / "table"), broker.address
        archive: dict[str, Any] = {"to": to, "checkpoint": str(folder / "archived"), "stream": "s", "address": address}
        bascule.spark.archive(spark, **archive, format="parquet", available_now=True).awaitTermination()
        spark.read.parquet(to).orderBy("offset").show()
        records = spark.readStream.format("bascule").option("address", address).option("stream", "s").load()
        counts = records.groupBy("partition").count().writeStream.outputMode("update").trigger(availableNow=True)
        counts.format("noop").option("checkpointLocation", str(folder / "counted")).start().awaitTermination()
        spark.stop()
    gateway: Any = vars(SparkContext)["_gateway"]  # no public way to the process, which writes the archive at its end
    gateway.shutdown()
    jvm = gateway.proc
    jvm.stdin.close()
    jvm.wait(_LIMIT_S)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(Path(sys.argv[1]))
    else:
        main()
