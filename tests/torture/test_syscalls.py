"""The check of S12: hand-made runs with a failed sync."""

from __future__ import annotations

import errno

import pytest

from tests.torture.ledger import Entry, Kind
from tests.torture.rig_syscalls import Site, disobeyed, late_acks

SYNC = Site("create", "sync", 3, errno.EIO, for_good=False)
OTHERS = [
    Site("create", kind, 3, errno.EIO, for_good=False) for kind in ("open", "write", "rename", "truncate", "mkdir")
]
COMMITTER, OTHER = 1, 0


def entry(kind: Kind, *, run_id: int = 0, thread: int = 0) -> Entry:
    return Entry(kind, 0, 0, 0, run_id, 0, thread)


READY, ACKED, FAILED = entry(Kind.READY), entry(Kind.ACKED), entry(Kind.FAILED)
WENT_ON = entry(Kind.WENT_ON, thread=7)


def fault(who: int) -> Entry:
    return entry(Kind.FAULT, run_id=who, thread=7)


@pytest.mark.parametrize(
    ("entries", "is_fine"),
    [
        ([READY, ACKED, fault(COMMITTER), FAILED, WENT_ON], True),
        ([READY, fault(COMMITTER), ACKED, FAILED], False),
        ([READY, fault(OTHER), ACKED, FAILED], True),
        ([READY, fault(OTHER), FAILED, ACKED], False),
        ([READY, fault(OTHER), WENT_ON, FAILED], False),
        ([READY, fault(OTHER), entry(Kind.WENT_ON, thread=8), FAILED, WENT_ON], True),
        ([READY, fault(OTHER), ACKED], False),
        ([fault(OTHER), entry(Kind.RECOVERY_FAILED)], True),
    ],
)
def test_a_failed_sync_is_reported_first_and_ends_the_acks(entries: list[Entry], *, is_fine: bool) -> None:
    assert (disobeyed(SYNC, entries) is None) == is_fine


@pytest.mark.parametrize("site", OTHERS)
@pytest.mark.parametrize("who", [COMMITTER, OTHER])
def test_whatever_failed_nothing_is_acked_once_it_is_known(site: Site, who: int) -> None:
    assert disobeyed(site, [READY, fault(who), FAILED, ACKED]) == "1 acks after the directory had failed"
    assert disobeyed(site, [READY, fault(who), ACKED, FAILED, WENT_ON]) is None
    assert disobeyed(site, [READY, fault(who), ACKED, ACKED]) is None


def test_late_acks_are_counted() -> None:
    assert late_acks(SYNC, fault(COMMITTER), [ACKED, FAILED, ACKED]) == 2
    assert late_acks(SYNC, fault(OTHER), [ACKED, FAILED, ACKED]) == 1
