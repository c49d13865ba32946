"""Spark `local[2]`: what queries cost the broker while there is nothing to do, with each option that makes one wait.

Arguments: address, process id of the broker, address of its metrics, folder for checkpoints, seconds. Prints one JSON
line of figures. Each query reads a stream and writes another one exactly once; they run one after the other.
"""

import json
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import bascule
from bascule.spark import session
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark_load import cpu_seconds

LIMITS = {"minOffsetsPerTrigger": "1000", "maxOffsetsPerTrigger": "5000", "maxBytesPerTrigger": "1g"}
TASKS = {"minPartitions": "2", "maxPartitions": "4", "maxRecordsPerPartition": "1000", "onDataLoss": "skip"}
QUERIES = {
    "no option": {"stream": "idle"},
    "every limit": {"stream": "idle", **LIMITS, **TASKS, "maxTriggerDelay": "1h", "subject": "bench.>"},
    "an ending time": {"stream": "idle", "endingTimestamp": "4000000000000", "startingTimestamp": "0"},
    "a pattern and ending offsets": {"streamPattern": "idle.*", "endingOffsets": '{"idle": {"0": 1}}'},
}
"""Options by what is measured. The ending lies after all records or after the first one."""
SETTLE_S = 1
LIMIT_S = 120
"""Time in which the first record must be written."""


def main() -> None:
    """Run each query."""
    address, broker, metrics, folder, seconds = sys.argv[1:6]
    spark = session("bench", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    with bascule.connect(f"bascule://{address}") as client:
        for name in ("idle", "written"):
            client.create_stream(name, f"bench.{name}")
        client.publish("idle", b"first")
        figures: dict[str, Any] = {}
        for name, options in QUERIES.items():
            query = start(spark, Path(folder) / name.replace(" ", "-"), address=address, **options)
            figures[f"idle Spark query, {name}"] = idle(query, int(broker), metrics, float(seconds))
    spark.stop()
    print(json.dumps(figures))


def start(spark: SparkSession, checkpoint: Path, **options: str) -> StreamingQuery:
    """A query that reads with these options, and writes exactly once."""
    frame = spark.readStream.format("bascule").options(columns="value", **options).load()
    writer = frame.writeStream.format("bascule").option("checkpointLocation", str(checkpoint))
    return writer.options(address=options["address"], stream="written").start()


def idle(query: StreamingQuery, broker: int, metrics: str, seconds: float) -> dict[str, float]:
    """Calls a second, and the share of a core in the broker and in Spark. Ends the query."""
    try:
        limit = time.monotonic() + LIMIT_S
        while not any(each["numInputRows"] for each in query.recentProgress):
            if time.monotonic() > limit or not query.isActive:
                raise RuntimeError(f"the first record was not written: {query.exception()}")
            time.sleep(0.1)  # there is nothing else to wait on
        time.sleep(SETTLE_S)  # it becomes idle meanwhile
        calls, cpu, begun = calls_so_far(metrics), cpu_seconds(broker), time.monotonic()
        time.sleep(seconds)  # the measured time
        passed, calls = time.monotonic() - begun, calls_so_far(metrics) - calls
        after = cpu_seconds(broker)
        if not query.isActive:
            raise RuntimeError(f"the query has ended: {query.exception()}")
        return {
            "count": calls,
            "rate": calls / passed,
            "broker_percent": 100 * (after["broker"] - cpu["broker"]) / passed,
            "spark_percent": 100 * (after["jvm"] + after["python"] - cpu["jvm"] - cpu["python"]) / passed,
        }
    finally:
        query.stop()


def calls_so_far(metrics: str) -> int:
    """Calls that the broker has ended."""
    with urlopen(f"http://{metrics}/metrics") as answer:
        lines = answer.read().decode()
    return sum(int(float(each)) for each in re.findall(r"^bascule_calls_total\{[^}]*\} (\S+)$", lines, re.MULTILINE))


if __name__ == "__main__":
    main()
