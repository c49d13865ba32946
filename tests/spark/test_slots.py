"""The number of tasks that run at once, on one machine and on clusters with executors in processes of their own."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bascule.spark.slots import slots_of_master
from harness import Streams


@pytest.mark.parametrize(
    ("master", "slots"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,4]", 3),
        ("local[3, 4]", 3),
        ("local[*]", os.cpu_count()),
        ("local[*,4]", os.cpu_count()),
        ("local-cluster[2,1,1024]", 2),
        ("local-cluster[3, 4, 512]", 12),
        ("spark://127.0.0.1:7077", None),
        ("yarn", None),
    ],
)
def test_a_master_url_gives_the_slots_or_leaves_it_to_the_executors(master: str, slots: int | None) -> None:
    assert slots_of_master(master) == slots


PROGRAM = """
import sys, time
import bascule.spark
from bascule.spark.slots import current_slots
master, address, checkpoint = sys.argv[1:]
config = {"spark.ui.enabled": False, "spark.executor.memory": "512m", "spark.sql.shuffle.partitions": 1}
spark = bascule.spark.session("slots", master=master, config=config)
deadline = time.monotonic() + 120
while current_slots() != 4 and time.monotonic() < deadline:  # until the executors have registered
    time.sleep(0.1)
reader = spark.read.format("bascule").option("stream", "s").option("address", address)
frame = reader.option("columns", "offset").load()
print(current_slots(), frame.rdd.getNumPartitions(), frame.count())
stream = spark.readStream.format("bascule").option("stream", "s").option("address", address).load()
query = stream.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()
spark.stop()
"""


def run(streams: Streams, master: str, folder: Path) -> tuple[str, int]:
    """What a program prints that reads 80,000 records, enough for four tasks, and the slots in its checkpoint."""
    streams.create("s")
    for _ in range(5):
        streams.put("s", [b"a"] * 16_000)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
    command = [sys.executable, "-c", PROGRAM, master, streams.address, str(folder)]
    environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=350)
    assert shown.returncode == 0, shown.stderr
    document = json.loads((folder / "offsets/0").read_text().splitlines()[2])
    return shown.stdout.strip(), document["packing"]["slots"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_local_cluster_has_the_slots_of_all_its_executors(streams: Streams, tmp_path: Path) -> None:
    assert run(streams, "local-cluster[2,2,1024]", tmp_path / "checkpoint") == ("4 4 80000", 4)


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[str]:
    """The URL of a standalone master on loopback, with two workers of two cores each."""
    spark_class = Path(_pyspark().__file__).parent / "bin/spark-class"
    environment = {**os.environ, "SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["SPARK_DAEMON_MEMORY"] = "256m"
    started: list[subprocess.Popen[bytes]] = []

    def start(log: Path, *arguments: str) -> Path:
        command = [spark_class, *arguments]
        with log.open("wb") as output:
            started.append(subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT))
        return log

    deploy = "org.apache.spark.deploy"
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    try:
        master = _found(start(tmp_path / "master.log", f"{deploy}.master.Master", *ports), r"spark://127\.0\.0\.1:\d+")
        for number in range(2):
            log = tmp_path / f"worker{number}.log"
            _found(
                start(log, f"{deploy}.worker.Worker", *ports, "-c", "2", "-m", "1g", master), "registered with master"
            )
        yield master
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(30)


def _pyspark() -> Any:
    import pyspark  # noqa: PLC0415 - only for tests on Spark

    return pyspark


def _found(log: Path, pattern: str) -> str:
    """The first match in a log, within a minute."""
    deadline = time.monotonic() + 120
    while not (match := re.search(pattern, log.read_text())):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return match[0]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_standalone_cluster_has_the_slots_of_its_executors(streams: Streams, standalone: str, tmp_path: Path) -> None:
    assert run(streams, standalone, tmp_path / "checkpoint") == ("4 4 80000", 4)
