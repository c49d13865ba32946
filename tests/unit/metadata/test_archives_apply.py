"""What archives have, in the replicated state."""

from dataclasses import replace
from typing import Any

import pytest
from bascule.metadata import (
    Applied,
    ArchivedEnd,
    CreateStream,
    EditStream,
    Partition,
    Placement,
    PurgeStream,
    RegisterBroker,
    ReportArchived,
    State,
    StreamKey,
    StreamSettings,
    VoidArchived,
    apply,
    decode_command,
    decode_snapshot,
    encode_command,
    encode_snapshot,
    initial_state,
)
from bascule.metadata.rejection import Rejection, RejectionCode

KEY = StreamKey("default", "orders")


def state() -> State:
    placements = (Placement(("a",), "a"), Placement(("a",), "a"))
    command = CreateStream("default", "orders", "orders", "", 1, StreamSettings(), placements)
    known, _ = apply(initial_state(), 1, RegisterBroker("a", "localhost", 1, 1))
    made, result = apply(known, 2, command)
    assert isinstance(result, Applied), result
    return made


def partition(at: State, number: int = 0) -> Partition:
    return at.streams[KEY].partitions[number]


def report(at: State, end: int, archive: str = "lake", **more: Any) -> ReportArchived:
    stream = at.streams[KEY]
    ends = (ArchivedEnd(0, more.pop("incarnation", stream.partitions[0].incarnation), end),)
    return ReportArchived("default", "orders", stream.incarnation, archive, ends, **more)


def applied(at: State, command: Any) -> State:
    after, result = apply(at, at.index + 1, decode_command(encode_command(command)))
    assert isinstance(result, Applied), result
    return decode_snapshot(encode_snapshot(after))


def refused(at: State, command: Any) -> Rejection:
    after, result = apply(at, at.index + 1, command)
    assert isinstance(result, Rejection), result
    assert after.streams == at.streams
    return result


def test_what_is_archived_follows_the_reports_of_its_archive_and_is_kept_by_snapshots() -> None:
    at = applied(state(), report(state(), 100))
    assert (partition(at).archived_to, partition(at).archive) == (100, "lake")
    assert partition(at, 1).archived_to == 0
    assert partition(applied(at, report(at, 50))).archived_to == 50, "the table was lost, and is made again"
    assert partition(applied(at, report(at, 150))).archived_to == 150


def test_another_archive_is_refused_unless_it_takes_over_with_its_own_offset() -> None:
    at = applied(state(), report(state(), 100))
    rejection = refused(at, report(at, 200, "other"))
    assert rejection.code is RejectionCode.ARCHIVE_CONFLICT
    assert rejection.message == (
        "partition 0 of stream orders is archived by lake, which has it up to offset 100: let one archive report, or "
        "take over (reportTakeOver)"
    )
    taken = applied(at, report(at, 40, "other", take_over=True))
    assert (partition(taken).archived_to, partition(taken).archive) == (40, "other")
    again = applied(taken, report(taken, 30, "other", take_over=True))
    assert partition(again).archived_to == 30


def test_a_report_for_another_creation_of_the_partition_is_refused() -> None:
    at = state()
    assert refused(at, report(at, 1, incarnation=7)).code is RejectionCode.INCARNATION_CHANGED
    gone = replace(report(at, 1), incarnation=99)
    assert refused(at, gone).code is RejectionCode.STREAM_NOT_FOUND
    assert refused(at, report(at, -1)).code is RejectionCode.INVALID
    assert refused(at, report(at, 1, "x" * 1025)).code is RejectionCode.INVALID


def test_a_purge_forgets_it() -> None:
    at = applied(state(), report(state(), 100))
    purged = applied(at, PurgeStream("default", "orders", at.streams[KEY].incarnation))
    assert (partition(purged).archived_to, partition(purged).archive) == (0, "")


def test_a_void_report_is_forgotten_unless_a_newer_one_came() -> None:
    at = applied(state(), report(state(), 100))
    command = VoidArchived("default", "orders", at.streams[KEY].incarnation, 0, partition(at).incarnation, 100)
    void = applied(at, command)
    assert (partition(void).archived_to, partition(void).archive) == (0, "lake")
    assert partition(applied(void, report(void, 60))).archived_to == 60
    newer = applied(at, report(at, 120))
    assert partition(applied(newer, command)).archived_to == 120


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            StreamSettings(retention_after_archive=True),
            "retention_after_archive needs retention_after_archive_max_bytes",
        ),
        (
            StreamSettings(retention_after_archive=True, retention_after_archive_max_bytes=0),
            "retention_after_archive_max_bytes is 0",
        ),
    ],
)
def test_a_wait_without_an_end_is_refused(settings: StreamSettings, text: str) -> None:
    at = state()
    rejection = refused(at, EditStream("default", "orders", at.streams[KEY].incarnation, settings))
    assert text in rejection.message
    good = replace(settings, retention_after_archive_max_bytes=1)
    applied(at, EditStream("default", "orders", at.streams[KEY].incarnation, good))
