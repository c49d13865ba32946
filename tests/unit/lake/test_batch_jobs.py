"""A batch job has no checkpoint: its rows are recognised by the range of records that a run reads."""

from pathlib import Path

import pytest
from bascule.errors import StateError, UsageError
from bascule.lake.options import FORMATS, ArchiveOptions
from bascule.lake.writers import parse_epoch

from tests.unit.lake.query import Query, batch, expected, options_of


@pytest.fixture(params=FORMATS)
def options(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveOptions:
    return options_of(request.param, tmp_path)


def run(options: ArchiveOptions, range_id: str, *, has_offsets: bool = True) -> Query:
    """A run of the job over a range."""
    return Query(options, "batch-job", range_id=range_id, has_offsets=has_offsets)


def test_a_run_over_the_same_records_is_recognised(options: ArchiveOptions) -> None:
    assert run(options, "0-3").epoch(0, [batch(0, 3)])
    assert not run(options, "0-3").epoch(0, [batch(0, 3)])
    assert run(options, "0-3").query_id == "batch-job"
    again = run(options, "3-5")
    assert again.epoch(0, [batch(3, 5)])
    assert not run(options, "0-3").epoch(0, [batch(0, 3)]), "also after a run over other records"
    assert again.rows() == expected((0, 0, 5))


def test_a_run_whose_records_are_partly_there_is_refused(options: ArchiveOptions) -> None:
    first = run(options, "0-3")
    first.epoch(0, [batch(0, 3), batch(0, 2, 1)])
    with pytest.raises(StateError, match="this run would append them again from offset 0") as refused:
        run(options, "0-5").epoch(0, [batch(0, 5), batch(0, 2, 1)])
    assert 'Set startingOffsets {"s": {"0": 3, "1": 2}}' in str(refused.value)
    assert "checkpoint" not in str(refused.value), "a batch job has none"
    assert first.rows() == expected((0, 0, 3), (1, 0, 2))


def test_a_run_that_died_between_two_tables_is_completed(tmp_path: Path) -> None:
    one, two = (ArchiveOptions(str(tmp_path / name), target=name) for name in ("one", "two"))
    run(one, "0-3").epoch(0, [batch(0, 3)])
    assert [run(each, "0-3").epoch(0, [batch(0, 3)]) for each in (one, two)] == [False, True]
    assert run(one, "0-3").rows() == run(two, "0-3").rows() == expected((0, 0, 3))


def test_other_rows_of_the_same_records_are_refused(options: ArchiveOptions) -> None:
    run(options, "0-3").epoch(0, [batch(0, 3)])
    with pytest.raises(StateError, match="this run has 2 rows, not 3: the query gives other rows each time"):
        run(options, "0-3").epoch(0, [batch(0, 2)])


def test_rows_without_offsets_are_appended_once_for_each_range(options: ArchiveOptions) -> None:
    assert run(options, "a", has_offsets=False).epoch(0, [batch(0, 1)])
    assert run(options, "b", has_offsets=False).epoch(0, [batch(1, 2)])
    last = run(options, "a", has_offsets=False)
    assert not last.epoch(0, [batch(0, 1)])
    assert last.rows() == expected((0, 0, 2))
    other = Query(options, "batch-other", range_id="a", has_offsets=False)
    with pytest.raises(StateError, match="was written by another query under the target name"):
        other.epoch(0, [batch(0, 1)])


def test_a_range_has_one_epoch() -> None:
    assert parse_epoch({"queryId": "batch-job", "epoch": "0", "rangeId": "a"}) == ("batch-job", 0, "a")
    assert parse_epoch({"queryId": "q", "epoch": "7"}) == ("q", 7, "")
    with pytest.raises(UsageError, match="epoch is 7: with rangeId it is 0"):
        parse_epoch({"queryId": "batch-job", "epoch": "7", "rangeId": "a"})
