"""Which offsets a table is known to cover."""

import pytest
from bascule.lake.ranges import Covered, Source, Written, extend, merge, starting_offsets

S, T = Source("s", 1, 0), Source("t", 1, 3)
ME, OTHER = 1, 2


@pytest.mark.parametrize(
    ("before", "written", "complete", "after"),
    [
        (None, Written(5, 8, 3), False, Covered(5, 8, ME)),
        (None, Written(5, 8, 2), False, Covered(8, 8, ME)),
        (None, Written(5, 8, 2), True, Covered(5, 8, ME)),
        (Covered(0, 5, ME), Written(5, 8, 3), False, Covered(0, 8, ME)),
        (Covered(0, 5, OTHER), Written(5, 8, 3), False, Covered(0, 8, ME)),
        (Covered(0, 5, ME), Written(6, 8, 2), False, Covered(6, 8, ME)),
        (Covered(0, 5, ME), Written(6, 8, 2), True, Covered(0, 8, ME)),
        (Covered(0, 5, OTHER), Written(6, 8, 2), True, Covered(6, 8, ME)),
        (Covered(0, 5, ME), Written(5, 8, 2), False, Covered(8, 8, ME)),
        (Covered(0, 5, ME), Written(2, 3, 1), False, Covered(5, 5, ME)),
        (Covered(0, 5, ME), Written(5, 8, 3, distinct=False), False, Covered(8, 8, ME)),
        (None, Written(5, 8, 2, planned=(3, 9)), True, Covered(3, 9, ME)),
        (Covered(0, 5, OTHER), Written(6, 8, 1, planned=(5, 10)), True, Covered(0, 10, ME)),
        (Covered(0, 5, OTHER), Written(7, 8, 1, planned=(6, 10)), True, Covered(6, 10, ME)),
        (Covered(0, 5, ME), Written(5, 10, 0, planned=(5, 10)), True, Covered(0, 10, ME)),
        (Covered(0, 5, ME), Written(6, 8, 2, planned=(5, 10)), False, Covered(6, 8, ME)),
    ],
    ids=[
        "dense", "with holes", "holes that do not exist", "continued", "continued from another query", "after a hole",
        "after one that does not exist", "after one that another query left", "continued with holes", "earlier rows",
        "repeated rows", "planned", "planned after another query", "planned behind a gap", "planned without a record",
        "planned with a filter",
    ],
)  # fmt: skip
def test_the_covered_range_has_no_record_missing(
    before: Covered | None, written: Written, *, complete: bool, after: Covered
) -> None:
    assert extend(before, written, ME, complete=complete) == after


def test_a_hole_after_a_missing_epoch_is_not_covered() -> None:
    after = extend(Covered(0, 5, ME), Written(6, 8, 2), ME, complete=True, follows=False)
    assert after == Covered(6, 8, ME)


def test_a_hole_after_an_idle_epoch_is_covered_if_it_was_planned() -> None:
    written = Written(6, 8, 2, planned=(5, 9))
    assert extend(Covered(0, 5, ME), written, ME, complete=True, follows=False) == Covered(0, 9, ME)
    behind = Written(8, 9, 1, planned=(7, 9))
    assert extend(Covered(0, 5, ME), behind, ME, complete=True, follows=False) == Covered(7, 9, ME), "[5, 7) is unknown"


def test_ranges_of_tasks_are_merged_by_source() -> None:
    merged = merge([(S, Written(4, 8, 4)), (T, Written(0, 1, 1)), (S, Written(0, 4, 4))])
    assert merged == {S: Written(0, 8, 8), T: Written(0, 1, 1)}
    assert merged[S].is_dense


def test_ranges_that_overlap_are_not_dense() -> None:
    assert not merge([(S, Written(0, 3, 3)), (S, Written(2, 4, 1))])[S].is_dense


def test_the_remedy_names_every_partition() -> None:
    covered = {T: Covered(0, 7, ME), S: Covered(0, 5, ME)}
    assert starting_offsets(covered) == {"s": {"0": 5}, "t": {"3": 7}}
