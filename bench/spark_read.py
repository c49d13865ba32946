"""Spark `local[2]` to the noop sink: the data source and the bulk scan, all eight columns and the value alone.

Arguments: address, process id of the broker, stream, bytes of a value, runs. Prints one JSON line of figures.
"""

import json
import sys
from collections.abc import Callable

from arrow import EIGHT
from bascule.spark import scan, session
from pyspark.sql import DataFrame
from spark_load import alternate


def main() -> None:
    """Run the four cases."""
    address, broker, stream = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    size, runs = int(sys.argv[4]), int(sys.argv[5])
    spark = session("bench", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")

    def source(columns: list[str]) -> DataFrame:
        options = {"address": address, "stream": stream, "columns": ",".join(columns)}
        return spark.read.format("bascule").options(**options).load()

    def bulk(columns: list[str]) -> DataFrame:
        return scan(spark, stream, address=address, columns=columns)

    kinds: dict[str, Callable[[list[str]], DataFrame]] = {"data source": source, "bulk scan": bulk}
    loads: dict[str, Callable[[], int]] = {}
    rows = source(["value"]).count()
    for kind, frame in kinds.items():
        for shape, columns in (("8 columns", EIGHT), ("value only", ["value"])):
            loads[f"Spark {kind}, {shape}, {size} B"] = reading(frame, columns, rows)
    figures = alternate(loads, broker=broker, runs=runs)
    spark.stop()
    print(json.dumps(figures))


def reading(frame: Callable[[list[str]], DataFrame], columns: list[str], rows: int) -> Callable[[], int]:
    """A batch job that reads the columns of all rows."""

    def read() -> int:
        frame(columns).write.format("noop").mode("overwrite").save()
        return rows

    return read


if __name__ == "__main__":
    main()
