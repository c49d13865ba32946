"""A stream with an archive that ends before it, for tests of tiered reads. Most of them need no Spark session."""

import json
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import bascule.lake
from bascule.lake.options import ArchiveOptions, TableFormat
from bascule.lake.rows import Shape
from bascule.spark.columns import arrow_schema
from bascule.spark.options import SourceOptions, parse_options
from bascule.spark.reading import plan_tasks, read_ranges
from bascule.spark.resolving import resolve_ranges
from harness import Streams

from tests.unit.lake.query import Query, options_of
from tests.waiting import until

pa: Any = import_module("pyarrow")
COLUMNS = ("stream", "incarnation", "partition", "offset", "timestamp", "subject", "key", "value", "headers")
FORMATS: tuple[TableFormat, ...] = ("delta", "iceberg")


class Raw(Query):
    """A query whose rows have the columns of an archive."""

    @property
    def shape(self) -> Shape:
        schema = arrow_schema(COLUMNS)
        return Shape(schema, schema, True)


class Tiers:
    """A stream with two partitions, and an archive of it."""

    def __init__(self, streams: Streams, archive: ArchiveOptions) -> None:
        self.streams = streams
        self.archive = archive
        self.query = Raw(archive)
        self.epoch = 0
        streams.create("s", 2, segment_bytes=1 << 16)

    @property
    def place(self) -> dict[str, str]:
        """The options of a read that name the archive."""
        found = {
            "archivePath": self.archive.path,
            "archiveFormat": self.archive.table_format,
            "archiveCredentials": self.archive.credentials,
            "archiveEndpoint": self.archive.endpoint,
        }
        return {name: value for name, value in found.items() if value}

    def options(self, **given: Any) -> SourceOptions:
        found = {"stream": "s", "address": self.streams.address, "retryDeadlineMs": "1000", **self.place, **given}
        return parse_options({name: str(value) for name, value in found.items() if value is not None})

    def rows(self, **given: Any) -> list[tuple[int, int, bytes]]:
        """(partition, offset, value) of a read, in the order of its tasks."""
        options = self.options(**given)
        schema = arrow_schema(options.columns)
        batches = [
            batch
            for ranges in plan_tasks(options, resolve_ranges(options))
            for batch in read_ranges(options, ranges, schema)
        ]
        assert all(batch.schema.equals(schema) for batch in batches)
        rows = pa.Table.from_batches(batches, schema).to_pylist()
        return [(row["partition"], row["offset"], row["value"]) for row in rows]

    def times(self) -> dict[tuple[int, int], datetime]:
        """When the broker's records were received, by partition and offset."""
        options = self.options(tier="broker", columns="partition,offset,timestamp")
        schema = arrow_schema(options.columns)
        batches = read_ranges(options, resolve_ranges(options), schema)
        return {(row["partition"], row["offset"]): row["timestamp"] for batch in batches for row in batch.to_pylist()}

    def archive_all(self) -> None:
        """One epoch with every record that the archive does not have: what a query does without a session."""
        sources = [bascule.lake.Source("s", number + 1, number) for number in (0, 1)]
        covered = bascule.lake.coverage(self.archive, sources) if self.query.table.exists() else {}
        ends = {str(source.partition): found.end for source, found in covered.items()}
        starting = json.dumps({"s": ends}) if ends else None
        options = self.options(columns=",".join(COLUMNS), startingOffsets=starting, tier="broker")
        ranges = resolve_ranges(options)
        self.query.epoch(self.epoch, *([*read_ranges(options, [each], arrow_schema(COLUMNS))] for each in ranges))
        self.epoch += 1

    def retain(self, messages: int) -> int:
        """Let retention remove records of partition 0; returns its new log start."""
        before = self.streams.position("s")[0]
        self.streams.set("s", retention_messages=messages)
        until(lambda: self.streams.position("s")[0] > before, 30, what="retention removes records")
        self.streams.set("s", retention_messages=0)
        return self.streams.position("s")[0]


def flip(path: Path) -> None:
    """Change one byte of the values in a file; its structure stays valid."""
    group = import_module("pyarrow.parquet").read_metadata(path).row_group(0)
    values = next(each for each in map(group.column, range(group.num_columns)) if each.path_in_schema == "value")
    content = bytearray(path.read_bytes())
    content[values.data_page_offset + values.total_compressed_size // 2] ^= 0x55
    path.write_bytes(content)


DAMAGES: Final = (Path.unlink, lambda path: path.write_bytes(b"PAR1 nothing"), flip)
"""What may happen to a data file."""


def values(partition: int, first: int, end: int) -> list[bytes]:
    return [b"%d/%d " % (partition, offset) + bytes(500) for offset in range(first, end)]


def expected(*ranges: tuple[int, int, int]) -> list[tuple[int, int, bytes]]:
    return [
        (number, first + place, value)
        for number, first, end in ranges
        for place, value in enumerate(values(number, first, end))
    ]


ALL: Final = expected((0, 0, 1000), (1, 0, 30))
"""Records of the stream at the start of a test; its archive has partition 0 up to offset 800, and partition 1."""


def filled(streams: Streams, folder: Path, table_format: TableFormat) -> Tiers:
    """The stream with `ALL`, and its archive below a folder."""
    (folder / "lake").mkdir()
    return filled_into(streams, options_of(table_format, folder / "lake"))


def filled_into(streams: Streams, archive: ArchiveOptions) -> Tiers:
    """The stream with `ALL`, and its archive."""
    made = Tiers(streams, archive)
    for first in range(0, 800, 100):
        streams.put("s", values(0, first, first + 100))
    streams.put("s", values(1, 0, 30), 1)
    made.archive_all()
    for first in range(800, 1000, 100):
        streams.put("s", values(0, first, first + 100))
    return made
