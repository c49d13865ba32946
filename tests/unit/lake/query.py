"""A query without Spark: tasks write files, the driver commits them, runs die and continue."""

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from bascule.lake.commit import commit_epoch
from bascule.lake.epochs import Epoch, Writer
from bascule.lake.iceberg.catalog import open_catalog
from bascule.lake.lake_table import LakeTable
from bascule.lake.options import ArchiveOptions, TableFormat
from bascule.lake.partitioning import partition_type
from bascule.lake.progress import progress_of
from bascule.lake.ranges import merge
from bascule.lake.rows import Shape
from bascule.lake.tables import open_table
from bascule.lake.tasks import TablePart, write_rows

pa: Any = import_module("pyarrow")
datasets: Any = import_module("pyarrow.dataset")

DAY_US = 86_400_000_000
SCHEMA = pa.schema(
    [
        ("stream", pa.string()),
        ("incarnation", pa.int64()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)


def batch(first: int, end: int, partition: int = 0, *, stream: str = "s", incarnation: int = 1) -> Any:
    """Records of one partition: offset N is received on the day N after 1970."""
    offsets = range(first, end)
    return pa.RecordBatch.from_pydict(
        {
            "stream": [stream] * len(offsets),
            "incarnation": [incarnation] * len(offsets),
            "partition": [partition] * len(offsets),
            "offset": list(offsets),
            "timestamp": [offset * DAY_US for offset in offsets],
            "key": [b"key-%d" % (offset % 3) for offset in offsets],
            "value": [b"%d/%d" % (partition, offset) for offset in offsets],
        },
        schema=SCHEMA,
    )


def options_of(table_format: TableFormat, folder: Path, *partition_by: str) -> ArchiveOptions:
    """A table in `folder`; of an Iceberg table, with a SQL catalog there."""
    if table_format != "iceberg":
        return ArchiveOptions(str(folder / "table"), table_format, partition_by)
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "catalog.json").write_text(json.dumps(properties))
    return ArchiveOptions("lake.table", table_format, partition_by, credentials=str(folder / "catalog.json"))


def data_files(folder: Path, name: str = "*.parquet") -> list[Path]:
    """The data files below a folder, sorted, also those that no reader sees; `name` selects some."""
    return sorted(folder.rglob(name))


class Query:
    """A query that writes one table; `restart` begins a new run. With `range_id`, a run of a batch job."""

    def __init__(
        self, options: ArchiveOptions, query_id: str = "q", *, range_id: str = "", has_offsets: bool = True
    ) -> None:
        self.options = options
        self.query_id = query_id
        self.range_id = range_id
        self.has_offsets = has_offsets
        self.offsets_hash = ""
        self.checkpoint = ""
        self.restart()

    def restart(self) -> None:
        """Begin a new run, as after a crash."""
        self.run_id = uuid4().hex

    def write(self, tasks: Sequence[Sequence[Any]]) -> tuple[str, list[TablePart]]:
        """What the tasks of one attempt do; returns its token and their reports."""
        token = uuid4().hex
        reports = [
            write_rows(batches, self.options, self.shape, (token, f"{number:05d}-0"))
            for number, batches in enumerate(tasks)
        ]
        return token, [report[""] for report in reports if "" in report]

    def described(self, number: int, token: str, parts: Sequence[TablePart]) -> Epoch:
        """What the driver knows about an attempt."""
        ranges = merge(each for part in parts for each in part.ranges) if self.has_offsets else None
        rows = sum(part.rows for part in parts)
        writer = Writer(self.query_id, self.options.target, self.range_id)
        complete, known = self.options.complete, self.offsets_hash
        return Epoch(writer, number, self.run_id, token, rows, ranges, complete=complete, offsets_hash=known)

    def commit(self, number: int, token: str, parts: Sequence[TablePart]) -> bool:
        """What the driver does."""
        files = [file for part in parts for file in part.files]
        epoch = self.described(number, token, parts)
        progress = progress_of(self.checkpoint, epoch.writer, self.options.path, one_table=True)
        return commit_epoch(self.table, self.shape.table, epoch, files, progress)

    def epoch(self, number: int, *tasks: Sequence[Any]) -> bool:
        """One attempt at an epoch, by a driver that lives."""
        return self.commit(number, *self.write(tasks))

    @property
    def table(self) -> LakeTable:
        return open_table(self.options, "")

    @property
    def shape(self) -> Shape:
        if self.options.table_format == "iceberg":
            return Shape(SCHEMA, SCHEMA, self.has_offsets)
        fields = [(field, partition_type(field, SCHEMA)) for field in self.options.partition_by]
        added = [pa.field("bucket" if "bucket" in name else name, kind) for name, kind in fields]
        table = pa.schema([*SCHEMA, *(each for each in added if each.name not in SCHEMA.names)])
        return Shape(SCHEMA, table, self.has_offsets)

    def rows(self) -> list[tuple[int, int, bytes]]:
        """(partition, offset, value) of every row that readers see, sorted; repeated ones are repeated."""
        rows = read(self.options).to_pylist()
        return sorted((row["partition"], row["offset"], row["value"]) for row in rows)


def read(options: ArchiveOptions) -> Any:
    """The table as any reader sees it."""
    if options.table_format == "delta":
        return import_module("deltalake").DeltaTable(options.path).to_pyarrow_table()
    if options.table_format == "iceberg":
        return open_catalog(options).load_table(options.path).scan().to_arrow()
    if not Path(options.path).exists():
        return SCHEMA.empty_table()
    return datasets.dataset(options.path, schema=SCHEMA, format="parquet", partitioning="hive").to_table()


def expected(*ranges: tuple[int, int, int]) -> list[tuple[int, int, bytes]]:
    """Rows of (partition, first, end)."""
    return [
        (number, offset, b"%d/%d" % (number, offset)) for number, first, end in ranges for offset in range(first, end)
    ]
