"""Spark `local[2]`: a stream into Delta and Iceberg tables, and into Parquet by Spark's own sink, with one codec.

Arguments: address, process id of the broker, stream, folder for the tables, bytes of a value, runs. Prints one line of
JSON.
"""

import json
import shutil
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from bascule.spark import archive, session
from bascule.spark.archiving import COLUMNS
from pyspark.sql.streaming.query import StreamingQuery
from spark_load import alternate

CODEC = "snappy"
"""The default of Spark's own sink; it has no levels that could differ."""


def main() -> None:
    """Run the six cases."""
    address, broker, stream = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    place, size, runs = Path(sys.argv[4]) / "spark-archive", int(sys.argv[5]), int(sys.argv[6])
    spark = session("bench", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")

    numbers = count()  # of catalogs: an open one outlives its files

    def archiving_to(to: str, by: tuple[str, ...], **table: str) -> StreamingQuery:
        return archive(
            spark,
            stream=stream,
            to=to,
            checkpoint=str(place / "checkpoint"),
            partition_by=by,
            available_now=True,
            address=address,
            compression=CODEC,
            **table,
        )

    def delta(*by: str) -> StreamingQuery:
        return archiving_to(str(place / "table"), by)

    def iceberg(*by: str) -> StreamingQuery:
        return archiving_to(
            "bench.table", by, format="iceberg", credentials=catalog(place / f"catalog-{next(numbers)}")
        )

    def parquet(*by: str) -> StreamingQuery:
        options = {"address": address, "stream": stream, "columns": ",".join(COLUMNS)}
        frame = spark.readStream.format("bascule").options(**options).load()
        if by:
            frame = frame.selectExpr("*", "to_date(timestamp) as date")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(place / "checkpoint"))
        writer = writer.option("compression", CODEC).partitionBy(*by).trigger(availableNow=True)
        return writer.start(str(place / "table"))

    kinds: dict[str, Callable[..., StreamingQuery]] = {
        "Delta archive": delta,
        "Iceberg archive": iceberg,
        "Spark's Parquet sink": parquet,
    }
    loads: dict[str, Callable[[], int]] = {}
    rows = spark.read.format("bascule").options(address=address, stream=stream).load().count()
    for shape, by in (("unpartitioned", ()), ("by date", ("date",))):
        for kind, start in kinds.items():
            loads[f"{kind}, {shape}, {size} B"] = archiving(start, by, rows)
    figures = alternate(loads, broker=broker, runs=runs, prepare=lambda: shutil.rmtree(place, ignore_errors=True))
    shutil.rmtree(place, ignore_errors=True)
    spark.stop()
    print(json.dumps(figures))


def catalog(place: Path) -> str:
    """A file with the properties of an Iceberg catalog in the folder."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "catalog.json"
    properties = {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": f"file://{place}"}
    file.write_text(json.dumps(properties))
    return str(file)


def archiving(start: Callable[..., StreamingQuery], by: tuple[str, ...], rows: int) -> Callable[[], int]:
    """A query that archives all rows and ends."""

    def run() -> int:
        start(*by).awaitTermination()
        return rows

    return run


if __name__ == "__main__":
    main()
