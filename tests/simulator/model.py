"""The expected content of one partition: appended records, the acked end, and allowed losses."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulator.native import Record
from tests.simulator.plan import Settings


class ViolationError(Exception):
    """A broken promise or invariant; the first argument is its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class RunEndedError(Exception):
    """A power cut, or a failed directory: this run has ended."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One record."""

    key: bytes | None
    value: bytes | None
    epoch: int
    timestamp: int
    appended: int = 0
    """A monotonic clock."""


@dataclass(frozen=True, slots=True)
class Sent:
    """One batch of an idempotent producer."""

    producer: tuple[int, int, int]
    count: int
    base: int


@dataclass(frozen=True, slots=True)
class Ghost:
    """A batch of an earlier run."""

    base: int
    chain: int
    stored: bytes


@dataclass
class Model:
    """One incarnation of one partition. Offsets begin at 0, so an offset is an index."""

    number: int
    incarnation: int
    settings: Settings
    journal: tuple[int, int, int, int] | None = None
    entries: list[Entry] = field(default_factory=list[Entry])
    ends: list[int] = field(default_factory=lambda: [0])
    """Offsets between two batches, ascending."""
    acked: int = 0
    log_start: int = 0
    """The largest announced log start; a crash may reset it as long as the records exist."""
    created: bool = False
    """Whether the creation was acknowledged."""
    epoch: int = 1
    last_timestamp: int = 0
    latest_timestamp: int = 0
    """The largest timestamp of all records, including lost ones."""
    damaged: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Offsets whose reads may fail."""
    fresh_damage: bool = False
    """Whether there was damage below the durable point after the last recovery; it must not cause truncation."""
    flaky: bool = False
    """Whether reads fail at times: a range that failed once may fail for the rest of the run."""
    no_opening: bool = False
    """Whether opening a file fails at times."""
    strays: bool = False
    """Whether valid pages were overwritten with other pages."""
    power_cut: bool = False
    """Whether there was a power cut since the last recovery."""
    weak: bool = False
    """Whether a write was misdirected: records may be unreadable or truncated, but never wrong."""
    without_checkpoint: bool = False
    """Whether the checkpoint was damaged: unacked records before the last segment count as damage."""
    haunted: bool = False
    """Whether a batch of an earlier run was written after the last one since the last recovery."""
    earlier: list[bytes] = field(default_factory=list[bytes])
    """Earlier contents of segments."""
    ghosts: list[Ghost] = field(default_factory=list[Ghost])
    """Batches in the files that were never acked."""
    sent: list[Sent] = field(default_factory=list[Sent])
    gone: set[int] = field(default_factory=set[int])
    """Offsets of records that a compaction may have removed."""
    latest: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """Last offset of each key, up to `scanned_to`."""
    scanned_to: int = 0
    """End of the range that compactions have scanned."""
    sequences: dict[int, int] = field(default_factory=dict[int, int])
    """Next sequence of each producer."""

    @property
    def path(self) -> str:
        """The directory of the partition."""
        return f"/partitions/{self.incarnation}"

    @property
    def end(self) -> int:
        """Offset after the last appended record."""
        return len(self.entries)

    def append(self, entries: list[Entry], producer: tuple[int, int, int] | None) -> None:
        """Record a batch."""
        if producer:
            self.sent.append(Sent(producer, len(entries), self.end))
            self.sequences[producer[0]] = producer[2] + len(entries)
        self.entries.extend(entries)
        self.latest_timestamp = max(self.latest_timestamp, *(entry.timestamp for entry in entries))
        self.ends.append(self.end)

    def compact(self, limit: int, tombstones_before: int) -> None:
        """Allow compaction to remove records with a later record of the same key below `limit`, and old tombstones."""
        for offset in range(self.scanned_to, limit):
            key = self.entries[offset].key
            if key is None:
                continue
            if key in self.latest:
                self.gone.add(self.latest[key])
            self.latest[key] = offset
        self.scanned_to = max(self.scanned_to, limit)
        for offset in self.latest.values():
            if self.entries[offset].value is None and self.entries[offset].timestamp <= tombstones_before:
                self.gone.add(offset)

    def cut(self, end: int) -> None:
        """Remove the records that a recovery did not find."""
        del self.entries[end:]
        self.ends = [known for known in self.ends if known <= end]
        if end < self.scanned_to:  # records seen by a compaction were durable: only damage removes them
            self.gone = {offset for offset in self.gone if offset < end}
            self.latest = {key: offset for key, offset in self.latest.items() if offset < end}
            self.scanned_to = end
        self.sent = [sent for sent in self.sent if sent.base + sent.count <= end]
        self.sequences = {sent.producer[0]: sent.producer[2] + sent.count for sent in self.sent}
        self.epoch = max(self.epoch, self.entries[-1].epoch if self.entries else 1)
        self.last_timestamp = self.entries[-1].timestamp if self.entries else 0

    def harm(self, start: int, end: int) -> None:
        """Reads of records in [start, end) may fail from now on.

        A batch is verified by its successor, so the batch after a damaged one may also fail if it has no successor, or
        a damaged one. Between two positions that were overwritten with valid-looking batches nothing can be verified.
        The rig of row S10 checks the exact range.
        """
        behind = next((cut for cut in self.ends if cut > end), end)
        if self.strays:
            start = min([start, *(first for first, _ in self.damaged)])
            behind = max([behind, *(last for _, last in self.damaged)])
        self.damaged.append((start, behind))

    def may_be_damaged(self, start: int, end: int) -> bool:
        """Whether [start, end) is within the damaged ranges."""
        return self.flaky or all(
            any(first <= offset < last for first, last in self.damaged) for offset in range(start, end)
        )

    def may_begin_at(self, timestamp: int, now: int) -> bool:
        """Whether an append may get this time although the last record is later, because that one is damaged.

        An intact file may still contain its time. The time never goes back before an intact record.
        """
        if not (self.damaged or self.weak):
            return False
        intact = (
            entry.timestamp
            for offset, entry in reversed(list(enumerate(self.entries)))
            if not (self.weak or self.may_be_damaged(offset, offset + 1))
        )
        return max(now, next(intact, 0)) <= timestamp <= max(now, self.latest_timestamp)

    def check_recovered(self, ends: tuple[int, int, int, int]) -> None:
        """Check the result of a recovery: all acked records, only appended records, complete batches.

        Raises:
            ViolationError: I25, A18.
        """
        start, end, durable, mark = ends
        where = f"partition {self.number} of incarnation {self.incarnation}"
        if end > self.end:
            raise ViolationError("I25", f"{where} ends at {end} after a recovery, but only {self.end} were appended")
        may_lose = self.weak or (self.settings.memory and self.power_cut)
        cut_at_damage = not self.fresh_damage and any(first == end for first, _ in self.damaged)
        if end < self.acked and not may_lose and not cut_at_damage:
            raise ViolationError("A1", f"{where} ends at {end} after a recovery, but {self.acked} were acked")
        if end not in self.ends and not self.weak:
            raise ViolationError("A18", f"{where} ends at {end}, in the middle of a batch")
        if start > self.log_start and not self.weak:
            raise ViolationError("A1", f"{where} starts at {start}, but only {self.log_start} was announced")
        if mark > end:
            raise ViolationError("P6", f"{where} shows {mark} after a recovery, beyond its end {end}")
        if durable != end:
            raise ViolationError("I20", f"{where} is durable to {durable} after a recovery, not to its end {end}")

    def check_records(self, records: list[Record]) -> None:
        """Check that each record is the one that was appended at its offset.

        Raises:
            ViolationError: A4, A6, A8.
        """
        before = -1
        for offset, epoch, timestamp, key, value in records:
            if offset <= before:
                raise ViolationError("A8", f"offset {offset} after {before} in partition {self.number}")
            before = offset
            if offset >= self.end:
                raise ViolationError("A6", f"offset {offset} was never appended to partition {self.number}")
            expected = self.entries[offset]
            if (key, value, epoch, timestamp) != (expected.key, expected.value, expected.epoch, expected.timestamp):
                found = Entry(key, value, epoch, timestamp)
                raise ViolationError("A4", f"offset {offset} of partition {self.number} is {found}, not {expected}")
