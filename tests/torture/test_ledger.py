"""The check of recoveries: a hand-made bad history for each verdict, and a good one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.torture.ledger import ENTRY, Entry, Judge, Kind, Verdict, before_cut, read

if TYPE_CHECKING:
    from pathlib import Path


def entry(kind: Kind, offset: int = 0, records: int = 0, run_id: int = 0, counter: int = 0) -> Entry:
    return Entry(kind, 0, offset, records, run_id, counter, 0)


def sent(*counters: int, run_id: int = 1, first: int = 0) -> list[Entry]:
    """Consecutive batches of 2 records."""
    return [entry(Kind.INTENT, first + 2 * i, 2, run_id, counter) for i, counter in enumerate(counters)]


def recovery(*batches: Entry, log_start: int = 0, damaged: int = 0) -> list[Entry]:
    found = [batch._replace(kind=Kind.FOUND, extra=batch.extra or batch.records) for batch in batches]
    end = found[-1].batch.end if found else log_start
    return [entry(Kind.RECOVERED, log_start, damaged, counter=end), *found, entry(Kind.LISTED), entry(Kind.READY)]


def judged(*lives: list[Entry], retains: bool = True) -> tuple[int, int, int]:
    """Lost, wrong and resurfaced batches after these runs."""
    verdict = Verdict()
    judge = Judge(verdict, "by hand", retains=retains)
    for life in lives:
        judge.follow(life)
    return verdict.lost, verdict.wrong, verdict.resurfaced


FIRST = sent(1, 2, 3)
ACKED = entry(Kind.ACKED, 4)


def test_a_tail_that_was_not_acked_may_be_there_or_not() -> None:
    for kept in (2, 3):
        assert judged([*recovery(), *FIRST, ACKED], recovery(*FIRST[:kept])) == (0, 0, 0)


def test_an_acked_batch_that_is_not_found_is_lost() -> None:
    assert judged([*recovery(), *FIRST, ACKED], recovery(FIRST[0])) == (2, 0, 0)


def test_what_one_recovery_found_must_be_found_by_the_next() -> None:
    assert judged([*recovery(), *FIRST], recovery(*FIRST), recovery(*FIRST[:2])) == (2, 0, 0)
    assert judged([*recovery(), *FIRST], recovery(*FIRST), recovery(*FIRST)) == (0, 0, 0)


def test_a_start_that_moved_without_retention_is_a_loss() -> None:
    lives = [*recovery(), *FIRST, ACKED], recovery(*FIRST[1:], log_start=2)
    assert judged(*lives) == (0, 0, 0)
    assert judged(*lives, retains=False) == (2, 0, 0)
    assert judged([*recovery(), *FIRST, ACKED], recovery(log_start=4), retains=False) == (4, 0, 0)
    compacting = [*recovery(), *FIRST, ACKED, entry(Kind.COMPACTING)]
    assert judged(compacting, recovery(*FIRST[1:], log_start=2), retains=False) == (0, 0, 0)


def test_a_batch_that_comes_back_is_resurfaced() -> None:
    second = sent(1, run_id=2, first=2)
    lives = [[*recovery(), *FIRST], [*recovery(FIRST[0]), *second]]
    assert judged(*lives, recovery(FIRST[0], *second)) == (0, 0, 0)
    assert judged(*lives, recovery(FIRST[0], *second, FIRST[2])) == (0, 0, 1)


def test_a_batch_that_nobody_sent_there_is_wrong() -> None:
    assert judged([*recovery(), *FIRST], recovery(FIRST[0], *sent(9, first=2))) == (0, 1, 0)
    assert judged([*recovery(), *FIRST], recovery(FIRST[0], FIRST[2])) == (0, 1, 0), "a hole"


def test_a_refused_batch_must_not_be_seen() -> None:
    refused = [*FIRST, FIRST[2]._replace(kind=Kind.REFUSED)]
    assert judged([*recovery(), *refused], recovery(*FIRST[:2])) == (0, 0, 0)
    assert judged([*recovery(), *refused], recovery(*FIRST)) == (0, 1, 0)
    assert judged([*recovery(), *refused, FIRST[2]], recovery(*FIRST)) == (0, 0, 0), "sent again"


def test_retention_takes_from_the_start_only_what_was_promised() -> None:
    life = [*recovery(), *FIRST, ACKED]
    assert judged(life, recovery(FIRST[1], log_start=2)) == (0, 0, 0)
    assert judged(life, recovery(log_start=6)) == (0, 1, 0), "more than was ever durable"
    assert judged([*life, entry(Kind.PERHAPS_ACKED, 6)], recovery(log_start=6)) == (0, 0, 0)


def test_damage_after_a_power_cut_is_wrong() -> None:
    assert judged([*recovery(), *FIRST], recovery(*FIRST, damaged=1)) == (0, 1, 0)
    unreadable = [*recovery(*FIRST)[:-2], entry(Kind.WRONG, 4), entry(Kind.LISTED)]
    assert judged([*recovery(), *FIRST], unreadable) == (0, 1, 0)


def test_a_log_that_is_not_recovered_is_lost_unless_its_calls_were_made_to_fail() -> None:
    failed = [entry(Kind.RECOVERY_FAILED)]
    assert judged([*recovery(), *FIRST], failed) == (1, 0, 0)
    verdict = Verdict()
    judge = Judge(verdict, "by hand")
    assert judge.follow([*recovery(), *FIRST])
    assert not judge.follow(failed, faulted=True)
    assert verdict.clean


def test_a_deleted_log_is_whole_or_gone_and_does_not_come_back() -> None:
    deleting = [*recovery(), *FIRST, ACKED, entry(Kind.DELETING)]
    again = sent(7, run_id=2)
    assert judged(deleting, recovery(*FIRST)) == (0, 0, 0)
    assert judged(deleting, recovery()) == (0, 0, 0)
    assert judged(deleting, recovery(FIRST[0])) == (2, 0, 0)
    deleted = [*deleting, entry(Kind.DELETED)]
    assert judged(deleted, [*recovery(), *again], recovery(*again)) == (0, 0, 0)
    assert judged(deleted, recovery(*FIRST)) == (0, 0, 1)


def test_of_a_ledger_only_what_was_seen_before_the_cut_counts(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    seen = [*recovery(), *FIRST, ACKED]
    during = [entry(Kind.ACKED, 6), *sent(4, first=6), entry(Kind.WRONG), entry(Kind.UNREAD)]
    after = [entry(Kind.ACKED, 8), *sent(5, first=8)]
    path.write_bytes(b"".join(ENTRY.pack(*one) for one in [*seen, *during, *after]) + b"half an entry")
    assert read(path) == [*seen, *during, *after]
    started, ended = ENTRY.size * len(seen), ENTRY.size * len([*seen, *during])
    assert before_cut(path, started, started) == seen
    assert before_cut(path, started, ended) == [*seen, entry(Kind.PERHAPS_ACKED, 6), during[1]]
    assert before_cut(path, 0, ended) is None, "a recovery that ended during the cut"


def test_the_beginning_of_a_list_is_not_a_recovery(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    whole = [*recovery(*FIRST), *sent(4, run_id=2, first=6)]
    path.write_bytes(b"".join(ENTRY.pack(*one) for one in whole))
    listed = whole.index(entry(Kind.LISTED)) + 1
    for seen in range(1, listed):
        assert before_cut(path, ENTRY.size * seen, ENTRY.size * len(whole)) is None, f"cut after {seen} entries"
        assert judged([*recovery(), *FIRST, ACKED], whole[:seen], recovery(*FIRST)) == (0, 0, 0), "killed there"
    assert before_cut(path, ENTRY.size * listed, ENTRY.size * len(whole)) == [*whole[:listed], whole[-1]]
    assert judged([*recovery(), *FIRST, ACKED], recovery(FIRST[0])[:-1]) == (2, 0, 0), (
        "a complete list that is too short"
    )


def test_compaction_may_take_what_a_later_batch_supersedes_and_nothing_else() -> None:
    # 2 and 34 have the same key, 4 has another, 5 has none.
    batches = sent(2, 4, 5, 34)
    life = [*recovery(), *batches, entry(Kind.ACKED, 8), entry(Kind.COMPACTING)]
    assert judged(life, recovery(*batches), recovery(*batches[1:])) == (0, 0, 0)
    partial = [batches[1]._replace(extra=1), *batches[2:]]
    assert judged(life, recovery(*partial)) == (0, 0, 0)
    # Compacted records may come back: the new file's name was not durable.
    assert judged(life, recovery(*partial), recovery(*batches)) == (0, 0, 0)
    for bad in (
        [*batches[:1], *batches[2:]],
        [*batches[:2], batches[3]],
        [batches[1], batches[2]._replace(extra=1), batches[3]],
    ):
        assert judged(life, recovery(*bad))[1] == 1, bad
    assert judged(life[:-1], recovery(*batches[1:]))[1] == 1, "nothing was compacted"
    assert judged(life[:-1], recovery(*batches[:3], batches[3]._replace(extra=1)))[1] == 1, "nothing was compacted"
    assert judged(life, recovery(*batches[:3]))[0] == 2, "the end is never removed"
