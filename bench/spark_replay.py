"""Spark `local[2]`: the Delta archive of a stream of one partition back into streams, exactly once.

Arguments: address, process id of the broker, stream, folder for the table, bytes of a value, runs. Prints one line of
JSON. Each run replays the whole archive under another id into a stream of its own.
"""

import json
import shutil
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import bascule
from bascule import StreamOptions
from bascule.spark import archive, replay, session
from spark_load import alternate

LOST = "reply,id"
"""What the default columns of an archive do not have."""


def main() -> None:
    """Run the case."""
    address, broker, stream = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    place, size, runs = Path(sys.argv[4]) / "spark-replay", int(sys.argv[5]), int(sys.argv[6])
    spark = session("bench", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    to, checkpoint = str(place / "table"), str(place / "checkpoint")
    archive(spark, stream=stream, to=to, checkpoint=checkpoint, available_now=True, address=address).awaitTermination()
    with bascule.connect(f"bascule://{address}") as client:
        partitions = len(client.get_stream(stream).partitions)
        figures = alternate(
            {f"Spark replay, exactly once, {size} B": replaying(spark, client, address, place, partitions)},
            broker=broker,
            runs=runs,
        )
    shutil.rmtree(place)
    spark.stop()
    print(json.dumps(figures))


def replaying(spark: Any, client: bascule.Client, address: str, place: Path, partitions: int) -> Callable[[], int]:
    """A replay of the whole archive into a new stream."""
    numbers = count()

    def run() -> int:
        name = f"replayed-{next(numbers)}"
        client.create_stream(name, f"bench.{name}", options=StreamOptions(partitions=partitions))
        outcome = replay(
            spark,
            archive=str(place / "table"),
            to=name,
            id=name,
            checkpoint=str(place / name),
            leaveOut=LOST,
            address=address,
        )
        stored = sum(client.get_partition(name, number).high_watermark for number in range(partitions))
        if stored != outcome.rows:
            raise RuntimeError(f"{name} has {stored} records, not {outcome.rows}")
        return outcome.rows

    return run


if __name__ == "__main__":
    main()
