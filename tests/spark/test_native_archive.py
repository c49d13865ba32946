"""Bulk scans whose archived records are read by Spark's own Parquet reader."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import bascule.lake
import bascule.spark
import bascule.spark.native_archive as native
import pytest
from bascule.errors import BrokerError, UsageError
from harness import Streams
from tiered import ALL, COLUMNS, DAMAGES, FORMATS, Tiers, expected, filled, values

from tests.unit.lake.query import data_files, options_of

pytestmark = pytest.mark.spark


def scan(spark: Any, tiers: Tiers, *, is_native: bool = True, **given: Any) -> Any:
    options = {"address": tiers.streams.address, "retryDeadlineMs": 1000, **tiers.place, **given}
    columns = str(options.pop("columns", "partition,offset,value"))
    return bascule.spark.scan(spark, "s", columns=columns, native_archive=is_native, **options)


def rows(frame: Any) -> list[tuple[int, int, bytes]]:
    return sorted((row["partition"], row["offset"], bytes(row["value"])) for row in frame.collect())


@pytest.fixture(params=FORMATS)
def tiers(request: pytest.FixtureRequest, streams: Streams, tmp_path: Path) -> Tiers:
    return filled(streams, tmp_path, request.param)


def test_old_records_are_read_by_spark_and_new_ones_from_the_broker(spark: Any, tiers: Tiers) -> None:
    tiers.retain(250)
    frame = scan(spark, tiers)
    assert rows(frame) == ALL
    plan = frame._jdf.queryExecution().toString()
    assert "Scan parquet" in plan
    assert "MapInArrow" in plan
    assert rows(scan(spark, tiers, tier="archive")) == expected((0, 0, 800), (1, 0, 30))
    starts, ends = '{"s": {"0": 799, "1": 29}}', '{"s": {"0": 801}}'
    assert rows(scan(spark, tiers, startingOffsets=starts, endingOffsets=ends)) == expected((0, 799, 801), (1, 29, 30))


def test_the_cut_stays_where_the_archive_ended_when_the_scan_was_planned(spark: Any, tiers: Tiers) -> None:
    frame = scan(spark, tiers)
    tiers.archive_all()
    tiers.streams.put("s", values(0, 1000, 1100))
    assert bascule.lake.compact(tiers.archive)["numFilesRemoved"] > 1
    assert rows(frame) == ALL
    assert rows(scan(spark, tiers)) == expected((0, 0, 1100), (1, 0, 30))


def test_every_column_is_as_the_bulk_scan_has_it(spark: Any, tiers: Tiers) -> None:
    for columns in (",".join(COLUMNS), "value", "headers,stream,key"):
        one, other = (scan(spark, tiers, columns=columns, is_native=is_native) for is_native in (True, False))
        kinds = [[(field.name, field.dataType) for field in frame.schema] for frame in (one, other)]
        assert kinds[0] == kinds[1]
        assert sorted(map(repr, one.collect())) == sorted(map(repr, other.collect()))


@pytest.mark.parametrize(("fields", "groups"), [(("stream", "partition"), 2), (("subject",), 4)])
def test_values_of_partitions_are_columns(
    spark: Any,
    streams: Streams,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    fields: tuple[str, ...],
    groups: int,
) -> None:
    (tmp_path / "a [b] {c},d" / "lake").mkdir(parents=True)
    tiers = Tiers(streams, options_of("delta", tmp_path / "a [b] {c},d" / "lake", *fields))
    subjects = ["s.a", "s.a=b%20{c}", "s.größe", "s." + "x" * 300]
    for number in (0, 1):
        streams.put("s", [b"%d" % offset for offset in range(4)], number, subject=subjects)
    tiers.archive_all()
    streams.put("s", [b"4"], subject=["s.a"])
    columns = "stream,incarnation,partition,offset,subject,value"
    frames = [scan(spark, tiers, columns=columns, is_native=is_native) for is_native in (True, False)]
    found, wanted = (sorted(tuple(row) for row in frame.collect()) for frame in frames)
    assert found == wanted
    assert len(found) == 9
    filtered = scan(spark, tiers, columns="partition,offset,value", subject="s.größe")
    assert [row[:2] for row in rows(filtered)] == [(0, 2), (1, 2)]
    monkeypatch.setattr(native, "MOST_GROUPS", groups)
    assert scan(spark, tiers, columns="subject").count() == 9
    monkeypatch.setattr(native, "MOST_GROUPS", groups - 1)
    with pytest.raises(UsageError, match=f"has {groups} of the columns that are read, at most {groups - 1}: leave"):
        scan(spark, tiers, columns="subject")


@pytest.mark.parametrize("pattern", ["s.*", ">", "s.(x)", "s.*.c", "no"])
def test_a_subject_filter_is_applied_to_both_tiers(spark: Any, tiers: Tiers, pattern: str) -> None:
    subjects = ["s.a", "s.b", "s.b.c", "s.(x)"]
    tiers.streams.put("s", [b"%d" % number for number in range(4)], subject=subjects)
    tiers.archive_all()
    tiers.streams.put("s", [b"%d" % number for number in range(4)], subject=subjects)
    assert rows(scan(spark, tiers, subject=pattern)) == tiers.rows(subject=pattern)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_named_or_left_out(
    spark: Any, tiers: Tiers, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    tiers.archive_all()
    tiers.streams.put("s", values(0, 1000, 1100))
    failing, skipping = (scan(spark, tiers, onDataLoss=each) for each in ("fail", "skip"))
    newest = max(data_files(tmp_path / "lake"), key=lambda path: path.stat().st_mtime)
    damage(newest)
    with pytest.raises(Exception, match=newest.name):
        failing.collect()
    assert rows(skipping) == expected((0, 0, 800), (0, 1000, 1100), (1, 0, 30))


def test_erased_records_are_left_out(spark: Any, tiers: Tiers) -> None:
    tiers.streams.put("s", [b"mine", b"yours"], key=[b"a", b"b"])
    tiers.archive_all()
    assert bascule.lake.erase(tiers.archive, stream="s", key=b"a", client=None).rows == 1
    found = rows(scan(spark, tiers, startingOffsets='{"s": {"0": 998}}'))
    assert found == [*expected((0, 998, 1000)), (0, 1001, b"yours"), *expected((1, 0, 30))]


def test_what_spark_cannot_read_is_refused(spark: Any, tiers: Tiers, streams: Streams) -> None:
    with pytest.raises(UsageError, match="native_archive reads an archive: name it by archivePath"):
        bascule.spark.scan(spark, "s", native_archive=True, address=streams.address)
    with pytest.raises(UsageError, match="view is table: leave native_archive out"):
        scan(spark, tiers, view="table", tableKey="subject")
    tiers.streams.put("s", values(0, 1000, 1200))
    assert tiers.retain(150) > 800
    with pytest.raises(BrokerError, match="is below the log start offset"):
        scan(spark, tiers)
