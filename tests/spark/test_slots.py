"""The number of tasks that run at once, on one machine and on clusters with executors in processes of their own."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from bascule.spark.slots import repeats_tasks, slots_of_master
from clusters import clean_environment, own_home, standalone_cluster
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


@pytest.mark.parametrize(
    ("master", "repeats"),
    [
        ("local", False),
        ("local[3]", False),
        ("local[*]", False),
        ("local[3,4]", True),
        ("local[*, 4]", True),
        ("local-cluster[2,1,1024]", True),
        ("yarn", True),
    ],
)
def test_the_master_says_whether_a_failed_task_is_tried_again(master: str, repeats: bool) -> None:
    assert repeats_tasks(master) is repeats


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
    command = [sys.executable, "-c", PROGRAM, master, streams.address, str(folder)]
    environment = clean_environment(SPARK_HOME=str(own_home(folder.parent / "spark")))
    shown = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=350)
    assert shown.returncode == 0, shown.stderr
    document = json.loads((folder / "offsets/0").read_text().splitlines()[2])
    return shown.stdout.strip(), document["packing"]["slots"]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_local_cluster_has_the_slots_of_all_its_executors(streams: Streams, tmp_path: Path) -> None:
    assert run(streams, "local-cluster[2,2,1024]", tmp_path / "checkpoint") == ("4 4 80000", 4)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_standalone_cluster_has_the_slots_of_its_executors(streams: Streams, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path) as master:
        assert run(streams, master, tmp_path / "checkpoint") == ("4 4 80000", 4)


def test_a_submitted_program_runs_where_spark_submit_says(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import bascule.spark\n"
        "context = bascule.spark.session('submitted').sparkContext\n"
        "print('runs on', context.master)\n"
        "context.stop()\n"
    )
    pyspark = importlib.util.find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    submit = Path(pyspark.origin).parent / "bin" / "spark-submit"
    given = {**clean_environment(), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [submit, "--master", "local[1]", "--conf", "spark.ui.enabled=false", program],
        env=given, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert "runs on local[1]" in done.stdout, done.stderr
