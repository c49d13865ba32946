"""Merges without Spark: Delta and Iceberg tables of latest rows and of versions, repeated and overtaken epochs."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest
from bascule.errors import StateError
from bascule.lake.epochs import Epoch, Writer
from bascule.lake.iceberg.merged import MergedIceberg
from bascule.lake.merge_options import DELETED, VALID_FROM, MergeOptions
from bascule.lake.merging import commit_merge, table_of
from bascule.lake.progress import progress_of
from bascule.lake.ranges import Source, Written

from tests.unit.lake.query import SCHEMA, options_of

pa: Any = import_module("pyarrow")

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = pa.schema([*SCHEMA, ("tags", pa.list_(pa.string())), (DELETED, pa.bool_())])
SOURCE = Source("s", 1, 0)

Change = tuple[int, bytes, bytes | None]


class Merged:
    """A table that a query merges into; changes are offset, key and value."""

    def __init__(self, kind: str, folder: Path) -> None:
        table_format = "iceberg" if kind == "iceberg" else "delta"
        place = options_of(table_format, folder)
        self.options = MergeOptions(
            path=place.path, keys=("key",), history=kind == "history", credentials=place.credentials,
            table_format=table_format,
        )  # fmt: skip
        self.checkpoint = ""
        self.table = table_of(self.options)

    def epoch(self, number: int, *changes: Change, partition: int = 0, second: int | None = None) -> bool:
        rows = self.arrow(changes, partition, second)
        written = Written(changes[0][0], changes[-1][0] + 1, len(changes))
        source = Source("s", 1, partition)
        epoch = Epoch(Writer("q", "table"), number, uuid4().hex, uuid4().hex, len(changes), {source: written})
        progress = progress_of(self.checkpoint, epoch.writer, self.options.path, one_table=True)
        return commit_merge(self.table, rows, epoch, progress)

    def restart(self) -> None:
        """Forget what the process knows."""
        self.table = table_of(self.options)

    def arrow(self, changes: Sequence[Change], partition: int, second: int | None) -> Any:
        """The rows of an epoch as Spark gives them."""
        records: list[dict[str, Any]] = [
            {
                "stream": "s",
                "incarnation": 1,
                "partition": partition,
                "offset": offset,
                "key": key,
                "value": value,
                "tags": ["a", str(offset)],
                DELETED: value is None,
                "timestamp": BEGIN + timedelta(seconds=offset if second is None else second),
            }
            for offset, key, value in changes
        ]
        if not self.options.history:
            return pa.Table.from_pylist(list({row["key"]: row for row in records}.values()), schema=ROWS)
        ordered = [{**row, VALID_FROM: row["timestamp"]} for row in sorted(records, key=lambda row: row["key"])]
        return pa.Table.from_pylist(ordered, schema=pa.schema([*ROWS, (VALID_FROM, ROWS.field("timestamp").type)]))

    def rows(self) -> list[dict[str, Any]]:
        opened: Any = self.table.open()
        found = opened.scan().to_arrow() if self.options.table_format == "iceberg" else opened.to_pyarrow_table()
        return sorted(found.to_pylist(), key=lambda row: (row["key"], row["offset"]))

    def values(self) -> dict[bytes, list[bytes]]:
        found: dict[bytes, list[bytes]] = {}
        for row in self.rows():
            assert row["tags"] == ["a", str(row["offset"])], "nested columns follow their row"
            found.setdefault(row["key"], []).append(row["value"])
        return found


@pytest.fixture(params=["delta", "iceberg", "history"])
def merged(tmp_path: Path, request: pytest.FixtureRequest) -> Merged:
    return Merged(request.param, tmp_path)


@pytest.fixture
def iceberg(tmp_path: Path) -> Merged:
    return Merged("iceberg", tmp_path)


def _latest(merged: Merged) -> dict[bytes, bytes]:
    """Value of the current row of each key."""
    rows = [row for row in merged.rows() if row.get("is_current", True)]
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: row["value"] for row in rows}


def test_changes_replace_delete_and_add_rows(merged: Merged) -> None:
    assert merged.epoch(0, (0, b"a", b"1"), (1, b"b", b"1"), (2, b"a", b"2"), (3, b"c", b"1"))
    assert _latest(merged) == {b"a": b"2", b"b": b"1", b"c": b"1"}
    assert merged.epoch(1, (4, b"a", None), (5, b"b", b"2"), (6, b"d", b"1"))
    assert _latest(merged) == {b"b": b"2", b"c": b"1", b"d": b"1"}
    expected = {b"b": [b"2"], b"c": [b"1"], b"d": [b"1"]}
    if merged.options.history:
        expected = {b"a": [b"1", b"2"], b"b": [b"1", b"2"], b"c": [b"1"], b"d": [b"1"]}
    assert merged.values() == expected


def test_a_repeated_epoch_changes_nothing_also_after_a_restart(merged: Merged) -> None:
    merged.epoch(0, (0, b"a", b"1"))
    merged.epoch(1, (1, b"a", None), (2, b"b", b"1"))
    rows = merged.rows()
    merged.restart()
    assert not merged.epoch(1, (1, b"a", None), (2, b"b", b"1"))
    assert merged.rows() == rows
    with pytest.raises(StateError, match="an older copy of the checkpoint was restored"):
        merged.epoch(0, (0, b"a", b"1"))


def test_an_epoch_without_a_change_is_recorded(merged: Merged) -> None:
    merged.epoch(0, (0, b"a", b"1"))
    assert merged.epoch(1, (1, b"never there", None))
    merged.restart()
    assert merged.table.covered([SOURCE])[SOURCE].end == 2
    assert not merged.epoch(1, (1, b"never there", None))


def test_an_older_record_of_another_partition_does_not_replace_a_row(merged: Merged) -> None:
    merged.epoch(0, (5, b"a", b"new"), (6, b"b", b"old"))
    merged.epoch(1, (0, b"a", b"late"), (1, b"c", b"1"), partition=1, second=5 - 1)
    assert _latest(merged) == {b"a": b"new", b"b": b"old", b"c": b"1"}
    merged.epoch(2, (2, b"b", b"new"), partition=1, second=7)
    assert _latest(merged) == {b"a": b"new", b"b": b"new", b"c": b"1"}


def test_of_two_drivers_that_merge_the_same_epoch_one_wins(merged: Merged) -> None:
    merged.epoch(0, (0, b"a", b"1"))
    table, real = merged.table, merged.table.merge
    other = copy(merged)
    other.restart()

    def overtaken(*given: Any) -> bool:
        table.merge = real  # type: ignore[method-assign]
        assert other.epoch(1, (1, b"a", b"2"))
        return real(*given)

    table.merge = overtaken  # type: ignore[method-assign]
    assert not merged.epoch(1, (1, b"a", b"2"))
    assert merged.values()[b"a"] == ([b"1", b"2"] if merged.options.history else [b"2"])


def test_tables_with_other_keys_or_other_rows_are_refused(merged: Merged) -> None:
    merged.epoch(0, (0, b"a", b"1"))
    other = replace(merged.options, keys=("key", "value"))
    with pytest.raises(StateError, match="its keys are key, and keys is key, value"):
        table_of(other).prepare(merged.table.schema_of(merged.arrow([(1, b"a", b"1")], 0, None).schema))
    archive: Any = import_module("bascule.lake.tables").open_table(merged.options.table(), "")
    with pytest.raises(StateError, match=r"it has (the latest row|all versions) of each key, not every record"):
        archive.pinned([])


def test_only_files_with_replaced_rows_are_written_again(iceberg: Merged) -> None:
    for number in range(4):
        iceberg.epoch(number, (2 * number, b"k%d" % number, b"1"), (2 * number + 1, b"l%d" % number, b"1"))
    before = _files(iceberg)
    iceberg.epoch(4, (8, b"k2", b"2"))
    after = _files(iceberg)
    assert (len(before), len(before & after), len(after)) == (4, 3, 4)
    assert {row["key"]: row["value"] for row in iceberg.rows()}[b"l2"] == b"1", "the rest of the file"
    (snapshot,) = iceberg.table.open().snapshots()[-1:]
    assert snapshot.summary["bascule.epoch"] == "4"


def test_a_commit_that_is_refused_leaves_no_files(iceberg: Merged, tmp_path: Path) -> None:
    iceberg.epoch(0, (0, b"a", b"1"))
    table = cast("MergedIceberg", iceberg.table)
    handle = table.open()
    other = table.open().transaction()
    with other.update_snapshot().fast_append():
        pass
    other.commit_transaction()
    before = sorted(tmp_path.rglob("*.parquet"))
    rows = iceberg.arrow([(1, b"a", b"2")], 0, None)
    epochs: Any = import_module("bascule.lake.epochs")
    written = Epoch(Writer("q", "table"), 1, "run", "token", 1, {SOURCE: Written(1, 2, 1)})
    decision = epochs.decide(table.uri, table.snapshot(written)[0], written)
    assert not table.merge(handle, decision, written, rows)
    assert sorted(tmp_path.rglob("*.parquet")) == before


def _files(iceberg: Merged) -> set[str]:
    opened: Any = iceberg.table.open()
    return {task.file.file_path for task in opened.scan().plan_files()}
