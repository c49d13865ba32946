"""Tiered reads and replays of archives from which records were erased by key."""

from importlib import import_module
from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from bascule.lake.options import ArchiveOptions, TableFormat
from bascule.lake.rows import Shape
from bascule.spark.columns import arrow_schema
from bascule.spark.options import SourceOptions, parse_options
from bascule.spark.reading import plan_tasks, read_ranges
from bascule.spark.replaying.archives import opened
from bascule.spark.resolving import resolve_ranges
from harness import Streams
from lakes import Archive

from tests.unit.lake.query import Query, batch, options_of
from tests.waiting import until

pytestmark = pytest.mark.spark

pa: Any = import_module("pyarrow")
COLUMNS = ("stream", "incarnation", "partition", "offset", "timestamp", "subject", "key", "value", "headers")


class Raw(Query):
    """A query whose rows have the columns of an archive."""

    @property
    def shape(self) -> Shape:
        schema = arrow_schema(COLUMNS)
        return Shape(schema, schema, True)


def source(streams: Streams, archive: ArchiveOptions, **given: str) -> SourceOptions:
    place = {"archivePath": archive.path, "archiveFormat": archive.table_format}
    if archive.credentials is not None:
        place["archiveCredentials"] = archive.credentials
    return parse_options({"stream": "s", "address": streams.address, "retryDeadlineMs": "1000", **place, **given})


def rows(options: SourceOptions) -> Any:
    """Rows of a batch read, in the order of its tasks."""
    schema = arrow_schema(options.columns)
    batches = [
        found
        for ranges in plan_tasks(options, resolve_ranges(options))
        for found in read_ranges(options, ranges, schema)
    ]
    return pa.Table.from_batches(batches, schema)


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_tiered_read_leaves_erased_records_out_and_says_so(
    streams: Streams, tmp_path: Path, table_format: TableFormat, caplog: pytest.LogCaptureFixture
) -> None:
    archive = options_of(table_format, tmp_path)
    streams.create("s", segment_bytes=1 << 16)
    for _ in range(4):
        streams.put("s", [bytes(500)] * 100, key=[b"k%d" % (number % 4) for number in range(100)])
    broker_only = source(streams, archive, tier="broker", columns=",".join(COLUMNS))
    Raw(archive).epoch(0, rows(broker_only).to_batches())
    streams.put("s", [bytes(500)] * 100, key=[b"k%d" % (number % 4) for number in range(100)])
    streams.set("s", retention_messages=150)
    until(lambda: streams.position("s")[0] > 0, 30, what="retention removes records")
    erased = bascule.lake.erase(archive, stream="s", key=b"k1")
    assert erased.rows == 100
    caplog.clear()
    for tier, end, of_broker in (("auto", 500, 25), ("archive", 400, 0)):
        found = rows(source(streams, archive, tier=tier))
        offsets = found["offset"].to_pylist()
        assert offsets == sorted(offsets)
        assert offsets == [n for n in range(end) if n >= 400 or n % 4 != 1]
        assert found["key"].to_pylist().count(b"k1") == of_broker, "the broker has its own until compaction"
    (said,) = [record.message for record in caplog.records if "erased by key" in record.message]
    assert said.startswith(
        f"100 records of s/0 with offsets in [1, 398) were erased by key from the archive {archive.path}"
    )


def test_a_replay_reads_each_file_of_a_parquet_table_once(tmp_path: Path) -> None:
    options = options_of("parquet", tmp_path, "partition")
    query = Query(options)
    query.epoch(0, [batch(0, 6)], [batch(1, 2, 1)])
    bascule.lake.erase(options, stream="s", key=b"key-1")
    found = opened(options, "s")
    assert [dict(file.constants) for file in found.files] == [{"partition": 0}], "the other one has no row left"


def test_a_query_continues_behind_an_erasure(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    streams.put("s", [b"a"] * 6, key=[b"x", b"y"] * 3)
    archive = Archive(spark, streams, tmp_path, "delta", partition_by="bucket(4)")
    archive.run()
    assert bascule.lake.erase(archive.table, stream="s", key=b"x").rows == 3
    streams.put("s", [b"b"] * 2, key=[b"x", b"y"])
    archive.forget_last_commit()
    archive.run()
    archive.run()
    assert archive.offsets() == [(0, number) for number in (1, 3, 5, 6, 7)]
