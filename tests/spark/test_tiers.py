"""Batch reads of an archive and the broker as one: order, cuts, gaps, damage, refusals. Most need no Spark session."""

from collections.abc import Callable
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import bascule.lake
import bascule.spark.tiers as tier_module
import pytest
from bascule.errors import BrokerError, CorruptionError, UsageError
from bascule.lake.options import TableFormat
from bascule.spark.columns import arrow_schema
from bascule.spark.reading import read_ranges
from bascule.spark.resolving import resolve_ranges
from harness import Streams
from tiered import ALL, DAMAGES, FORMATS, Tiers, expected, filled, values

from tests.unit.lake.query import data_files, options_of
from tests.waiting import until

pytestmark = pytest.mark.spark

pa: Any = import_module("pyarrow")


@pytest.fixture(params=FORMATS)
def tiers(request: pytest.FixtureRequest, streams: Streams, tmp_path: Path) -> Tiers:
    return filled(streams, tmp_path, request.param)


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


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_time_is_searched_in_both_tiers(tiers: Tiers, is_merged: bool) -> None:
    tiers.streams.put("s", values(1, 30, 60), 1)
    tiers.archive_all()
    tiers.streams.put("s", values(0, 1000, 1100))
    times = tiers.times()
    if is_merged:
        assert bascule.lake.compact(tiers.archive)["numFilesRemoved"] > 1
    assert tiers.retain(250) > 0
    rows = expected((0, 0, 1100), (1, 0, 60))
    archived = expected((0, 0, 1000), (1, 0, 60))
    for number, offset in ((0, 0), (0, 250), (0, 800), (0, 1000), (1, 59)):
        moment = times[number, offset]
        for time in (moment, moment + timedelta(microseconds=1)):
            later = [row for row in rows if times[row[:2]] >= time]
            assert tiers.rows(startingTimestamp=time.isoformat()) == later, (number, offset)
            assert tiers.rows(endingTimestamp=time.isoformat()) == [row for row in rows if row not in later]
            alone = [row for row in archived if times[row[:2]] >= time]
            assert tiers.rows(startingTimestamp=time.isoformat(), tier="archive") == alone
    late = max(times.values()) + timedelta(seconds=1)
    assert tiers.rows(startingTimestamp=late.isoformat()) == []
    assert tiers.rows(endingTimestamp=late.isoformat()) == rows
    with pytest.raises(BrokerError, match="has no record at or after"):
        tiers.rows(startingTimestamp=late.isoformat(), startingOffsetsByTimestampStrategy="error")


def test_a_time_within_a_gap_begins_at_the_gap(tiers: Tiers) -> None:
    for first in range(1000, 1200, 10):
        tiers.streams.put("s", values(0, first, first + 10))
    times = tiers.times()
    start = tiers.retain(150)
    assert 900 < start < 1190
    time = times[0, 850].isoformat()
    with pytest.raises(BrokerError, match=f"offset 800 is below the log start offset {start}"):
        tiers.rows(startingTimestamp=time)
    assert tiers.rows(startingTimestamp=time, onDataLoss="skip") == expected((0, start, 1200))
    # Records that were published together may have the same time.
    late = min(time for time in times.values() if time > times[0, start])
    behind = [row for row in expected((0, start, 1200)) if times[row[:2]] >= late]
    assert tiers.rows(startingTimestamp=late.isoformat()) == behind, "the gap lies before the time"


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_time_is_searched_where_compaction_left_no_record(
    streams: Streams, tmp_path: Path, table_format: TableFormat
) -> None:
    tiers = Tiers(streams, options_of(table_format, tmp_path))
    for first in range(0, 1000, 100):
        streams.put("s", values(0, first, first + 100), key=[b"k"] * 100)
        if first == 300:
            tiers.archive_all()
    times = tiers.times()
    streams.set("s", compact=True)
    until(lambda: tiers.rows(tier="broker")[0][1] >= 400, what="compaction removes the archived records")
    assert streams.position("s")[0] == 0, "the log start stays"

    def agrees(since: int, **options: str) -> bool:
        """Compaction may remove more between two reads: these are compared with what is there before and after."""
        left = tiers.rows(tier="broker")
        found = tiers.rows(**options)
        whole = [row for row in expected((0, 0, 400)) + left if times[row[:2]] >= times[0, since]]
        return found == whole and tiers.rows(tier="broker") == left

    for offset in (0, 1, 150, 399, 400, 650):
        moment = times[0, offset].isoformat()
        until(lambda at=offset, when=moment: agrees(at, startingTimestamp=when), 30, what=f"from the time of {offset}")
    rest = '{"s": {"0": 350}}'
    until(lambda: tiers.rows(startingOffsets=rest) == expected((0, 350, 400)) + tiers.rows(tier="broker"), 30)


@pytest.mark.parametrize("pattern", ["s.*", "s.>", ">", "s.a", "s", "*", "s.*.c", "s.1", "no", "s.(x)", "*.größe"])
def test_a_subject_filter_is_applied_to_both_tiers(tiers: Tiers, pattern: str) -> None:
    subjects = ["s.a", "s.b", "s.b.c", "s.(x)", "s.größe", "s.a"]
    tiers.streams.put("s", [b"%d" % number for number in range(6)], subject=subjects)
    tiers.archive_all()
    tiers.streams.put("s", [b"%d" % number for number in range(6)], subject=subjects)
    found = tiers.rows(subject=pattern, tier="broker")
    assert tiers.rows(subject=pattern) == found
    tiers.archive_all()
    for columns in ("partition,offset,value", "partition,offset,value,subject"):
        assert tiers.rows(subject=pattern, tier="archive", columns=columns) == found
    assert bool(found) == (pattern != "no")


def test_a_table_view_takes_the_latest_record_of_both_tiers(tiers: Tiers) -> None:
    archived = {"s.a": b"old", "s.b": b"only in the archive"}
    tiers.streams.put("s", list(archived.values()), subject=list(archived))
    tiers.archive_all()
    tiers.streams.put("s", [b"new", b"late"], subject=["s.a", "s.c"])
    view = {"view": "table", "tableKey": "subject", "columns": "partition,offset,value"}
    found = [(offset, value) for number, offset, value in tiers.rows(**view) if number == 0]
    assert found == [(999, values(0, 999, 1000)[0]), (1001, b"only in the archive"), (1002, b"new"), (1003, b"late")]
    archive = [(offset, value) for number, offset, value in tiers.rows(tier="archive", **view) if number == 0]
    assert archive == [(999, values(0, 999, 1000)[0]), (1000, b"old"), (1001, b"only in the archive")]


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


def test_earlier_incarnations_in_the_archive_are_named_and_not_read(
    tiers: Tiers, caplog: pytest.LogCaptureFixture
) -> None:
    before = [each.incarnation for each in resolve_ranges(tiers.options(tier="broker"))]
    tiers.rows()
    assert "earlier incarnations" not in caplog.text
    tiers.streams.delete("s")
    tiers.streams.create("s", 2)
    tiers.streams.put("s", values(0, 0, 5))
    for given, rows in (({}, expected((0, 0, 5))), ({"tier": "archive"}, []), ({"assign": '{"s": [1]}'}, [])):
        caplog.clear()
        assert tiers.rows(**({"stream": None} if "assign" in given else {}), **given) == rows
        earlier = before[1:] if "assign" in given else before
        assert f"earlier incarnations ({', '.join(map(str, earlier))})" in caplog.text


def test_an_archive_of_another_log_is_not_mixed_with_the_present_one(tiers: Tiers, tmp_path: Path) -> None:
    tiers.streams.save(tmp_path / "copy")
    tiers.streams.put("s", values(0, 1000, 1100))
    tiers.archive_all()
    archived = expected((0, 0, 1100), (1, 0, 30))
    assert tiers.rows() == archived
    tiers.streams.put_back(tmp_path / "copy")
    for data_loss in ("fail", "skip"):
        with pytest.raises(BrokerError, match="up to offset 1100, which is beyond the high watermark 1000") as refusal:
            tiers.rows(onDataLoss=data_loss)
        assert refusal.value.code == "history_changed"
    tiers.streams.put("s", [b"other"] * 150)
    for data_loss in ("fail", "skip"):
        with pytest.raises(BrokerError, match="the archive's record 1099 was received") as refusal:
            tiers.rows(onDataLoss=data_loss)
        assert refusal.value.code == "history_changed"
    assert tiers.rows(tier="archive") == archived
    others = [(0, offset, b"other") for offset in range(1000, 1150)]
    assert tiers.rows(tier="broker") == [*expected((0, 0, 1000)), *others, *expected((1, 0, 30))]


def test_records_archived_between_two_questions_do_not_end_the_read(
    tiers: Tiers, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin = tier_module.pin

    def later(*given: Any) -> Any:
        monkeypatch.setattr(tier_module, "pin", pin)
        tiers.streams.put("s", values(0, 1000, 1100))
        tiers.archive_all()
        return pin(*given)

    monkeypatch.setattr(tier_module, "pin", later)
    assert tiers.rows() == ALL


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_missing_or_damaged_is_named_or_skipped(
    tiers: Tiers, tmp_path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    tiers.archive_all()
    tiers.streams.put("s", values(0, 1000, 1100))
    newest = max(data_files(tmp_path / "lake"), key=lambda path: path.stat().st_mtime)
    damage(newest)
    for given in ({"tier": "archive"}, {}, {"onDataLoss": "archive"}):
        with pytest.raises(CorruptionError, match=newest.name) as refusal:
            tiers.rows(**given)
        assert refusal.value.code == "damaged"
    assert tiers.rows(tier="archive", onDataLoss="skip") == expected((0, 0, 800), (1, 0, 30))
    assert f"{newest.name} " in caplog.text
    assert tiers.rows(onDataLoss="skip") == expected((0, 0, 800), (0, 1000, 1100), (1, 0, 30))


def test_what_retention_removed_is_read_from_the_archive_on_loss(tiers: Tiers) -> None:
    loss = {"tier": "broker", "onDataLoss": "archive", "startingOffsets": '{"s": {"0": 0}}'}
    options = tiers.options(**loss)
    planned = resolve_ranges(options)
    assert [each.files is None for each in planned] == [True, True]
    start = tiers.retain(250)
    assert tiers.rows(**loss) == ALL
    cuts = [(each.start, each.end, each.files is None) for each in resolve_ranges(options)]
    assert cuts == [(0, start, False), (start, 1000, True), (0, 30, True)]
    schema = arrow_schema(options.columns)
    found = pa.Table.from_batches([*read_ranges(options, planned, schema)]).to_pylist()
    assert [(row["partition"], row["offset"], row["value"]) for row in found] == ALL
    assert tiers.rows(tier="broker", onDataLoss="archive") == expected((0, start, 1000), (1, 0, 30))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"onDataLoss": "archive", "tier": "archive"}, "with tier=archive nothing else is read"),
        ({"onDataLoss": "archive", "archivePath": None}, "needs the option archivePath"),
        ({"archivePath": None}, "option archiveFormat needs the option archivePath"),
        ({"archivePath": None, "archiveFormat": None, "archiveCredentials": None, "tier": "auto"}, "option tier needs"),
        ({"subject": "s..a"}, "option subject is 's..a': it must be tokens"),
        ({"subject": ">.s"}, "with > as the last one only"),
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


def test_rows_behind_a_compaction_of_the_archive_are_read_beside_those_before_it(tiers: Tiers) -> None:
    tiers.archive_all()
    assert bascule.lake.compact(tiers.archive)["numFilesRemoved"] >= 2
    tiers.streams.put("s", values(0, 1000, 1100))
    tiers.archive_all()
    assert tiers.rows(tier="archive") == expected((0, 0, 1100), (1, 0, 30))
