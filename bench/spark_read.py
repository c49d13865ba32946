"""Spark `local[2]` to the noop sink: the data source and the bulk scan, all eight columns and the value alone.

Arguments: address, stream, runs. Prints one JSON line of figures; the first run of each case warms up and is not
counted.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from arrow import EIGHT
from bascule.spark import scan, session
from pyspark.sql import DataFrame


def main() -> None:
    """Run the four cases."""
    address, stream, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    spark = session("bench", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")

    def source(columns: list[str]) -> DataFrame:
        options = {"address": address, "stream": stream, "columns": ",".join(columns)}
        return spark.read.format("bascule").options(**options).load()

    def bulk(columns: list[str]) -> DataFrame:
        return scan(spark, stream, address=address, columns=columns)

    kinds: dict[str, Callable[[list[str]], DataFrame]] = {"data source": source, "bulk scan": bulk}
    figures: dict[str, Any] = {}
    for kind, frame in kinds.items():
        for shape, columns in (("8 columns", EIGHT), ("value only", ["value"])):
            rows = frame(columns).count()
            rates: list[float] = []
            for _ in range(runs + 1):
                start = time.perf_counter()
                frame(columns).write.format("noop").mode("overwrite").save()
                rates.append(rows / (time.perf_counter() - start))
            figures[f"Spark {kind}, {shape}, 100 B"] = {
                "count": rows,
                "rate": statistics.median(rates[1:]),
                "runs": rates[1:],
            }
    spark.stop()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
