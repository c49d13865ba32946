"""Queries that archive streams, and the rows of their tables."""

import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import bascule.spark
from harness import Streams

pa: Any = import_module("pyarrow")
deltalake: Any = import_module("deltalake")
datasets: Any = import_module("pyarrow.dataset")

Format = Literal["delta", "parquet"]
FORMATS: tuple[Format, ...] = ("delta", "parquet")
DAY_US = 86_400_000_000


class Archive:
    """An archive of streams, with a checkpoint that outlives its queries."""

    def __init__(self, spark: Any, streams: Streams, folder: Path, table_format: Format, **options: Any) -> None:
        self._spark = spark
        self.options = {"stream": "s", "address": streams.address, "longPollMs": 100, **options}
        self.format: Format = table_format
        self.checkpoint = folder / "checkpoint"
        self.to = str(self.options.pop("to", folder / "table"))

    def start(self, **trigger: Any) -> Any:
        options = {name: value for name, value in self.options.items() if value is not None}
        return bascule.spark.archive(
            self._spark, to=self.to, checkpoint=str(self.checkpoint), format=self.format, **options, **trigger
        )

    def run(self, limit_s: int = 90) -> None:
        """Archive what is there now."""
        assert self.start(available_now=True).awaitTermination(limit_s), "the run did not end"

    def forget_last_commit(self) -> None:
        """Remove the last entry of the checkpoint's commit log, as if the driver had died before it was written."""
        newest = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)

    def epochs(self) -> int:
        """Number of finished epochs."""
        return len([*(self.checkpoint / "commits").glob("[0-9]*")])

    def rows(self, stream: str = "") -> list[dict[str, Any]]:
        """Rows of the table that readers see, by stream, partition and offset."""
        path = self.to.replace("{stream}", stream)
        return read(path, self.format)

    def offsets(self, stream: str = "") -> list[tuple[int, int]]:
        """(partition, offset) of every row, sorted; repeated ones are repeated."""
        return [(row["partition"], row["offset"]) for row in self.rows(stream)]


def read(path: str, table_format: Format) -> list[dict[str, Any]]:
    """Rows of a table, as a stranger's reader sees them."""
    if table_format == "delta":
        table = deltalake.DeltaTable(path).to_pyarrow_table()
    else:
        table = datasets.dataset(path, format="parquet", partitioning="hive").to_table()
    return sorted(table.to_pylist(), key=lambda row: (row.get("stream", ""), row["partition"], row["offset"]))


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.05)
