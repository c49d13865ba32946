import json
from itertools import permutations

import pytest
from bascule.errors import StateError
from bascule.spark.offsets import Mark, Predecessor, from_document, ranges, to_document
from bascule.spark.planning import Packing, Range

PACKING = Packing(slots=2)
MARKS = {
    ("b", 0): Mark(9, 0, 3),
    ("a", 10): Mark(7, 5, 6, Predecessor(4_294_967_295, 1_764_032_400_000_000_001)),
    ("a", 2): Mark(6, 0, 118, Predecessor(17)),
}
GOLDEN = (
    '{"namespace": "default", "packing": {"maxPartitions": 0, "maxRecords": 0, "minPartitions": 0, "slots": 2}, '
    '"streams": {"a": {"10": {"first": 5, "incarnation": 7, "link": 4294967295, "next": 6, '
    '"timestamp_ns": 1764032400000000001}, '
    '"2": {"first": 0, "incarnation": 6, "link": 17, "next": 118, "timestamp_ns": -1}}, '
    '"b": {"0": {"first": 0, "incarnation": 9, "link": -1, "next": 3, "timestamp_ns": -1}}}, "version": 2}'
)
GOLDEN_1 = (
    '{"namespace": "default", "packing": {"maxPartitions": 0, "maxRecords": 0, "minPartitions": 0, "slots": 2}, '
    '"streams": {"a": {"10": {"first": 5, "incarnation": 7, "next": 6}, '
    '"2": {"first": 0, "incarnation": 6, "next": 118}}, '
    '"b": {"0": {"first": 0, "incarnation": 9, "next": 3}}}, "version": 1}'
)


def test_the_text_is_the_golden_one_in_any_order_of_insertion() -> None:
    for items in permutations(MARKS.items()):
        assert json.dumps(to_document("default", dict(items), PACKING)) == GOLDEN
    assert json.dumps(json.loads(GOLDEN), sort_keys=True) == GOLDEN


def test_documents_are_read_as_they_were_written() -> None:
    assert from_document(json.loads(GOLDEN), "default") == (MARKS, PACKING)


def test_documents_of_version_1_are_read_with_unknown_predecessors() -> None:
    marks, packing = from_document(json.loads(GOLDEN_1), "default")
    assert packing == PACKING
    assert marks == {("b", 0): Mark(9, 0, 3), ("a", 10): Mark(7, 5, 6), ("a", 2): Mark(6, 0, 118)}


def test_only_known_values_of_both_records_contradict() -> None:
    known = Predecessor(5, 100)
    assert not known.contradicts(Predecessor())
    assert not known.contradicts(Predecessor(5))
    assert known.contradicts(Predecessor(6))
    assert known.contradicts(Predecessor(5, 101))


def test_a_partition_that_appeared_is_read_from_where_it_was_first_seen() -> None:
    start = {("a", 0): Mark(1, 0, 10)}
    end = {("a", 0): Mark(1, 0, 10), ("a", 1): Mark(2, 4, 9), ("a", 2): Mark(3, 7, 7)}
    assert ranges(start, end) == [Range("a", 1, 4, 9, 2)]


def test_a_stream_that_was_created_again_is_read_from_where_it_was_first_seen() -> None:
    assert ranges({("a", 0): Mark(1, 0, 10)}, {("a", 0): Mark(5, 3, 12)}) == [Range("a", 0, 3, 12, 5)]


def test_a_range_carries_the_history_that_its_end_was_planned_for() -> None:
    end = {("a", 0): Mark(1, 0, 12, Predecessor(77, 1)), ("b", 0): Mark(2, 0, 5)}
    assert [each.history for each in ranges({}, end)] == [(12, 77), None]


@pytest.mark.parametrize(
    "document",
    [
        {"version": 3, "namespace": "default"},
        {**json.loads(GOLDEN_1), "version": 2},
        {"version": 1, "namespace": "other"},
        {"version": 1, "namespace": "default", "streams": []},
        {"version": 1, "namespace": "default", "streams": {"a": {"x": {}}}, "packing": {}},
    ],
)
def test_foreign_documents_are_rejected(document: dict[str, object]) -> None:
    with pytest.raises(StateError):
        from_document(document, "default")
