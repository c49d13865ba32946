"""The ledger of the Liftbridge rig's requests and answers, and the check of later answers of the broker against it.

The ledger is a file of JSON lines outside the broker's directory, one entry per line. An entry is about one *log* (a
partition of one incarnation of a stream) or one *register* (a cursor, a group, a stream with its flags). Every register
has one writer, which waits for each answer; a log has several.

| Kind | About a log | About a register |
|---|---|---|
| declared | policy: `keep`, `retain` or `compact`; least: records that retention keeps | value: the first one |
| sent | value, key | value: the new value |
| acked | value, offset | value: the new value |
| refused | value: not stored | value: not changed to it |
| seen | value, offset: read by a live reader | |
| found | records: (offset, key, value) of all, without pending calls | value: an answer, without pending calls |
| trouble | text: an answer that a running broker must not give | the same |

The rule: acked, seen or found values do not change, except for removals by the log's policy and for the next write of a
register. A value that was sent and never answered may exist or not; once it was found missing, it must never appear.
"""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MOST_DETAILS = 20


class Kind(StrEnum):
    """Kinds of entries; see the table."""

    DECLARED = "declared"
    SENT = "sent"
    ACKED = "acked"
    REFUSED = "refused"
    SEEN = "seen"
    FOUND = "found"
    TROUBLE = "trouble"


class Entry(NamedTuple):
    """One entry."""

    kind: Kind
    about: str
    """`log:` or `register:` and a name."""
    fields: dict[str, Any]


class Ledger:
    """The file of a ledger. Safe to use from several threads; a context manager."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()
        self._fresh: list[Entry] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def note(self, kind: Kind, about: str, **fields: Any) -> None:
        """Write an entry."""
        with self._lock:
            self._file.write(json.dumps([kind, about, fields]) + "\n")
            self._fresh.append(Entry(kind, about, fields))

    def take(self) -> list[Entry]:
        """The entries since the last call."""
        with self._lock:
            self._file.flush()
            fresh, self._fresh = self._fresh, []
        return fresh


@dataclass
class Verdict:
    """Counts and violations."""

    acked: dict[str, int] = field(default_factory=dict[str, int])
    """Number of acks by kind: `record`, or the first word of the register's name."""
    removed: dict[str, int] = field(default_factory=dict[str, int])
    """Number of acked records that the policy of their log removed, by policy."""
    violations: int = 0
    details: list[str] = field(default_factory=list[str])
    """The first violations, as text."""

    def blame(self, about: str, text: str) -> None:
        """Count a violation."""
        self.violations += 1
        if len(self.details) < MOST_DETAILS:
            self.details.append(f"{about}: {text}")

    def count(self, what: str) -> None:
        """Count an ack."""
        self.acked[what] = self.acked.get(what, 0) + 1


class Judge:
    """Follows a ledger. The result is in `verdict`."""

    def __init__(self) -> None:
        self.verdict = Verdict()
        self._logs: dict[str, _Log] = {}
        self._registers: dict[str, _Register] = {}

    def follow(self, entries: Iterable[Entry]) -> None:
        """Check the next entries."""
        for kind, about, fields in entries:
            if kind is Kind.TROUBLE:
                self.verdict.blame(about, fields["text"])
            elif about.startswith("log:"):
                if kind is Kind.DECLARED:
                    self._logs[about] = _Log(about, self.verdict, **fields)
                else:
                    self._logs[about].follow(kind, fields)
            elif kind is Kind.DECLARED:
                self._registers[about] = _Register(about, self.verdict, [fields["value"]])
            else:
                self._registers[about].follow(kind, fields["value"])


@dataclass
class _Register:
    about: str
    verdict: Verdict
    candidates: list[Any]
    """The last acked or found value."""
    pending: list[Any] = field(default_factory=list[Any])
    """Values that it may have now: sent since, without an answer."""

    def follow(self, kind: Kind, value: Any) -> None:
        match kind:
            case Kind.SENT:
                self.pending.append(value)
            case Kind.ACKED:
                self.verdict.count(self.about.removeprefix("register:").split(" ")[0])
                self.candidates, self.pending = [value], []
            case Kind.REFUSED:
                self.pending.remove(value)
            case _:
                self._found(value)

    def _found(self, value: Any) -> None:
        possible = self.candidates + self.pending
        if not any(_agrees(item, value) for item in possible):
            expected = " or ".join(json.dumps(item) for item in possible)
            self.verdict.blame(self.about, f"is {json.dumps(value)}, must be {expected}")
        if isinstance(value, dict) and "assignments" in value:
            self._check_assignments(value)  # pyright: ignore[reportUnknownArgumentType]
        self.candidates, self.pending = [value], []

    def _check_assignments(self, group: dict[str, Any]) -> None:
        """Check that every partition has exactly one reader, if there are members."""
        read = sorted(number for numbers in group["assignments"].values() for number in numbers)
        if read != (list(range(group["partitions"])) if group["members"] else []):
            self.verdict.blame(self.about, f"{group['partitions']} partitions are read as {group['assignments']}")


def _agrees(expected: Any, found: Any) -> bool:
    """Whether an answer equals the expected value; of objects only the common fields are compared."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return all(expected[key] == found[key] for key in expected.keys() & found.keys())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return bool(expected == found)


@dataclass
class _Log:
    about: str
    verdict: Verdict
    policy: str
    least: int = 0
    sent: dict[str, str] = field(default_factory=dict[str, str])
    """Key by value, of all sent records; values are unique."""
    places: dict[str, int] = field(default_factory=dict[str, int])
    """Offset by value, of all acked, seen or found records."""
    promised: dict[int, str] = field(default_factory=dict[int, str])
    """Value by offset of the records that must exist, unless the policy removes them."""
    gone: set[str] = field(default_factory=set[str])
    """Values that were sent, never acked, and missing in a complete read."""

    def follow(self, kind: Kind, fields: dict[str, Any]) -> None:
        match kind:
            case Kind.SENT:
                self.sent[fields["value"]] = fields["key"]
            case Kind.REFUSED:
                self.gone.add(fields["value"])
            case Kind.FOUND:
                self._found([(offset, key, value) for offset, key, value in fields["records"]])
            case _:
                if kind is Kind.ACKED:
                    self.verdict.count("record")
                self._place(fields["offset"], fields["value"])

    def _place(self, offset: int, value: str) -> None:
        """A record was read at an offset."""
        if value not in self.sent:
            self.verdict.blame(self.about, f"{value} at {offset} was sent by nobody")
        elif value in self.gone:
            self.verdict.blame(self.about, f"{value} at {offset} was refused, or was not there before: resurfaced")
        elif self.places.setdefault(value, offset) != offset:
            self.verdict.blame(self.about, f"{value} is at {self.places[value]} and at {offset}")
        elif self.promised.setdefault(offset, value) != value:
            self.verdict.blame(self.about, f"offset {offset} was {self.promised[offset]} and is {value}")

    def _found(self, records: list[tuple[int, str, str]]) -> None:
        before = dict(self.promised)
        self._check_order([offset for offset, _, _ in records], [value for _, _, value in records])
        for offset, key, value in records:
            self._place(offset, value)
            if self.sent.get(value, key) != key:
                self.verdict.blame(self.about, f"{value} at {offset} has key {key!r}, sent was {self.sent[value]!r}")
        missing = {offset: before[offset] for offset in before.keys() - {offset for offset, _, _ in records}}
        lost = self._lost(records, missing)
        for offset in sorted(lost)[:3]:
            self.verdict.blame(self.about, f"{missing[offset]} at {offset} is lost, with {len(lost) - 1} others")
        if removed := len(missing) - len(lost):
            self.verdict.removed[self.policy] = self.verdict.removed.get(self.policy, 0) + removed
        self.promised = {offset: value for offset, _, value in records}
        self.gone |= self.sent.keys() - self.places.keys()

    def _check_order(self, offsets: list[int], values: list[str]) -> None:
        if any(after <= before for before, after in itertools.pairwise(offsets)):
            self.verdict.blame(self.about, "offsets do not ascend")
        if self.policy != "compact" and offsets and offsets[-1] - offsets[0] + 1 != len(offsets):
            self.verdict.blame(self.about, f"{offsets[0]} to {offsets[-1]} are {len(offsets)} records: there is a gap")
        last: dict[str, int] = {}
        for value in values:
            publisher, _, number = value.partition(":")
            if last.get(publisher, -1) >= int(number):
                self.verdict.blame(self.about, f"{value} comes behind {publisher}:{last[publisher]}")
            last[publisher] = int(number)

    def _lost(self, records: list[tuple[int, str, str]], missing: dict[int, str]) -> list[int]:
        """Offsets of `missing` that the policy does not explain."""
        if self.policy == "keep":
            return list(missing)
        if self.policy == "retain":
            first = records[0][0] if records else 1 << 62
            if first and len(records) < self.least:
                self.verdict.blame(self.about, f"retention left {len(records)} records, {self.least} had to stay")
            return [offset for offset in missing if offset >= first]
        latest = {key: offset for offset, key, _ in records}
        return [offset for offset, value in missing.items() if latest.get(self.sent[value], -1) < offset]
