"""Queries that archive streams, and the rows of their tables."""

import json
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import bascule.spark
import pytest
from bascule.lake import ArchiveOptions
from bascule.testing import TestBroker
from harness import Streams

pa: Any = import_module("pyarrow")
deltalake: Any = import_module("deltalake")
datasets: Any = import_module("pyarrow.dataset")
catalogs: Any = import_module("pyiceberg.catalog")

Format = Literal["delta", "parquet", "iceberg"]
FORMATS: tuple[Format, ...] = ("delta", "parquet", "iceberg")
ONE_FORMAT: tuple[Any, ...] = (
    "iceberg",
    *(pytest.param(each, marks=pytest.mark.long) for each in FORMATS if each != "iceberg"),
)
"""For what does not depend on the format: the slowest one in each run of the tests, and the others in the long ones."""
DAY_US = 86_400_000_000


class Archive:
    """An archive of streams, with a checkpoint that outlives its queries."""

    def __init__(
        self, spark: Any, streams: Streams | TestBroker, folder: Path, table_format: Format, **options: Any
    ) -> None:
        self._spark = spark
        self.options: dict[str, Any] = {"stream": "s", "address": streams.address, "longPollMs": 100, **options}
        self.format: Format = table_format
        self.checkpoint = folder / "checkpoint"
        self.to = str(self.options.pop("to", folder / "table"))
        self._place = place = Path(self.to)
        if table_format == "iceberg" and "credentials" not in options:
            self.to = f"lake.{place.name}"
            self._place = place.parent / "lake" / place.name
            self.options.setdefault("credentials", catalog_file(place.parent))

    @property
    def table(self) -> ArchiveOptions:
        """Options of the table for functions of `bascule.lake`."""
        return ArchiveOptions(self.to, self.format, credentials=self.options.get("credentials"))

    def files(self) -> list[Path]:
        """Data files of the table on the local disk, sorted, also those that no reader sees."""
        return sorted(self._place.rglob("*.parquet"))

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

    def delete(self) -> None:
        """Delete the table, as an operator does."""
        if self.format == "iceberg":
            properties = json.loads(Path(self.options["credentials"]).read_text())
            catalogs.load_catalog("default", **properties).drop_table(self.to)
        shutil.rmtree(self._place)

    def epochs(self) -> int:
        """Number of finished epochs."""
        return len([*(self.checkpoint / "commits").glob("[0-9]*")])

    def rows(self, stream: str = "") -> list[dict[str, Any]]:
        """Rows of the table that readers see, by stream, partition and offset."""
        return read(self.to.replace("{stream}", stream), self.format, self.options.get("credentials"))

    def offsets(self, stream: str = "") -> list[tuple[int, int]]:
        """(partition, offset) of every row, sorted; repeated ones are repeated."""
        return [(row["partition"], row["offset"]) for row in self.rows(stream)]


def catalog_file(folder: Path) -> str:
    """Properties of a SQL catalog whose tables are in a folder, in a file for the option `credentials`."""
    folder.mkdir(parents=True, exist_ok=True)
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    (folder / "catalog.json").write_text(json.dumps(properties))
    return str(folder / "catalog.json")


def read(path: str, table_format: Format, catalog: str | None = None) -> list[dict[str, Any]]:
    """Rows of a table, as a stranger's reader sees them; `catalog` is the file of an Iceberg catalog."""
    if table_format == "delta":
        table = deltalake.DeltaTable(path).to_pyarrow_table()
    elif table_format == "iceberg":
        properties = json.loads(Path(str(catalog)).read_text())
        table = catalogs.load_catalog("default", **properties).load_table(path).scan().to_arrow()
    else:
        table = datasets.dataset(path, format="parquet", partitioning="hive").to_table()
    return sorted(table.to_pylist(), key=lambda row: (row.get("stream", ""), row["partition"], row["offset"]))
