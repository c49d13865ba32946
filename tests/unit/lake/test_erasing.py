"""Erasing by key: what is left, what is recorded, what happens when it is interrupted or others write meanwhile."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from bascule.errors import CorruptionError, StateError, UsageError
from bascule.lake import ArchiveOptions
from bascule.lake.iceberg.catalog import open_catalog
from bascule.lake.options import TableFormat
from bascule.lake.parquet import ParquetTarget
from bascule.lake.ranges import Erased, Source

from tests.unit.lake.query import Query, batch, data_files, expected, options_of, read

pa: Any = import_module("pyarrow")

FORMATS: tuple[TableFormat, ...] = ("delta", "iceberg", "parquet")
SOURCE = Source("s", 1, 0)


@pytest.fixture(params=FORMATS)
def options(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveOptions:
    return options_of(request.param, tmp_path)


def keys(options: ArchiveOptions) -> set[bytes]:
    return set(read(options)["key"].to_pylist())


def without(key: int, *ranges: tuple[int, int, int]) -> list[tuple[int, int, bytes]]:
    return [row for row in expected(*ranges) if row[1] % 3 != key]


def test_every_record_of_the_key_is_erased_and_its_offsets_stay_covered(options: ArchiveOptions) -> None:
    query = Query(options)
    query.epoch(0, [batch(0, 5)], [batch(0, 4, 1)])
    query.epoch(1, [batch(5, 9)])
    outcome = bascule.lake.erase(options, stream="s", key=b"key-1")
    assert query.rows() == without(1, (0, 0, 9), (1, 0, 4))
    assert (outcome.rows, outcome.files, outcome.tombstones, outcome.dry_run) == (4, 3, (), False)
    assert [(each.partition, each.rows, each.first, each.end) for each in outcome.partitions] == [
        (0, 3, 1, 8),
        (1, 1, 1, 2),
    ]
    covered = bascule.lake.coverage(options, [SOURCE])[SOURCE]
    assert (covered.first, covered.end) == (0, 9)


def test_queries_continue_after_an_erasure_and_repeat_no_epoch(options: ArchiveOptions) -> None:
    query = Query(options)
    query.epoch(0, [batch(0, 6)])
    bascule.lake.erase(options, stream="s", key=b"key-2")
    query.restart()
    assert not query.epoch(0, [batch(0, 6)]), "the table still has the epoch"
    assert query.epoch(1, [batch(6, 9)])
    assert query.rows() == sorted([*without(2, (0, 0, 6)), *expected((0, 6, 9))])


def test_a_dry_run_counts_and_changes_nothing(options: ArchiveOptions) -> None:
    query = Query(options)
    query.epoch(0, [batch(0, 6)])
    before = data_files(Path(options.path).parent if options.table_format == "iceberg" else Path(options.path))
    outcome = bascule.lake.erase(options, stream="s", key=b"key-1", dry_run=True)
    assert (outcome.rows, outcome.files, outcome.dry_run) == (2, 1, True)
    assert query.rows() == expected((0, 0, 6))
    after = data_files(Path(options.path).parent if options.table_format == "iceberg" else Path(options.path))
    assert before == after


def test_erasing_again_finds_nothing(options: ArchiveOptions) -> None:
    Query(options).epoch(0, [batch(0, 6)])
    bascule.lake.erase(options, stream="s", key=b"key-1")
    assert bascule.lake.erase(options, stream="s", key=b"key-1").rows == 0


def test_files_without_any_other_record_are_removed(options: ArchiveOptions) -> None:
    query = Query(options)
    query.epoch(0, [batch(1, 2)])
    query.epoch(1, [batch(2, 3)])
    assert bascule.lake.erase(options, stream="s", key=b"key-1").files == 1
    assert query.rows() == expected((0, 2, 3))
    assert query.epoch(2, [batch(3, 4)])
    assert query.rows() == expected((0, 2, 4))


def test_other_streams_and_incarnations(options: ArchiveOptions) -> None:
    query = Query(options)
    query.epoch(0, [batch(0, 3), batch(0, 3, stream="t"), batch(0, 3, incarnation=2)])
    outcome = bascule.lake.erase(options, stream="s", key=b"key-1")
    assert [(each.incarnation, each.rows) for each in outcome.partitions] == [(1, 1), (2, 1)]
    left = [(row["stream"], row["incarnation"]) for row in read(options).to_pylist() if row["key"] == b"key-1"]
    assert left == [("t", 1)]


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_with_partitions(tmp_path: Path, table_format: TableFormat) -> None:
    query = Query(options_of(table_format, tmp_path, "date", "bucket(4)", "stream", "partition"))
    query.epoch(0, [batch(0, 6)], [batch(0, 3, 1), batch(0, 3, stream="it's")])
    plain = replace(query.options, partition_by=())
    outcome = bascule.lake.erase(plain, stream="it's", key=b"key-1")
    assert (outcome.rows, outcome.files) == (1, 1)
    assert bascule.lake.erase(plain, stream="s", key=b"key-1").rows == 3
    assert b"key-1" not in keys(query.options)
    assert read(query.options).num_rows == 8
    assert query.epoch(1, [batch(6, 7)])


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_the_table_says_how_many_rows_were_erased_and_where(tmp_path: Path, table_format: TableFormat) -> None:
    query = Query(options_of(table_format, tmp_path))
    query.epoch(0, [batch(0, 9)])
    bascule.lake.erase(query.options, stream="s", key=b"key-1")
    bascule.lake.erase(query.options, stream="s", key=b"key-2")
    query.epoch(1, [batch(9, 12)])
    pinned = query.table.pinned([SOURCE, Source("s", 1, 5)])
    assert pinned.erased == {SOURCE: Erased(6, 1, 9)}
    assert (pinned.covered[SOURCE].first, pinned.covered[SOURCE].end) == (0, 12)


def test_the_key_is_in_no_file_of_the_newest_version(options: ArchiveOptions, tmp_path: Path) -> None:
    """Neither the log nor the metadata may name the key that was erased."""
    query = Query(replace(options, compression="none"))
    query.epoch(0, [batch(0, 6)])
    before = {path for path in tmp_path.rglob("*") if path.is_file() and b"key-1" in path.read_bytes()}
    assert before, "the test looks for what the files have"
    bascule.lake.erase(query.options, stream="s", key=b"key-1")
    after = {path for path in tmp_path.rglob("*") if path.is_file() and _names(path.read_bytes(), b"key-1")}
    assert after <= (set() if options.table_format == "parquet" else before)


def _names(content: bytes, key: bytes) -> bool:
    return key in content or key.hex().encode() in content.lower()


class Meanwhile:
    """Lets something happen before the first attempt at a commit."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
        self.calls = 0
        for module in ("bascule.lake.delta_erasing", "bascule.lake.iceberg.erasing", "bascule.lake.parquet_erasing"):
            monkeypatch.setattr(f"{module}.failpoint", self._at)
        self._act = act

    def _at(self, name: str) -> None:
        if name == "erase.before_commit":
            self.calls += 1
            if self.calls == 1:
                self._act()


def test_a_query_that_appends_meanwhile_loses_nothing(options: ArchiveOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(options)
    query.epoch(0, [batch(0, 6)])
    Meanwhile(monkeypatch, lambda: query.epoch(1, [batch(6, 9)]))
    outcome = bascule.lake.erase(options, stream="s", key=b"key-1")
    assert outcome.rows == 3, "also the record that was appended meanwhile"
    assert query.rows() == without(1, (0, 0, 9))


def test_another_erasure_of_the_same_files_meanwhile(options: ArchiveOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(options)
    query.epoch(0, [batch(0, 6)])
    meanwhile = Meanwhile(monkeypatch, lambda: bascule.lake.erase(options, stream="s", key=b"key-2"))
    assert bascule.lake.erase(options, stream="s", key=b"key-1").rows == 2
    assert meanwhile.calls == 3, "the first attempt was refused"
    assert query.rows() == [row for row in expected((0, 0, 6)) if row[1] % 3 == 0]
    if options.table_format != "parquet":
        assert query.table.pinned([SOURCE]).erased == {SOURCE: Erased(4, 1, 6)}


def test_a_compaction_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for table_format in ("delta", "iceberg"):
        options = options_of(table_format, tmp_path / table_format)
        query = Query(options)
        query.epoch(0, [batch(0, 6)])
        query.epoch(1, [batch(6, 9)])
        Meanwhile(monkeypatch, lambda options=options: bascule.lake.compact(options))
        assert bascule.lake.erase(options, stream="s", key=b"key-1").rows == 3
        assert query.rows() == without(1, (0, 0, 9))


@pytest.mark.parametrize("point", ["erase.before_commit", "erase.after_commit"])
def test_an_interrupted_erasure_is_completed_by_the_next_call(
    options: ArchiveOptions, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    query = Query(options)
    query.epoch(0, [batch(0, 6), batch(0, 6, incarnation=2)])
    query.epoch(1, [batch(7, 8)])
    monkeypatch.setenv("PIPELINE_FAILPOINTS", str(tmp_path))
    (tmp_path / point).write_text("fail")
    with pytest.raises(OSError, match=point):
        bascule.lake.erase(options, stream="s", key=b"key-1")
    bascule.lake.erase(options, stream="s", key=b"key-1")
    assert b"key-1" not in keys(options)
    assert read(options).num_rows == 8
    assert query.epoch(2, [batch(8, 9)])
    if options.table_format != "parquet":
        assert query.table.pinned([SOURCE]).erased == {SOURCE: Erased(3, 1, 8)}


def test_a_query_finishes_an_erasure_of_a_parquet_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = options_of("parquet", tmp_path)
    query = Query(options)
    query.epoch(0, [batch(0, 3)])
    query.epoch(1, [batch(4, 5)])
    monkeypatch.setenv("PIPELINE_FAILPOINTS", str(tmp_path))
    (tmp_path / "erase.after_commit").write_text("fail")
    with pytest.raises(OSError, match="erase"):
        bascule.lake.erase(options, stream="s", key=b"key-1")
    assert b"key-1" in keys(options), "decided, and not yet in place"
    query.epoch(2, [batch(5, 6)])
    assert query.rows() == expected((0, 0, 1), (0, 2, 3), (0, 5, 6))
    table = ParquetTarget(options.path, options)
    (tmp_path / "table" / "_bascule" / "last.json").write_text(json.dumps({"version": -1}))
    table.finish()
    assert query.rows() == expected((0, 0, 1), (0, 2, 3), (0, 5, 6)), "finishing all records again changes nothing"


def test_more_records_than_one_commit_of_delta_erases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bascule.lake.delta_erasing.MOST_OFFSETS", 2)
    options = options_of("delta", tmp_path)
    query = Query(options)
    query.epoch(0, [batch(0, 15)])
    assert bascule.lake.erase(options, stream="s", key=b"key-1").rows == 5
    assert query.rows() == without(1, (0, 0, 15))
    assert query.table.pinned([SOURCE]).erased == {SOURCE: Erased(5, 1, 14)}


def test_rows_without_a_key_stay(options: ArchiveOptions) -> None:
    query = Query(options)
    rows = batch(0, 3)
    rows = rows.set_column(5, rows.schema.field("key"), pa.array([None, b"", b"k"], pa.binary()))
    query.epoch(0, [rows])
    assert bascule.lake.erase(options, stream="s", key=b"k").rows == 1
    assert [row[1] for row in query.rows()] == [0, 1]
    with pytest.raises(UsageError, match="key is empty"):
        bascule.lake.erase(options, stream="s", key=b"")


def test_what_is_refused(tmp_path: Path) -> None:
    options = options_of("delta", tmp_path)
    with pytest.raises(StateError, match="there is no delta table"):
        bascule.lake.erase(options, stream="s", key=b"k")
    query = Query(options)
    query.epoch(0, [batch(0, 3)])
    with pytest.raises(UsageError, match="has no column subject"):
        bascule.lake.erase(options, stream="s", key=b"key-1", subject="a")
    deltalake = import_module("deltalake")
    for name in ("delta.enableChangeDataFeed", "delta.appendOnly"):
        deltalake.DeltaTable(options.path).alter.set_table_properties({name: "true"})
        with pytest.raises(StateError, match=name):
            bascule.lake.erase(options, stream="s", key=b"key-1", dry_run=True)
        deltalake.DeltaTable(options.path).alter.set_table_properties({name: "false"})
    for file in data_files(tmp_path):
        file.unlink()
    with pytest.raises(CorruptionError, match="is missing; restore it"):
        bascule.lake.erase(options, stream="s", key=b"key-1")


def test_an_iceberg_table_with_delete_files_is_refused(tmp_path: Path) -> None:
    options = options_of("iceberg", tmp_path)
    Query(options).epoch(0, [batch(0, 3)])
    table = open_catalog(options).load_table(options.path)
    assert not any(task.delete_files for task in table.scan().plan_files())
    assert bascule.lake.erase(options, stream="s", key=b"key-1").rows == 1
    assert table.refresh().current_snapshot().summary["bascule.erasure"] == "true"
