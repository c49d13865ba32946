"""Streams as Delta, Parquet and Iceberg tables, with real Spark: content, partitions, replays, kills, refusals."""

import os
import shutil
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from bascule.errors import StateError, UsageError
from bascule.failpoints import Name
from harness import Streams
from lakes import FORMATS, ONE_FORMAT, Archive, Format, catalog_file, read

from tests.failpoints import ARCHIVE, Points

pytestmark = pytest.mark.spark


def ended(archive: Archive) -> str:
    """How a run fails."""
    with pytest.raises(Exception, match="STREAM_FAILED") as raised:
        archive.run()
    return str(raised.value)


@pytest.mark.parametrize("table_format", FORMATS)
def test_every_record_is_in_the_table_with_all_its_columns(
    spark: Any, streams: Streams, tmp_path: Path, table_format: Format
) -> None:
    streams.create("s", 2)
    streams.put("s", [b"a", b"b"], key=[b"k", None], headers=[[{"key": "h", "value": b"1"}], []])
    streams.put("s", [b"c"], 1)
    archive = Archive(spark, streams, tmp_path, table_format)
    archive.run()
    streams.put("s", [b"d"])
    archive.run()
    archive.run()
    rows = archive.rows()
    assert [(row["partition"], row["offset"], row["value"], row["key"]) for row in rows] == [
        (0, 0, b"a", b"k"),
        (0, 1, b"b", None),
        (0, 2, b"d", None),
        (1, 0, b"c", None),
    ]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}]
    assert {(row["stream"], row["partition"], row["incarnation"]) for row in rows} == {("s", 0, 1), ("s", 1, 2)}
    assert {row["subject"] for row in rows} == {"s", "s.1"}


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_replayed_epoch_writes_nothing_twice(
    spark: Any, streams: Streams, tmp_path: Path, table_format: Format
) -> None:
    """The driver dies between the table's commit and the checkpoint's commit log."""
    streams.create("s", 2)
    archive = Archive(spark, streams, tmp_path, table_format, partition_by="date")
    for values in ([b"a"] * 30, [b"b"] * 20):
        streams.put("s", values)
        streams.put("s", values[:5], 1)
        archive.run()
    files = archive.files()
    archive.forget_last_commit()
    archive.run()
    streams.put("s", [b"c"])
    archive.run()
    assert archive.offsets() == [(0, i) for i in range(51)] + [(1, i) for i in range(10)]
    assert len(archive.files()) == len(files) + 1


KILLS = [
    pytest.param(each, point, marks=() if each == "delta" or point == "archive.after_commit" else pytest.mark.long)
    for each in FORMATS
    for point in ARCHIVE
]
"""Every step of one format, and the one after which a table of the others has rows that the checkpoint has not."""


@pytest.mark.parametrize(("table_format", "point"), KILLS)
def test_a_kill_at_any_step_is_completed_by_the_next_run(
    spark: Any, streams: Streams, tmp_path: Path, points: Points, *, table_format: Format, point: Name
) -> None:
    if point == "archive.between_moves" and table_format != "parquet":
        pytest.skip("only files of Parquet tables are moved")
    streams.create("s", 2)
    values = [[b"%d/%d" % (partition, i) for i in range(20)] for partition in (0, 1)]
    streams.put("s", values[0][:10])
    archive = Archive(spark, streams, tmp_path, table_format)
    archive.run()
    streams.put("s", values[0][10:])
    streams.put("s", values[1], 1)
    points.arm(point, "kill")
    ended(archive)
    assert not points.is_armed(point), "the point was not reached"
    archive.run()
    found = [(row["partition"], row["offset"], row["value"]) for row in archive.rows()]
    assert found == [(partition, i, values[partition][i]) for partition in (0, 1) for i in range(20)]


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_one_table_per_stream_of_a_pattern(spark: Any, streams: Streams, tmp_path: Path, table_format: Format) -> None:
    for name in ("orders", "refunds", "other"):
        streams.create(name)
        streams.put(name, [name.encode()] * 3)
    to = tmp_path / "lake" / "{stream}"
    archive = Archive(spark, streams, tmp_path, table_format, stream=None, streamPattern="orders|refunds|new", to=to)
    archive.run()
    streams.create("new")
    streams.put("new", [b"new"])
    streams.put("orders", [b"orders"])
    archive.run()
    archive.forget_last_commit()
    archive.run()
    found = {
        name: [(row["stream"], row["offset"]) for row in archive.rows(name)] for name in ("orders", "refunds", "new")
    }
    assert found == {
        "orders": [("orders", i) for i in range(4)],
        "refunds": [("refunds", i) for i in range(3)],
        "new": [("new", 0)],
    }
    assert not (tmp_path / "lake" / "other").exists()


def test_partitions_by_date_and_key_and_sorted_files(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s", 2)
    for number in (0, 1):
        streams.put("s", [b"v"] * 40, number, key=[b"key-%d" % (i % 7) for i in range(40)])
    archive = Archive(spark, streams, tmp_path, "delta", partition_by=["date", "bucket(4)"], maxPartitions=1)
    archive.run()
    today = time.strftime("%Y-%m-%d", time.gmtime())
    for path in Path(archive.to).rglob("*.parquet"):
        rows = import_module("pyarrow.parquet").read_table(path, partitioning=None)
        keys = list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
        assert keys == sorted(keys)
        assert path.parent.parent.name == f"date={today}"
    assert archive.offsets() == [(number, i) for number in (0, 1) for i in range(40)]
    assert all(row["bucket"] is not None for row in archive.rows())


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_deleted_checkpoint_is_refused_and_continued_with_the_remedy(
    spark: Any, streams: Streams, tmp_path: Path, table_format: Format
) -> None:
    streams.create("s")
    streams.put("s", [b"a"] * 10)
    first = Archive(spark, streams, tmp_path / "1", table_format, to=tmp_path / "table")
    first.run()
    streams.put("s", [b"b"] * 5)
    again = Archive(spark, streams, tmp_path / "2", table_format, to=tmp_path / "table")
    message = ended(again)
    assert "the query has a new checkpoint" in message
    assert 'startingOffsets {"s": {"0": 10}}' in message
    assert first.offsets() == [(0, i) for i in range(10)]
    options = {"to": tmp_path / "table", "startingOffsets": '{"s": {"0": 10}}'}
    Archive(spark, streams, tmp_path / "3", table_format, **options).run()
    assert first.offsets() == [(0, i) for i in range(15)]


@pytest.mark.parametrize("table_format", ONE_FORMAT)
def test_two_archivers_of_one_table(spark: Any, streams: Streams, tmp_path: Path, table_format: Format) -> None:
    """Of different streams both are exact; of the same stream one is refused."""
    for name in ("s", "t"):
        streams.create(name)
        streams.put(name, [name.encode()] * 200)
    to = tmp_path / "table"
    both = [
        Archive(spark, streams, tmp_path / name, table_format, to=to, stream=name, maxOffsetsPerTrigger=40)
        for name in ("s", "t")
    ]
    queries = [archive.start(available_now=True) for archive in both]
    assert all(query.awaitTermination(120) for query in queries)
    assert [(row["stream"], row["offset"]) for row in both[0].rows()] == [(n, i) for n in "st" for i in range(200)]
    assert "another query archives the same stream" in ended(
        Archive(spark, streams, tmp_path / "third", table_format, to=to)
    )
    assert len(both[0].rows()) == 400


def test_a_table_says_which_offsets_it_covers(spark: Any, streams: Streams, tmp_path: Path) -> None:
    source = bascule.lake.Source("s", 1, 0)
    streams.create("s")
    streams.put("s", [b"a"] * 10)
    for table_format in FORMATS:
        archive = Archive(spark, streams, tmp_path / table_format, table_format)
        archive.run()
        covered = bascule.lake.coverage(archive.table, [source, bascule.lake.Source("s", 1, 7)])
        assert {key: (each.first, each.end) for key, each in covered.items()} == {source: (0, 10)}


def test_compaction_and_vacuum_keep_rows_and_epochs(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    archive = Archive(spark, streams, tmp_path, "delta", compactEvery=2)
    for _ in range(3):
        streams.put("s", [b"a"] * 10)
        archive.run()
    options = bascule.lake.ArchiveOptions(archive.to)
    assert len(import_module("deltalake").DeltaTable(archive.to).file_uris()) == 2, "epochs 0 and 1 were compacted"
    assert bascule.lake.compact(options)["numFilesRemoved"] == 2
    for path in Path(archive.to).glob("*.parquet"):
        os.utime(path, (0, 0))
    orphan = Path(archive.to) / f"part-{'0' * 32}-1-00001.parquet"  # of a failed attempt
    orphan.write_bytes(b"")
    os.utime(orphan, (0, 0))
    fresh = Path(archive.to) / f"part-{'0' * 32}-2-00001.parquet"  # of a running one
    fresh.write_bytes(b"")
    with pytest.raises(UsageError, match="may belong to a running micro-batch"):
        bascule.lake.vacuum(options, retention_hours=0)
    bascule.lake.vacuum(options, retention_hours=1)
    assert (orphan.exists(), fresh.exists()) == (False, True)
    archive.forget_last_commit()
    streams.put("s", [b"b"])
    archive.run()
    assert archive.offsets() == [(0, i) for i in range(31)]


def test_an_epoch_inside_foreach_batch(spark: Any, streams: Streams, tmp_path: Path) -> None:
    """Two tables of other rows in one query, replayed: each has them once."""
    streams.create("s")
    streams.put("s", [b"a"] * 10)
    targets = [bascule.lake.ArchiveOptions(str(tmp_path / name), target=name) for name in ("even", "odd")]

    def write(frame: Any, epoch: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        for options, rest in zip(targets, (0, 1), strict=True):
            rows = frame.where(f"offset % 2 = {rest}").select("partition", "offset", "stream", "value")
            bascule.lake.write_epoch(rows, options, query_id=query, epoch=epoch)

    def run() -> None:
        columns = "stream,partition,offset,value"
        reader = spark.readStream.format("bascule").option("stream", "s").option("address", streams.address)
        frame = reader.option("columns", columns).load()
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(90)

    run()
    for path in (tmp_path / "checkpoint" / "commits").iterdir():
        path.unlink()
    run()
    found = [[row["offset"] for row in read(options.path, "delta")] for options in targets]
    assert found == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]


def test_batches_are_appended_to_an_iceberg_table_once(spark: Any, tmp_path: Path) -> None:
    """By the real writer and its tasks, without a stream: a repeated epoch, and one that another job has."""
    options = bascule.lake.ArchiveOptions(
        "lake.{stream}", "iceberg", partition_by=("date", "bucket(4)"), credentials=catalog_file(tmp_path)
    )
    columns = "stream string, partition int, offset long, timestamp timestamp, key binary, value binary"
    rows = spark.range(0, 60, 1, 3).selectExpr(
        "concat('s.', id % 2)", "0", "id", "timestamp_seconds(id * 7200)", "encode(string(id % 5), 'utf-8')", "NULL"
    )
    frame = spark.createDataFrame(rows.collect(), columns).repartition(3)
    for _ in range(2):
        bascule.lake.write_epoch(frame, options, query_id="job", epoch=0)
    with pytest.raises(Exception, match="another query archives the same stream"):
        bascule.lake.write_epoch(frame, options, query_id="other job", epoch=0)
    for number in (0, 1):
        found = read(f"lake.s_2E{number}", "iceberg", catalog_file(tmp_path))
        assert [row["offset"] for row in found] == list(range(number, 60, 2))


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_that_was_deleted_is_refused_and_not_created_again(
    spark: Any, streams: Streams, tmp_path: Path, table_format: Format
) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    archive = Archive(spark, streams, tmp_path, table_format)
    archive.run()
    archive.delete()
    with pytest.raises(StateError, match="has none of this query's epochs, and the checkpoint continues with epoch 1"):
        archive.start(available_now=True)
    assert archive.files() == []


def test_the_table_of_a_stream_that_was_deleted_is_refused_by_its_next_epoch(
    spark: Any, streams: Streams, tmp_path: Path
) -> None:
    streams.create("s")
    streams.create("t")
    streams.put("s", [b"a"])
    archive = Archive(spark, streams, tmp_path, "delta", stream=["s", "t"], to=tmp_path / "of-{stream}")
    archive.run()
    shutil.rmtree(tmp_path / "of-s")
    streams.put("t", [b"b"])
    archive.run()
    assert archive.offsets("t") == [(0, 0)], "the table of another stream begins with a later epoch"
    streams.put("s", [b"c"])
    assert "[sink_epoch] " in ended(archive)
    assert not (tmp_path / "of-s" / "_delta_log").exists()


def test_rows_without_offsets_are_appended_once_by_epoch(spark: Any, tmp_path: Path) -> None:
    options = bascule.lake.ArchiveOptions(str(tmp_path / "table"))
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "word string, count int")
    for _ in range(2):
        bascule.lake.write_epoch(rows, options, query_id="job", epoch=0)
    with pytest.raises(Exception, match="was written by another query"):
        bascule.lake.write_epoch(rows, options, query_id="other job", epoch=0)
    found = import_module("deltalake").DeltaTable(options.path).to_pyarrow_table()
    assert found.sort_by("word").to_pydict() == {"word": ["a", "b"], "count": [1, 2]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"colums": "a"}, "there is no option 'colums'"),
        ({"columns": ["offset", "value"]}, "columns of an archive include"),
        ({"queryId": "q"}, "option queryId cannot be given to archive"),
        ({"stream": None, "streamPattern": "s.*"}, "for one table per stream"),
        ({"partition_by": "day"}, "partition_by day needs a column day"),
        ({"fileBytes": "1"}, "option fileBytes is '1'"),
        ({"available_now": True, "every": "1 second"}, "available_now and every are both given"),
    ],
)
def test_options_that_cannot_work_are_refused_by_name(
    spark: Any, streams: Streams, tmp_path: Path, given: dict[str, Any], message: str
) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    archive = Archive(spark, streams, tmp_path, "delta", **given)
    with pytest.raises(Exception, match=message):
        archive.start(**({} if "available_now" in given else {"available_now": True})).awaitTermination(60)
