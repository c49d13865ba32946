"""The check of the Liftbridge rig: a hand-made bad history for each verdict, and a good one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.torture.liftbridge_ledger import Entry, Judge, Kind, Ledger

if TYPE_CHECKING:
    from pathlib import Path

LOG = "log:s#0/0"
CURSOR = "register:cursor s/0/c"
GROUP = "register:group g"
STREAM = "register:stream t"


def declared(policy: str = "keep", least: int = 0) -> Entry:
    return Entry(Kind.DECLARED, LOG, {"policy": policy, "least": least})


def sent(*values: str, key: str = "") -> list[Entry]:
    return [Entry(Kind.SENT, LOG, {"value": value, "key": key}) for value in values]


def shown(kind: Kind, offset: int, value: str) -> Entry:
    return Entry(kind, LOG, {"value": value, "offset": offset})


def acked(*values: str, first: int = 0) -> list[Entry]:
    return [shown(Kind.ACKED, first + index, value) for index, value in enumerate(values)]


def found(*values: str, first: int = 0, key: str = "") -> Entry:
    return Entry(Kind.FOUND, LOG, {"records": [[first + index, key, value] for index, value in enumerate(values)]})


def entry(kind: Kind, value: Any, about: str = CURSOR) -> Entry:
    return Entry(kind, about, {"value": value})


def judged(*entries: Entry | list[Entry]) -> list[str]:
    """The violations in this history."""
    judge = Judge()
    for entry in entries:
        judge.follow(entry if isinstance(entry, list) else [entry])
    assert judge.verdict.violations == len(judge.verdict.details)
    return judge.verdict.details


THREE = [declared(), *sent("p:0", "p:1", "p:2"), *acked("p:0", "p:1")]


def test_what_was_not_answered_is_there_or_not() -> None:
    assert not judged(THREE, found("p:0", "p:1"))
    assert not judged(THREE, found("p:0", "p:1", "p:2"), found("p:0", "p:1", "p:2"))


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ([found("p:0")], "p:1 at 1 is lost, with 0 others"),
        ([found()], "p:0 at 0 is lost, with 1 others"),
        ([found("p:0", "p:1", "p:2"), found("p:0", "p:1")], "p:2 at 2 is lost"),
        ([found("p:0", "p:1"), found("p:0", "p:1", "p:2")], "p:2 at 2 was refused, or was not there before"),
        ([found("p:0", "p:1", "x:0")], "x:0 at 2 was sent by nobody"),
        ([found("p:1", "p:0")], "p:1 is at 1 and at 0"),
        ([found("p:0", "p:1", "p:1")], "p:1 is at 1 and at 2"),
        ([found("p:0", "p:2")], "offset 1 was p:1 and is p:2"),
        ([shown(Kind.ACKED, 1, "p:2")], "offset 1 was p:1 and is p:2"),
        ([shown(Kind.SEEN, 2, "p:2"), found("p:0", "p:1")], "p:2 at 2 is lost"),
        ([found("p:0", "p:1", "p:2", key="other")], "has key 'other', sent was ''"),
        ([found("p:0", "p:1", first=4)], "p:0 is at 0 and at 4"),
    ],
)
def test_a_log_that_lost_moved_doubled_or_made_up_records(bad: list[Entry], text: str) -> None:
    assert any(text in detail for detail in judged(THREE, bad))


def test_a_refused_record_must_not_be_there() -> None:
    refused = [declared(), *sent("p:0"), Entry(Kind.REFUSED, LOG, {"value": "p:0"})]
    assert not judged(refused, found())
    assert any("was refused" in detail for detail in judged(refused, found("p:0")))


def test_a_gap_and_a_wrong_order_are_seen() -> None:
    some = [declared(), *sent("p:0", "p:1", "q:0")]
    gap = Entry(Kind.FOUND, LOG, {"records": [[0, "", "p:0"], [2, "", "p:1"]]})
    assert any("there is a gap" in detail for detail in judged(some, gap))
    assert any("p:0 comes behind p:1" in detail for detail in judged(some, found("p:1", "p:0")))
    assert not judged(some, found("p:0", "q:0", "p:1"))


def test_retention_takes_from_the_start_and_leaves_what_it_must() -> None:
    retained = [declared("retain", 2), *sent("p:0", "p:1", "p:2"), *acked("p:0", "p:1", "p:2")]
    assert not judged(retained, found("p:1", "p:2", first=1))
    assert any("retention left 1 records" in detail for detail in judged(retained, found("p:2", first=2)))
    assert any("p:2 at 2 is lost" in detail for detail in judged(retained, found("p:0", "p:1")))
    assert any("retention left 0 records" in detail for detail in judged(retained, found()))


def test_compaction_leaves_the_latest_of_each_key() -> None:
    keyed = [declared("compact"), *sent("p:0", "p:2", key="a"), *sent("p:1", key="b"), *acked("p:0", "p:1", "p:2")]
    whole = [[0, "a", "p:0"], [1, "b", "p:1"], [2, "a", "p:2"]]

    def after(*places: int) -> list[str]:
        return judged(keyed, Entry(Kind.FOUND, LOG, {"records": [whole[place] for place in places]}))

    assert not after(0, 1, 2)
    assert not after(1, 2)
    assert any("p:1 at 1 is lost" in detail for detail in after(2))
    assert any("p:2 at 2 is lost" in detail for detail in after(0, 1))


def test_what_policies_removed_is_counted() -> None:
    judge = Judge()
    judge.follow([declared("retain", 1), *sent("p:0", "p:1"), *acked("p:0", "p:1"), found("p:1", first=1)])
    assert (judge.verdict.removed, judge.verdict.acked) == ({"retain": 1}, {"record": 2})


def test_a_register_has_the_last_acked_value() -> None:
    start = [entry(Kind.DECLARED, -1), entry(Kind.SENT, 5), entry(Kind.ACKED, 5), entry(Kind.SENT, 9)]
    for value in (5, 9):
        assert not judged(start, entry(Kind.FOUND, value), entry(Kind.FOUND, value))
    for value in (-1, 7):
        assert judged(start, entry(Kind.FOUND, value)) == [f"{CURSOR}: is {value}, must be 5 or 9"]
    assert judged(start, entry(Kind.FOUND, 5), entry(Kind.FOUND, 9)), "a missing value does not appear later"
    assert judged(start, entry(Kind.FOUND, 9), entry(Kind.FOUND, 5)), "a found value stays"
    assert judged(start, entry(Kind.REFUSED, 9), entry(Kind.FOUND, 9)), "a rejected value is not stored"
    assert judged([*start, entry(Kind.ACKED, 9)], entry(Kind.FOUND, 5)), "an acked change is lost"


def test_a_group_keeps_members_epoch_and_assignments() -> None:
    one = {"members": ["a"], "epoch": 0}
    shape = {**one, "partitions": 2, "assignments": {"a": [0, 1]}}
    start = [
        entry(Kind.DECLARED, {"members": []}, GROUP),
        entry(Kind.SENT, {"members": ["a"]}, GROUP),
        entry(Kind.ACKED, one, GROUP),
    ]
    assert not judged(start, entry(Kind.FOUND, shape, GROUP), entry(Kind.FOUND, shape, GROUP))
    for other in ({"members": []}, {**shape, "epoch": 7}, {**shape, "members": ["a", "b"]}):
        assert judged(start, entry(Kind.FOUND, other, GROUP)), f"{other} cannot be"
    for wrong in ({"a": [0]}, {"a": [0, 1], "b": [1]}, {}):
        (detail,) = judged(start, entry(Kind.FOUND, {**shape, "assignments": wrong}, GROUP))
        assert "2 partitions are read as" in detail
    moved = {**shape, "assignments": {"a": [0]}}
    assert judged(start, entry(Kind.FOUND, shape, GROUP), entry(Kind.FOUND, moved, GROUP)), "under the same epoch"


def test_a_deleted_stream_stays_deleted() -> None:
    there = {"partitions": 2, "paused": [], "readonly": []}
    start = [
        entry(Kind.DECLARED, None, STREAM),
        entry(Kind.SENT, there, STREAM),
        entry(Kind.ACKED, there, STREAM),
        entry(Kind.SENT, None, STREAM),
        entry(Kind.ACKED, None, STREAM),
    ]
    assert not judged(start, entry(Kind.FOUND, None, STREAM))
    assert judged(start, entry(Kind.FOUND, there, STREAM))
    assert judged(start[:3], entry(Kind.FOUND, {**there, "paused": [1]}, STREAM)), "a flag that nobody set"


def test_an_answer_that_must_not_be_given_counts() -> None:
    assert judged(Entry(Kind.TROUBLE, LOG, {"text": "acked while read-only"})) == [f"{LOG}: acked while read-only"]


def test_the_ledger_gives_what_was_noted_since_the_last_time(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger") as ledger:
        ledger.note(Kind.SENT, LOG, value="p:0", key="")
        assert ledger.take() == sent("p:0")
        ledger.note(Kind.ACKED, LOG, value="p:0", offset=0)
        assert ledger.take() == acked("p:0")
        assert not ledger.take()
    assert len((tmp_path / "ledger").read_text().splitlines()) == 2
