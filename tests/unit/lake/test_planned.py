"""What a table covers of planned ranges: holes at their ends, epochs without a record, tables that are idle."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from bascule.lake.options import TableFormat
from bascule.lake.planned import planned_ranges, planned_sources, with_planned
from bascule.lake.ranges import Covered, Source, Written, merge
from bascule.lake.tasks import TablePart

from tests.unit.lake.query import Query, batch, expected, options_of

FORMATS: tuple[TableFormat, ...] = ("delta", "iceberg", "parquet")
S, T = Source("s", 1, 0), Source("t", 1, 0)


def document(**nexts: int) -> str:
    """An offset of a source that began at offset 2 of each stream."""
    streams = {name: {"0": {"first": 2, "incarnation": 1, "next": end}} for name, end in nexts.items()}
    packing = {"maxPartitions": 0, "maxRecords": 0, "minPartitions": 0, "slots": 2}
    return json.dumps({"namespace": "default", "packing": packing, "streams": streams, "version": 1})


def plan(checkpoint: Path, epoch: int, *sources: str) -> None:
    """What Spark writes before it runs an epoch."""
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(epoch)).write_text("\n".join(["v1", '{"batchWatermarkMs":0}', *sources]))


def test_ranges_are_those_between_two_entries_of_the_checkpoint(tmp_path: Path) -> None:
    plan(tmp_path, 0, document(s=5))
    plan(tmp_path, 1, document(s=5, t=4))
    plan(tmp_path, 2, document(s=9, t=4))
    assert planned_ranges(str(tmp_path), 0) == {S: (2, 5)}
    assert planned_ranges(f"file://{tmp_path}", 1) == {T: (2, 4)}
    assert planned_ranges(str(tmp_path), 2) == {S: (5, 9)}


def test_the_partitions_of_a_query_are_those_of_an_entry_of_the_checkpoint(tmp_path: Path) -> None:
    plan(tmp_path, 0, document(s=5))
    plan(tmp_path, 1, document(s=5, t=4))
    assert planned_sources(str(tmp_path), 0) == {S}
    assert planned_sources(str(tmp_path), 1) == {S, T}
    assert planned_sources(str(tmp_path), 2) == planned_sources("s3://bucket/checkpoint", 1) == frozenset()


@pytest.mark.parametrize(
    "sources", [(), (document(s=5), document(t=5)), ('{"logOffset":3}',), ("-",), ("7",)],
    ids=["none", "two", "files", "no offset", "a number"],
)  # fmt: skip
def test_a_query_of_other_sources_has_no_planned_ranges(tmp_path: Path, sources: tuple[str, ...]) -> None:
    plan(tmp_path, 0, *sources)
    assert planned_ranges(str(tmp_path), 0) == {}


def test_a_checkpoint_that_is_elsewhere_has_no_planned_ranges(tmp_path: Path) -> None:
    plan(tmp_path, 1, document(s=5))
    assert planned_ranges(str(tmp_path), 1) == {}, "the entry before is missing"
    assert planned_ranges("s3://bucket/checkpoint", 1) == {}


def test_rows_outside_of_the_planned_range_are_not_taken_for_planned_ones() -> None:
    rows = {S: Written(3, 6, 3)}
    assert with_planned(rows, {S: (4, 9)}, None) == rows
    assert with_planned(rows, {S: (3, 9), T: (0, 2)}, frozenset(["s"])) == {S: Written(3, 6, 3, planned=(3, 9))}
    assert with_planned(rows, {T: (0, 2)}, None)[T] == Written(0, 2, 0, planned=(0, 2))


class Planned(Query):
    """A query that has all records of streams, and whose epochs have planned ranges."""

    def run(self, number: int, planned: dict[Source, tuple[int, int]], *batches: Any) -> bool:
        """One epoch."""
        token, parts = self.write([batches] if batches else [])
        return self.commit_planned(number, token, parts, planned)

    def commit_planned(
        self, number: int, token: str, parts: list[TablePart], planned: dict[Source, tuple[int, int]]
    ) -> bool:
        """What the driver does."""
        from bascule.lake.commit import commit_epoch  # noqa: PLC0415 - beside its use

        ranges = merge(each for part in parts for each in part.ranges)
        epoch = replace(self.described(number, token, parts), ranges=with_planned(ranges, planned, None))
        files = [file for part in parts for file in part.files]
        return commit_epoch(self.table, self.shape.table, epoch, files)

    def covered(self) -> tuple[int, int]:
        """Of the source `S`."""
        found = bascule.lake.coverage(self.options, [S])[S]
        return found.first, found.end


@pytest.fixture(params=FORMATS)
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Planned:
    return Planned(replace(options_of(request.param, tmp_path), complete=True))


def test_holes_after_idle_epochs_are_covered(query: Planned) -> None:
    """Epochs 1 and 2 were of other tables; compaction removed 5 and 9."""
    query.run(0, {S: (0, 5)}, batch(1, 5))
    query.run(3, {S: (5, 10)}, batch(6, 9))
    query.restart()
    query.run(7, {S: (10, 12)}, batch(11, 12))
    assert query.covered() == (0, 12)
    assert query.rows() == expected((0, 1, 5), (0, 6, 9), (0, 11, 12))


def test_an_epoch_without_any_record_extends_what_is_covered(query: Planned) -> None:
    """As one with only aborted transactions."""
    query.run(0, {S: (0, 5)}, batch(0, 5))
    assert query.run(4, {S: (5, 8)})
    assert query.covered() == (0, 8)
    query.restart()
    assert not query.run(4, {S: (5, 8)}), "it is recognised when it is repeated"
    query.run(9, {S: (8, 10)}, batch(8, 10))
    assert query.covered() == (0, 10)
    assert query.rows() == expected((0, 0, 5), (0, 8, 10))


def test_a_table_that_begins_with_a_hole_covers_it(query: Planned) -> None:
    assert query.run(0, {S: (0, 5)})
    query.run(1, {S: (5, 7)}, batch(5, 7))
    assert query.covered() == (0, 7)


def test_epochs_that_a_restored_table_lacks_are_not_covered(query: Planned) -> None:
    query.run(0, {S: (0, 5)}, batch(0, 5))
    query.run(3, {S: (8, 10)}, batch(9, 10))
    assert query.covered() == (8, 10)


def test_a_range_without_records_that_another_query_has_archived_changes_nothing(query: Planned) -> None:
    query.run(0, {S: (0, 5)}, batch(0, 5))
    other = Planned(query.options, "other")
    assert other.run(0, {S: (2, 4), T: (0, 2)}, batch(0, 2, stream="t"))
    found = bascule.lake.coverage(query.options, [S, T])
    assert (found[S].first, found[S].end) == (0, 5)
    assert found[T] == Covered(0, 2, found[T].writer)


@pytest.mark.parametrize("is_planned", [True, False], ids=["with a checkpoint", "without one"])
def test_records_that_an_earlier_run_filtered_out_are_not_covered(query: Planned, *, is_planned: bool) -> None:
    """A run with a filter left out [3, 6), which lies behind the last row of its epoch; the next run has no filter."""
    whole, query.options = query.options, replace(query.options, complete=False)
    query.run(0, {}, batch(0, 3))
    query.restart()
    query.options = whole
    query.run(1, {S: (6, 9)} if is_planned else {}, batch(6, 8))
    assert query.covered() == (6, 9 if is_planned else 8)
    query.run(2, {S: (9, 12)} if is_planned else {}, batch(10, 12))
    assert query.covered() == (6, 12), "the epoch before was complete"
