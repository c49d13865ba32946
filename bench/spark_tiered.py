"""Spark `local[2]` to the noop sink: the same rows from the broker alone, and nine in ten of them from an archive.

Arguments: address, process id of the broker, stream, folder for the tables, bytes of a value, rows, runs. The stream
is there and empty. Prints one JSON line of figures, with the time that planning takes.
"""

import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from arrow import fill
from bascule.spark import archive, session
from bascule.spark.archiving import COLUMNS
from pyspark.sql import DataFrame
from spark_archive import catalog
from spark_load import alternate

TENTHS = 9
"""Of the rows, in the archive."""


def main() -> None:
    """Archive the first rows, append the others, and read all."""
    address, broker, stream = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    place, size, rows, runs = Path(sys.argv[4]) / "spark-tiered", *map(int, sys.argv[5:8])
    spark = session("bench", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    tables: dict[str, dict[str, str]] = {
        "Delta": {"to": str(place / "table")},
        "Iceberg": {"to": "bench.table", "format": "iceberg", "credentials": catalog(place)},
    }
    fill(address, stream, size, rows // 10 * TENTHS, compressible=False)
    for kind, table in tables.items():
        query = archive(
            spark, stream=stream, checkpoint=str(place / kind), available_now=True, address=address, **table
        )
        query.awaitTermination()
    fill(address, stream, size, rows // 10 * (10 - TENTHS), compressible=False)

    def read(**options: str) -> DataFrame:
        given = {"address": address, "stream": stream, "columns": ",".join(COLUMNS), **options}
        return spark.read.format("bascule").options(**given).load()

    def tiered(table: dict[str, str]) -> Callable[[], DataFrame]:
        names = {"to": "archivePath", "format": "archiveFormat", "credentials": "archiveCredentials"}
        return lambda: read(**{names[key]: value for key, value in table.items()})

    frames: dict[str, Callable[[], DataFrame]] = {"broker": read}
    frames |= {f"broker and {kind}": tiered(table) for kind, table in tables.items()}
    loads = {f"Spark read from {name}, {size} B": reading(frame, rows) for name, frame in frames.items()}
    figures = alternate(loads, broker=broker, runs=runs)
    for name, frame in frames.items():
        figures[f"Spark read from {name}, {size} B"]["planning_s"] = planning(frame)
    shutil.rmtree(place)
    spark.stop()
    print(json.dumps(figures))


def reading(frame: Callable[[], DataFrame], rows: int) -> Callable[[], int]:
    """A batch job that reads all rows."""

    def read() -> int:
        frame().write.format("noop").mode("overwrite").save()
        return rows

    return read


def planning(frame: Callable[[], DataFrame]) -> float:
    """Seconds, the median of three, until the partitions of a new frame are known."""
    seconds: list[float] = []
    for _ in range(3):
        begun = time.perf_counter()
        frame().rdd.getNumPartitions()
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
