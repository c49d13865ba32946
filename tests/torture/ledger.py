"""Reads the ledgers of a rig's runs, and checks the result of each recovery.

The format of a ledger is in `crates/rig/src/ledger.rs`. The rule (reliability I25): after every recovery a log has all
records of the previous recovery and all records acked since, and otherwise only a prefix of the records sent since, in
order. Retention may remove records at its start.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

ENTRY = struct.Struct("<IIQIIQQ")


class Kind(IntEnum):
    """Kinds of entries; see `crates/rig/src/ledger.rs`."""

    INTENT = 1
    ACKED = 2
    REFUSED = 3
    UNCERTAIN = 4
    RECOVERED = 5
    FOUND = 6
    READY = 7
    COMMIT_FAILED = 8
    WRONG = 9
    READ_WHILE_REFUSED = 10
    ENDED = 11
    RESUMED = 12
    RECOVERY_FAILED = 13
    UNREAD = 14
    DELETING = 15
    DELETED = 16
    LISTED = 17
    FAILED = 18
    COMPACTING = 19
    FAULT = 100
    """Written by the shim: a system call failed by injection."""
    PERHAPS_ACKED = 101
    """An ack that may have been received or not; only in memory."""
    WENT_ON = 102
    """Written by the shim: the first call of a thread after its failed sync."""


LIST = {Kind.FOUND, Kind.WRONG}
"""Entries of the list after a RECOVERED; LISTED or UNREAD ends it."""


class Entry(NamedTuple):
    """One entry of a ledger; `records` is its field `count`."""

    kind: int
    partition: int
    offset: int
    records: int
    run_id: int
    counter: int
    extra: int

    @property
    def batch(self) -> Batch:
        """The batch of an INTENT, REFUSED, UNCERTAIN or FOUND."""
        return Batch(self.offset, self.records, self.run_id, self.counter)


KEYS = 32
"""Batches with an even counter have a key, equal for equal counters modulo this (`crates/rig/src/content.rs`)."""


class Batch(NamedTuple):
    """A batch and its offset."""

    offset: int
    records: int
    run_id: int
    counter: int

    @property
    def end(self) -> int:
        """Offset after its last record."""
        return self.offset + self.records

    @property
    def key(self) -> int | None:
        """The key of all its records; `None` = no key."""
        return None if self.counter % 2 else self.counter % KEYS


def read(path: Path) -> list[Entry]:
    """All complete entries of a ledger, in the order in which they were written; none if there is no file."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = len(content) - len(content) % ENTRY.size
    return [Entry._make(fields) for fields in ENTRY.iter_unpack(content[:whole])]


def length(path: Path) -> int:
    """Present size of a ledger in bytes; 0 = there is none yet."""
    return path.stat().st_size if path.exists() else 0


def before_cut(path: Path, started: int, ended: int) -> list[Entry] | None:
    """The entries of a ledger before a power cut.

    `started` and `ended` are its sizes in bytes just before and just after the cut. Acks after the cut do not count:
    acks count up to `started` (on xfs a data sync that is running when the filesystem is shut down may report success,
    because the shutdown removes the pending work from the inode); those up to `ended` become PERHAPS_ACKED. Records
    sent up to `ended` may be on the disk. Reads of the process during and after the cut are ignored. `None` if a
    recovery ended during the cut, because it may have seen the disk before or after it; or if its list was being
    written when the cut began, because the beginning of a list looks like a shorter log.
    """
    entries = read(path)
    first, last = started // ENTRY.size, ended // ENTRY.size
    during = any(entry.kind == Kind.RECOVERED for entry in entries[first:last])
    if during or _is_list_open(entries[:first]):
        return None
    perhaps = [
        entry._replace(kind=Kind.PERHAPS_ACKED) if entry.kind == Kind.ACKED else entry
        for entry in entries[first:last]
        if entry.kind in {Kind.INTENT, Kind.REFUSED, Kind.ACKED}
    ]
    return entries[:first] + perhaps


@dataclass
class Log:
    """The state of one log between two recoveries."""

    kept: list[Batch] = field(default_factory=list[Batch])
    """Batches found by the last recovery; all of them are durable since."""
    sent: list[Batch] = field(default_factory=list[Batch])
    """Batches sent since, without rejected ones, in order."""
    acked_end: int = 0
    """All records below this offset were acked."""
    perhaps_end: int = 0
    """Upper bound of the acked end: retention may have removed all records below it."""
    deleting: bool = False
    """Whether its deletion was requested: the next recovery may find nothing."""
    compacted: bool = False
    """Whether its compaction was requested: of records with one key only the latest must exist."""
    gone: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """(run, counter) of batches that a recovery did not find: they must never appear again."""


@dataclass
class Verdict:
    """Counts over all recoveries."""

    acked: int = 0
    recoveries: int = 0
    lost: int = 0
    wrong: int = 0
    resurfaced: int = 0
    details: list[str] = field(default_factory=list[str])
    """The first violations, as text."""

    @property
    def clean(self) -> bool:
        """Whether there is no violation."""
        return self.lost == self.wrong == self.resurfaced == 0

    def blame(self, what: str, number: int, detail: str) -> None:
        """Count `number` violations of one kind."""
        setattr(self, what, getattr(self, what) + number)
        if len(self.details) < 20:
            self.details.append(f"{what}: {detail}")


class Judge:
    """Follows the runs on one directory and checks each recovery against the earlier entries."""

    def __init__(self, verdict: Verdict, name: str, *, retains: bool = True) -> None:
        self.verdict = verdict
        self.name = name
        """Information for repeating the run, used in details."""
        self.retains = retains
        """Whether retention removes records; without retention and compaction a moved start is a loss."""
        self.logs: defaultdict[int, Log] = defaultdict(Log)
        self.faulted = False

    def follow(self, entries: Iterable[Entry], *, faulted: bool = False) -> bool:
        """Check the ledger of the next run. Returns whether its recovery was completed.

        `faulted`: calls of this run failed by injection, so its recovery may fail.
        """
        self.faulted = faulted
        ready = False
        rest = iter(entries)
        entry = next(rest, None)
        while entry is not None:
            following = None
            match entry.kind:
                case Kind.RECOVERED:
                    found, following = _take_batches(rest)
                    # A list without an end is incomplete: its writer was killed.
                    if following is not None and (following.kind != Kind.UNREAD or not self.faulted):
                        self._recovered(entry, found)
                case Kind.READY:
                    ready = True
                case _:
                    self._apply(entry)
            entry = following or next(rest, None)
        return ready

    def _apply(self, entry: Entry) -> None:
        log = self.logs[entry.partition]
        match entry.kind:
            case Kind.INTENT:
                log.sent.append(entry.batch)
            case Kind.REFUSED:
                log.sent.remove(entry.batch)
            case Kind.ACKED:
                self.verdict.acked += max(entry.offset - log.acked_end, 0)
                log.acked_end = max(log.acked_end, entry.offset)
            case Kind.PERHAPS_ACKED:
                log.perhaps_end = max(log.perhaps_end, entry.offset)
            case Kind.DELETING:
                log.deleting = True
            case Kind.COMPACTING:
                log.compacted = True
            case Kind.DELETED:
                self._deleted(log)
            case Kind.WRONG | Kind.UNREAD if entry.kind == Kind.WRONG or not self.faulted:
                self.verdict.blame("wrong", 1, f"{self.name}: unreadable at {entry}")
            case Kind.RECOVERY_FAILED if not self.faulted:
                self.verdict.blame("lost", 1, f"{self.name}: partition {entry.partition} was not recovered")
            case _:
                pass

    @staticmethod
    def _deleted(log: Log) -> None:
        log.gone |= {(batch.run_id, batch.counter) for batch in log.kept + log.sent}
        log.kept, log.sent, log.acked_end, log.perhaps_end = [], [], 0, 0
        log.deleting = log.compacted = False

    def _recovered(self, report: Entry, found: list[Entry]) -> None:
        log, verdict = self.logs[report.partition], self.verdict
        verdict.recoveries += 1
        where = f"{self.name}: partition {report.partition}"
        batches = [entry.batch for entry in found if entry.kind == Kind.FOUND]
        if len(batches) < len(found) or report.records:
            verdict.blame("wrong", 1, f"{where}: damaged or unreadable after recovery: {report}")
        log_start, log_end = report.offset, report.counter
        if log.deleting and log_end == 0:
            self._deleted(log)
        log.deleting = False
        expected = [batch for batch in log.kept + log.sent if batch.offset >= log_start]
        left = {entry.batch: entry.extra for entry in found if entry.kind == Kind.FOUND}
        expected = _has_to_be_there(expected, left, compacted=log.compacted)
        for at, batch in enumerate(batches):
            if at < len(expected) and expected[at] == batch:
                continue
            kind = "resurfaced" if (batch.run_id, batch.counter) in log.gone else "wrong"
            wanted = expected[at] if at < len(expected) else "the end"
            verdict.blame(kind, 1, f"{where}: found {batch} in place of {wanted}")
            break
        end = batches[-1].end if batches else log_start
        promised = max(log.acked_end, log.kept[-1].end if log.kept else 0)
        if log_start > 0 and not (self.retains or log.compacted):
            verdict.blame("lost", log_start, f"{where}: begins at {log_start} without retention")
        if log_start > max(promised, log.perhaps_end):
            verdict.blame("wrong", 1, f"{where}: begins at {log_start}, behind all that was acked ({promised})")
        if min(end, log_end) < promised:
            verdict.blame("lost", promised - min(end, log_end), f"{where}: ends at {end}, acked to {promised}")
        elif end != log_end:
            verdict.blame("wrong", 1, f"{where}: says that it ends at {log_end}, ends at {end}")
        there = {(batch.run_id, batch.counter) for batch in batches}
        if log.compacted:
            # Records removed by compaction may come back with an older file, at their offsets.
            batches = [batch for batch in log.kept + log.sent if log_start <= batch.offset < log_end]
            there |= {(batch.run_id, batch.counter) for batch in batches}
        log.gone |= {(b.run_id, b.counter) for b in log.sent if (b.run_id, b.counter) not in there}
        log.kept, log.sent, log.acked_end, log.perhaps_end = batches, [], log_end, 0


def _has_to_be_there(expected: list[Batch], left: dict[Batch, int], *, compacted: bool) -> list[Batch]:
    """The batches without those that may be missing or incomplete because of compaction.

    `left`: number of existing records of each found batch.

    Compaction removes records with a later record of the same key, in the same batch or in another one.
    """
    if not compacted:
        return [batch for batch in expected if left.get(batch, batch.records) == batch.records]
    latest = {batch.key: batch.offset for batch in expected if batch in left}
    there: list[Batch] = []
    for batch in expected:
        superseded = batch.key is not None and latest.get(batch.key, -1) > batch.offset
        whole = left.get(batch) == batch.records
        if whole or (batch.key is not None and batch in left) or (batch not in left and not superseded):
            there.append(batch)
    return there


def _is_list_open(entries: list[Entry]) -> bool:
    """Whether the entries end inside the list of a recovery."""
    before = (entry.kind for entry in reversed(entries) if entry.kind not in LIST)
    return next(before, None) == Kind.RECOVERED


def _take_batches(rest: Iterator[Entry]) -> tuple[list[Entry], Entry | None]:
    """The FOUND and WRONG entries after a RECOVERED, and the entry after them; `None` = the list is incomplete."""
    found: list[Entry] = []
    for entry in rest:
        if entry.kind not in LIST:
            return found, entry
        found.append(entry)
    return found, None
