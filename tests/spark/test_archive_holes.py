"""Archives of compacted streams: holes in the offsets are covered, and tiered reads do not take them for a loss."""

from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from harness import Streams
from lakes import ONE_FORMAT, Archive, Format

from tests.waiting import until

pytestmark = pytest.mark.spark


def put(streams: Streams, name: str, count: int) -> None:
    """Put records of which compaction keeps few."""
    streams.put(name, [bytes(500)] * count, key=[b"k%d" % (number % 2) for number in range(count)])
    streams.put(name, [b"last"], key=[b"other"])


def offsets(streams: Streams, spark: Any, name: str) -> list[int]:
    reader = spark.read.format("bascule").option("address", streams.address).option("stream", name)
    return sorted(row["offset"] for row in reader.load().select("offset").collect())


def test_holes_behind_epochs_that_had_no_record_of_the_stream(spark: Any, streams: Streams, tmp_path: Path) -> None:
    """Each stream has a table. While `t` is idle, `s` has epochs; then compaction has left holes in `t`."""
    compaction = {"compact": True, "compact_tombstone_ms": 1000, "segment_bytes": 1 << 16}
    streams.create("s")
    streams.create("t", **compaction)
    streams.put("t", [b"first"], key=[b"first"])
    streams.put("s", [b"a"])
    archive = Archive(spark, streams, tmp_path, "delta", stream=["s", "t"], to=tmp_path / "lake" / "{stream}")
    archive.run()
    for _ in range(2):
        streams.put("s", [b"a"])
        archive.run()
    for _ in range(8):
        put(streams, "t", 100)
    end = streams.position("t")[1]
    until(lambda: len(offsets(streams, spark, "t")) < end - 300, 60, what="compaction removes records")
    archive.run()
    left = [row["offset"] for row in archive.rows("t")]
    assert 0 < len(left) < end
    table = bascule.lake.ArchiveOptions(archive.to)
    incarnation = archive.rows("t")[0]["incarnation"]
    source = bascule.lake.Source("t", incarnation, 0)
    covered = bascule.lake.coverage(table, [source], stream="t")[source]
    assert (covered.first, covered.end) == (0, end)
    reader = spark.read.format("bascule").option("address", streams.address).option("stream", "t")
    both = reader.option("archivePath", archive.to).load().select("offset").collect()
    assert sorted(row["offset"] for row in both) == left


@pytest.mark.parametrize("table_format", ONE_FORMAT)
def test_epochs_without_a_record(spark: Any, streams: Streams, tmp_path: Path, table_format: Format) -> None:
    """A query that begins after compaction: most of its epochs are ranges from which every record was removed."""
    streams.create("s", compact=True, compact_tombstone_ms=1000, segment_bytes=1 << 16)
    streams.put("s", [b"first"], key=[b"first"])
    for _ in range(8):
        put(streams, "s", 100)
    end = streams.position("s")[1]
    until(lambda: offsets(streams, spark, "s")[1] > 300, 60, what="compaction removes records")
    archive = Archive(spark, streams, tmp_path, table_format, maxOffsetsPerTrigger=90)
    archive.run()
    archived = [offset for _, offset in archive.offsets()]
    assert set(offsets(streams, spark, "s")) <= set(archived), "compaction continues meanwhile"
    assert archived[:2] == [0, max(archived[1], 301)]
    assert archive.epochs() > 5
    source = bascule.lake.Source("s", archive.rows()[0]["incarnation"], 0)
    covered = bascule.lake.coverage(archive.table, [source])[source]
    assert (covered.first, covered.end) == (0, end)


def test_an_archive_continues_where_compaction_left_nothing_at_the_log_start(
    spark: Any, streams: Streams, tmp_path: Path
) -> None:
    """Compaction removes everything that is archived, and everything after it that is not."""
    streams.create("s", compact=True, compact_tombstone_ms=1000, segment_bytes=1 << 16)
    put(streams, "s", 50)
    archive = Archive(spark, streams, tmp_path, "delta", startingOffsets="earliest")
    archive.run()
    for _ in range(8):
        put(streams, "s", 100)
    until(lambda: offsets(streams, spark, "s")[0] > 400, 60, what="compaction removes records")
    start, end = streams.position("s")
    assert (start, end) == (0, 8 * 101 + 51), "superseded records are not lost: the log start stays"
    archive.run()
    left = offsets(streams, spark, "s")
    archived = [offset for _, offset in archive.offsets()]
    assert archived[:51] == list(range(51))
    assert set(left) <= set(archived)
    source = bascule.lake.Source("s", archive.rows()[0]["incarnation"], 0)
    covered = bascule.lake.coverage(archive.table, [source])[source]
    assert (covered.first, covered.end) == (0, end)
    late = Archive(spark, streams, tmp_path / "late", "delta")
    late.run()
    covered = bascule.lake.coverage(late.table, [source])[source]
    assert (covered.first, covered.end) == (0, end), "an archive of later covers the offsets of the hole too"
