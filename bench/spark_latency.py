"""Spark `local[2]`: micro-batches of one row, from a stream to another one exactly once, to a Delta table, and to the
lag that the broker shows.

Arguments: address, folder for checkpoints and the table, records. Prints one JSON line of figures. Values are
100 random bytes. First each record is published as soon as the one before is visible, so that no micro-batch waits for
a record; then each after a pause, so that the query waits for it.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bascule
from bascule.spark import archive, session
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

LIMIT_S = 120
"""Time in which a row must be visible."""
PAUSE_S = (0.05, 0.55)
"""Range of the pauses. A micro-batch without a record waits 0.5 s at the broker, so records meet each part of it."""
Figures = dict[str, Any]


def main() -> None:
    """Run the three targets."""
    address, folder, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    kept = {"spark.sql.streaming.numRecentProgressUpdates": str(10 * count)}
    spark = session("bench", master="local[2]", config=kept)
    spark.sparkContext.setLogLevel("ERROR")
    figures: Figures = {}
    with bascule.connect(f"bascule://{address}") as client:
        for name in ("one", "copied", "archived-one", "watched"):
            client.create_stream(name, f"bench.{name}")
        query = copy(spark, address, folder / "copied")
        figures["Spark micro-batch of one row to a stream"] = measured(client, "one", query, copies(client), count)
        name, table = "archived-one", folder / "table"
        options: dict[str, Any] = {"to": str(table), "checkpoint": str(folder / "archived")}
        query = archive(spark, stream=name, address=address, **options)
        figures["Spark micro-batch of one row to Delta"] = measured(client, name, query, versions(table, query), count)
        query = watch(spark, address, folder / "watched")
        figures["Spark micro-batch of one row to the lag"] = measured(
            client, "watched", query, positions(client), count
        )
    spark.stop()
    print(json.dumps(figures))


def copy(spark: SparkSession, address: str, checkpoint: Path) -> StreamingQuery:
    """A query from one stream to another."""
    source = {"address": address, "stream": "one", "columns": "value"}
    frame = spark.readStream.format("bascule").options(**source).load()
    writer = frame.writeStream.format("bascule").option("checkpointLocation", str(checkpoint))
    return writer.options(address=address, stream="copied").start()


def watch(spark: SparkSession, address: str, checkpoint: Path) -> StreamingQuery:
    """A query that reports its positions and stores nothing."""
    source = {"address": address, "stream": "watched", "columns": "value", "consumerGroup": "watching"}
    frame = spark.readStream.format("bascule").options(**source).load()
    return frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


def positions(client: bascule.Client) -> Iterator[None]:
    """Ends each step when the broker shows the query behind a further record."""
    records = 0
    while True:
        records += 1
        limit = time.monotonic() + LIMIT_S
        while all(lag.next_offset < records for lag in client.lags(reader="watching")):
            if time.monotonic() > limit:
                raise RuntimeError(f"the position {records} was not reported within {LIMIT_S} s")
            time.sleep(0.005)  # there is nothing to wait on
        yield


def copies(client: bascule.Client) -> Iterator[None]:
    """Ends each step when a further record is readable in the target."""
    with client.subscribe("copied") as subscription:
        while (batch := subscription.next_batch(LIMIT_S)) is not None:
            for _ in batch.values:
                yield
    raise RuntimeError(f"nothing was written within {LIMIT_S} s")


def versions(table: Path, query: StreamingQuery) -> Iterator[None]:
    """Ends each step when the table has a further version with rows."""
    version = 0
    while True:
        entry = table / "_delta_log" / f"{version:020}.json"
        limit = time.monotonic() + LIMIT_S
        while not entry.exists():
            if time.monotonic() > limit or not query.isActive:
                raise RuntimeError(f"{entry} is missing: {query.exception()}")
            time.sleep(0.001)  # there is nothing else to wait on for a file
        version += 1
        if '"add"' in entry.read_text():
            yield


def measured(
    client: bascule.Client, stream: str, query: StreamingQuery, visible: Iterator[None], count: int
) -> Figures:
    """Durations of micro-batches, and times from before a publish to when its row is visible in the target."""
    draw = random.Random(1)

    def once(pause: Callable[[], None]) -> float:
        pause()
        begun = time.perf_counter()
        client.publish(stream, draw.randbytes(100))
        next(visible)
        return (time.perf_counter() - begun) * 1000

    try:
        for _ in range(count // 2):  # warm up
            once(lambda: None)
        first = query.recentProgress[-1]["batchId"] + 2  # the epoch before it may still end
        for _ in range(count + 2):
            once(lambda: None)
        last = first + count
        waits = [once(lambda: time.sleep(draw.uniform(*PAUSE_S))) for _ in range(count)]
        progress = [each for each in query.recentProgress if first <= each["batchId"] < last and each["numInputRows"]]
    finally:
        query.stop()
    triggers = [each["durationMs"]["triggerExecution"] for each in progress]
    if len(triggers) != count or any(each["numInputRows"] != 1 for each in progress):
        raise RuntimeError(f"{len(triggers)} of {count} micro-batches had rows, or one had several")
    parts = {key: statistics.median(each["durationMs"][key] for each in progress) for key in progress[0]["durationMs"]}
    return {
        "count": count,
        "rate": 1000 / statistics.median(triggers),
        "trigger_p50_ms": statistics.median(triggers),
        "trigger_p99_ms": percentile(triggers, 99),
        "trigger_parts_ms": parts,
        "visible_p50_ms": statistics.median(waits),
        "visible_p99_ms": percentile(waits, 99),
    }


def percentile(values: list[float], percent: int) -> float:
    """The least value that is not below `percent` % of them."""
    ordered = sorted(values)
    return ordered[-(-len(ordered) * percent // 100) - 1]


if __name__ == "__main__":
    main()
