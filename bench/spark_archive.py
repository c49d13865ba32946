"""Spark `local[2]`: a stream into a Delta table, and into Parquet by Spark's own sink, same columns, codec and trigger.

Arguments: address, stream, folder for the tables, runs. Prints one JSON line of figures; the first run of each case
warms up and is not counted. The cases alternate, so that disturbances of the machine affect all of them.
"""

import json
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bascule.spark import archive, session
from bascule.spark.archiving import COLUMNS
from pyspark.sql.streaming.query import StreamingQuery

CODEC = "snappy"
"""The default of Spark's own sink; it has no levels that could differ."""


def main() -> None:
    """Run the four cases."""
    address, stream, folder, runs = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
    spark = session("bench", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")

    def delta(place: Path, *by: str) -> StreamingQuery:
        return archive(
            spark,
            stream=stream,
            to=str(place / "table"),
            checkpoint=str(place / "checkpoint"),
            partition_by=by,
            available_now=True,
            address=address,
            compression=CODEC,
        )

    def parquet(place: Path, *by: str) -> StreamingQuery:
        options = {"address": address, "stream": stream, "columns": ",".join(COLUMNS)}
        frame = spark.readStream.format("bascule").options(**options).load()
        if by:
            frame = frame.selectExpr("*", "to_date(timestamp) as date")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
        writer = writer.option("compression", CODEC).partitionBy(*by).trigger(availableNow=True)
        return writer.start(str(place / "table"))

    kinds: dict[str, Callable[..., StreamingQuery]] = {"Delta archive": delta, "Spark's Parquet sink": parquet}
    figures: dict[str, Any] = {}
    rows = spark.read.format("bascule").options(address=address, stream=stream).load().count()
    for shape, by in (("unpartitioned", ()), ("by date", ("date",))):
        rates: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(runs + 1):
            for kind, start in kinds.items():
                place = folder / "spark-archive"
                shutil.rmtree(place, ignore_errors=True)
                begun = time.perf_counter()
                start(place, *by).awaitTermination()
                rates[kind].append(rows / (time.perf_counter() - begun))
        for kind, of_kind in rates.items():
            figures[f"{kind}, {shape}, 100 B"] = {
                "count": rows,
                "rate": statistics.median(of_kind[1:]),
                "runs": of_kind[1:],
            }
    shutil.rmtree(folder / "spark-archive", ignore_errors=True)
    spark.stop()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
