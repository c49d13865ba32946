"""Batch reads of an archive and the broker as one: order, cuts, gaps, damage, refusals. Most need no Spark session."""

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from bascule.errors import BrokerError, CorruptionError, UsageError
from bascule.lake.options import ArchiveOptions, TableFormat
from bascule.lake.rows import Shape
from bascule.spark.columns import arrow_schema
from bascule.spark.options import SourceOptions, parse_options
from bascule.spark.planning import plan
from bascule.spark.reading import read_ranges
from bascule.spark.resolving import resolve_ranges
from harness import Streams

from tests.unit.lake.query import Query, data_files, options_of
from tests.waiting import until

pytestmark = pytest.mark.spark

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

    def options(self, **given: Any) -> SourceOptions:
        place = {
            "archivePath": self.archive.path,
            "archiveFormat": self.archive.table_format,
            **({"archiveCredentials": self.archive.credentials} if self.archive.credentials else {}),
        }
        found = {"stream": "s", "address": self.streams.address, "retryDeadlineMs": "1000", **place, **given}
        return parse_options({name: str(value) for name, value in found.items() if value is not None})

    def rows(self, **given: Any) -> list[tuple[int, int, bytes]]:
        """(partition, offset, value) of a read, in the order of its tasks."""
        options = self.options(**given)
        schema = arrow_schema(options.columns)
        batches = [
            batch
            for ranges in plan(resolve_ranges(options), options.packing)
            for batch in read_ranges(options, ranges, schema)
        ]
        assert all(batch.schema.equals(schema) for batch in batches)
        rows = pa.Table.from_batches(batches, schema).to_pylist()
        return [(row["partition"], row["offset"], row["value"]) for row in rows]

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
        self.streams.set("s", retention_messages=messages)
        until(lambda: self.streams.position("s")[0] > 0, 30, what="retention removes records")
        self.streams.set("s", retention_messages=0)
        return self.streams.position("s")[0]


def values(partition: int, first: int, end: int) -> list[bytes]:
    return [b"%d/%d " % (partition, offset) + bytes(500) for offset in range(first, end)]


def expected(*ranges: tuple[int, int, int]) -> list[tuple[int, int, bytes]]:
    return [
        (number, first + place, value)
        for number, first, end in ranges
        for place, value in enumerate(values(number, first, end))
    ]


@pytest.fixture(params=FORMATS)
def tiers(request: pytest.FixtureRequest, streams: Streams, tmp_path: Path) -> Tiers:
    (tmp_path / "lake").mkdir()
    made = Tiers(streams, options_of(request.param, tmp_path / "lake"))
    for first in range(0, 800, 100):
        streams.put("s", values(0, first, first + 100))
    streams.put("s", values(1, 0, 30), 1)
    made.archive_all()
    for first in range(800, 1000, 100):
        streams.put("s", values(0, first, first + 100))
    return made


ALL = expected((0, 0, 1000), (1, 0, 30))


def test_records_that_retention_removed_come_from_the_archive(tiers: Tiers) -> None:
    assert tiers.rows() == ALL
    start = tiers.retain(250)
    assert 0 < start <= 800
    assert tiers.rows(tier="broker") == expected((0, start, 1000), (1, 0, 30))
    assert tiers.rows() == ALL
    assert tiers.rows(tier="archive") == expected((0, 0, 800), (1, 0, 30))


def test_a_plan_is_cut_where_the_archive_ended_when_it_was_made(tiers: Tiers) -> None:
    options = tiers.options()
    planned = resolve_ranges(options)
    cuts = [(each.partition, each.start, each.end, each.files is None) for each in planned]
    assert cuts == [(0, 0, 800, False), (0, 800, 1000, True), (1, 0, 30, False)]
    tiers.archive_all()
    tiers.streams.put("s", values(0, 1000, 1100))
    schema = arrow_schema(options.columns)
    again = pa.Table.from_batches([*read_ranges(options, planned, schema)]).to_pylist()
    assert [(row["partition"], row["offset"], row["value"]) for row in again] == ALL
    newer = [(each.partition, each.start, each.end, each.files is None) for each in resolve_ranges(options)]
    assert newer == [(0, 0, 1000, False), (0, 1000, 1100, True), (1, 0, 30, False)]


@pytest.mark.parametrize(
    ("starting", "ending", "ranges"),
    [
        ('{"s": {"0": 700, "1": 29}}', '{"s": {"0": 900}}', [(0, 700, 900), (1, 29, 30)]),
        ('{"s": {"0": 799, "1": 30}}', '{"s": {"0": 801}}', [(0, 799, 801)]),
        ('{"s": {"0": 800, "1": 30}}', "latest", [(0, 800, 1000)]),
        ('{"s": {"0": 10, "1": 30}}', '{"s": {"0": 20}}', [(0, 10, 20)]),
        ("-300", "latest", [(0, 700, 1000), (1, 0, 30)]),
    ],
)
def test_starts_and_ends_on_both_sides_of_the_cut(
    tiers: Tiers, starting: str, ending: str, ranges: list[tuple[int, int, int]]
) -> None:
    for records in (0, 7):
        limit = {"maxRecordsPerPartition": records} if records else {}
        found = tiers.rows(startingOffsets=starting, endingOffsets=ending, **limit)
        assert (sorted(found) if records else found) == expected(*ranges)


def test_small_and_merged_files_give_the_same_rows(tiers: Tiers) -> None:
    for first in range(1000, 1050, 10):
        tiers.streams.put("s", values(0, first, first + 10))
        tiers.streams.put("s", values(1, first - 970, first - 960), 1)
        tiers.archive_all()
    whole = expected((0, 0, 1050), (1, 0, 80))
    assert tiers.rows(tier="archive") == whole
    assert bascule.lake.compact(tiers.archive)["numFilesRemoved"] > 3
    assert tiers.rows(tier="archive") == whole


def test_a_gap_between_the_tiers_ends_the_read_or_is_skipped(tiers: Tiers) -> None:
    tiers.streams.put("s", values(0, 1000, 1200))
    start = tiers.retain(150)
    assert start > 800
    with pytest.raises(BrokerError, match=f"offset 800 is below the log start offset {start}"):
        tiers.rows()
    assert tiers.rows(onDataLoss="skip") == expected((0, 0, 800), (0, start, 1200), (1, 0, 30))


def test_another_incarnation_is_not_read_from_the_archive(tiers: Tiers) -> None:
    tiers.streams.delete("s")
    tiers.streams.create("s", 2)
    tiers.streams.put("s", values(0, 0, 5))
    assert tiers.rows() == expected((0, 0, 5))
    assert tiers.rows(tier="archive") == []


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1 nothing")])
def test_a_file_that_is_missing_or_damaged_is_named_or_skipped(
    tiers: Tiers, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    tiers.archive_all()
    newest = max(data_files(tmp_path / "lake"), key=lambda path: path.stat().st_mtime)
    damage(newest)
    with pytest.raises(CorruptionError, match=newest.name):
        tiers.rows(tier="archive")
    assert tiers.rows(tier="archive", onDataLoss="skip") == expected((0, 0, 800), (1, 0, 30))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"archivePath": None}, "option archiveFormat needs the option archivePath"),
        ({"archivePath": None, "archiveFormat": None, "archiveCredentials": None, "tier": "auto"}, "option tier needs"),
        ({"subject": "s.>"}, "option subject is for reads of the broker alone"),
        ({"startingTimestamp": "2026-01-01T00:00:00Z"}, "option startingTimestamp is for reads of the broker alone"),
        ({"columns": "offset,reply"}, "has no column reply, which is read"),
        ({"tier": "lake"}, "it must be one of auto, broker, archive"),
    ],
)
def test_options_that_do_not_fit_are_refused_by_name(tiers: Tiers, given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tiers.rows(**given)


def test_a_table_that_is_not_there_is_named(tiers: Tiers) -> None:
    missing = "lake.other" if tiers.archive.table_format == "iceberg" else f"{tiers.archive.path}-other"
    with pytest.raises(UsageError, match="archivePath names the archive of s"):
        tiers.rows(archivePath=missing)


def test_spark_reads_both_tiers_as_one_table(tiers: Tiers, spark: Any) -> None:
    tiers.retain(250)
    reader = spark.read.format("bascule").option("address", tiers.streams.address).option("stream", "s")
    reader = reader.option("archivePath", tiers.archive.path).option("archiveFormat", tiers.archive.table_format)
    if tiers.archive.credentials:
        reader = reader.option("archiveCredentials", tiers.archive.credentials)
    rows = reader.option("columns", "partition,offset,value").load().collect()
    assert sorted((row.partition, row.offset, bytes(row.value)) for row in rows) == ALL
