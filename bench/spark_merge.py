"""Spark `local[2]`: the changes of a stream merged into a Delta table by key, exactly once, and by plain Delta merges.

Arguments: address, process id of the broker, stream, folder for the tables, runs. Prints one line of JSON.

All have micro-batches of the same records. The plain merges are those of the documentation of deltalake, once inside
`foreachBatch` and once without Spark, on records that are read over Flight; they record no epoch, so that a repetition
after a crash would go unnoticed, and do not check which of two records is the later one.
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from bascule.spark import keep_table, session
from pyarrow import flight
from pyspark.sql import DataFrame, Window, functions
from pyspark.sql.streaming.query import StreamingQuery
from spark_load import alternate

deltalake: Any = import_module("deltalake")
pc: Any = import_module("pyarrow.compute")

COLUMNS = ("stream", "incarnation", "partition", "offset", "timestamp", "subject", "key", "value")
BATCH = 100_000
"""Records of a micro-batch."""


class Merges:
    """Merges of one stream, each into a table of its own."""

    def __init__(self, spark: Any, address: str, stream: str, place: Path) -> None:
        self._spark, self._place = spark, place
        self._address, self._stream = address, stream
        self._options: dict[str, Any] = {"address": address, "stream": stream, "maxOffsetsPerTrigger": BATCH}
        rows = spark.read.format("bascule").options(address=address, stream=stream).load()
        self._rows, self._keys = rows.count(), rows.select("key").distinct().count()

    def loads(self) -> dict[str, Callable[[], int]]:
        """By name."""
        return {
            "Delta merge, keep_table": self._of(lambda: self._kept(history=False)),
            "Delta merge, keep_table with history": self._of(lambda: self._kept(history=True), versions=True),
            "Delta merge, plain in foreachBatch": self._of(self._plain),
            "Delta merge, plain without Spark": self._of(self._plain_without_spark),
        }

    def clear(self) -> None:
        """Remove the tables."""
        shutil.rmtree(self._place, ignore_errors=True)

    @property
    def _table(self) -> str:
        return str(self._place / "table")

    def _of(self, start: Callable[[], StreamingQuery | None], *, versions: bool = False) -> Callable[[], int]:
        def run() -> int:
            if (query := start()) is not None:
                query.awaitTermination()
            stored = deltalake.DeltaTable(self._table).to_pyarrow_dataset().count_rows()
            if stored != (self._rows if versions else self._keys):
                raise RuntimeError(f"{self._table} has {stored} rows of {self._rows} changes of {self._keys} keys")
            return self._rows

        return run

    def _kept(self, *, history: bool) -> StreamingQuery:
        place: dict[str, Any] = {"to": self._table, "checkpoint": str(self._place / "checkpoint")}
        return keep_table(self._spark, columns=COLUMNS, history=history, available_now=True, **place, **self._options)

    def _plain(self) -> StreamingQuery:
        options = {**self._options, "columns": ",".join(COLUMNS)}
        frame = self._spark.readStream.format("bascule").options(**options).load()
        newest = Window.partitionBy("key").orderBy(functions.desc("offset"))

        def merge(batch: DataFrame, _: int) -> None:
            latest = batch.withColumn("rank", functions.row_number().over(newest)).where("rank = 1").drop("rank")
            self._merge(latest.toArrow())

        writer = frame.writeStream.foreachBatch(merge).option("checkpointLocation", str(self._place / "checkpoint"))
        return writer.trigger(availableNow=True).start()

    def _plain_without_spark(self) -> None:
        for changes in self._read():
            last = changes.group_by("key").aggregate([("offset", "max")])
            first = changes["offset"][0].as_py()
            self._merge(changes.take(pc.subtract(last["offset_max"], first)))

    def _read(self) -> Iterator[Any]:
        columns = [name for name in COLUMNS if name != "incarnation"]  # which the broker does not send
        with flight.FlightClient(f"grpc://{self._address}") as client:
            for begin in range(0, self._rows, BATCH):
                end = min(begin + BATCH, self._rows)
                ticket = {"stream": self._stream, "partition": 0, "start": begin, "end": end, "columns": columns}
                yield client.do_get(flight.Ticket(json.dumps(ticket).encode())).read_all()

    def _merge(self, rows: Any) -> None:
        if not deltalake.DeltaTable.is_deltatable(self._table):
            deltalake.write_deltalake(self._table, rows)
            return
        merger = deltalake.DeltaTable(self._table).merge(rows, "t.key = s.key", source_alias="s", target_alias="t")
        merger.when_matched_update_all().when_not_matched_insert_all().execute()


def main() -> None:
    """Run the cases."""
    address, broker, stream = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    place, runs = Path(sys.argv[4]) / "spark-merge", int(sys.argv[5])
    spark = session("bench", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    merges = Merges(spark, address, stream, place)
    figures = alternate(merges.loads(), broker=broker, runs=runs, prepare=merges.clear)
    merges.clear()
    spark.stop()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
