"""The facts about each partition, collected in one pass: who sent which value, and where it was seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.checker.history import Call, Event, History, Operation, Phase

ALL_LOSE_POWER = "power loss of all"
"""The fault after which records of class `memory` may be lost."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One broken promise."""

    code: str
    partition: tuple[int, int]
    """Incarnation and partition."""
    message: str
    tolerated: bool = False
    """Counted only: the promise made for this record allows it."""

    def __str__(self) -> str:
        return f"{self.code} in partition {self.partition[1]} of incarnation {self.partition[0]}: {self.message}"


@dataclass(frozen=True, slots=True)
class Sent:
    """One value of one publish."""

    call: Call
    index: int

    @property
    def offset(self) -> int | None:
        """Its acked offset."""
        answer = self.call.ok
        return answer.offsets[self.index] if answer and self.index < len(answer.offsets) else None


@dataclass
class Copy:
    """The content of one replica at the end."""

    records: dict[int, str] = field(default_factory=dict[int, str])
    digests: dict[int, str] = field(default_factory=dict[int, str])
    log_start: int = 0


@dataclass
class Facts:
    """One partition."""

    partition: tuple[int, int]
    power_lost: bool
    publishes: list[Call] = field(default_factory=list[Call])
    polls: list[Call] = field(default_factory=list[Call])
    shown: list[Call] = field(default_factory=list[Call])
    """Calls whose answer shows a high watermark."""
    sent: dict[str, list[Sent]] = field(default_factory=dict[str, list[Sent]])
    copies: dict[str, Copy] = field(default_factory=dict[str, Copy])
    compacted: bool = False
    incomplete: bool = False
    """A final read did not succeed."""

    def final(self) -> dict[int, str]:
        """The content of all replicas at the end, by offset, ascending."""
        if len(self.copies) == 1:
            return next(iter(self.copies.values())).records
        merged: dict[int, str] = {}
        for copy in self.copies.values():
            merged |= copy.records
        return dict(sorted(merged.items()))

    @property
    def log_start(self) -> int:
        """First offset that must exist at the end."""
        return max((copy.log_start for copy in self.copies.values()), default=0)

    def acked(self) -> Iterator[tuple[str, int, Call]]:
        """Value, offset and call of all acked records."""
        for value, sendings in self.sent.items():
            for sent in sendings:
                if sent.offset is not None:
                    yield value, sent.offset, sent.call

    def delivered(self) -> Iterator[tuple[int, str, Call]]:
        """Offset, value and call of all polled records."""
        for poll in self.polls:
            if answer := poll.ok:
                for offset, value in zip(answer.offsets, answer.values, strict=True):
                    yield offset, value, poll

    def may_be_lost(self, invoke: Event) -> bool:
        """Whether the promise made for this publish allows its loss."""
        return invoke.policy != "all" or (invoke.durability == "memory" and self.power_lost)

    def value_may_be_lost(self, value: str) -> bool:
        """As `may_be_lost`, by value."""
        return any(self.may_be_lost(sent.call.invoke) for sent in self.sent.get(value, []))

    def anomaly(self, code: str, message: str, *, tolerated: bool = False) -> Anomaly:
        """An anomaly of this partition."""
        return Anomaly(code, self.partition, message, tolerated)


def gather(history: History) -> list[Facts]:
    """The facts of each partition, in order of incarnation and number."""
    power_lost = any(
        call.invoke.operation is Operation.FAULT and call.invoke.name == ALL_LOSE_POWER for call in history.calls
    )
    partitions: defaultdict[tuple[int, int], list[Call]] = defaultdict(list)
    for call in history.calls:
        if call.invoke.operation in {Operation.PUBLISH, Operation.POLL, Operation.ENDS, Operation.FINAL}:
            partitions[call.invoke.incarnation, call.invoke.partition].append(call)
    return [_facts(partition, calls, power_lost=power_lost) for partition, calls in sorted(partitions.items())]


def _facts(partition: tuple[int, int], calls: list[Call], *, power_lost: bool) -> Facts:
    facts = Facts(partition, power_lost)
    for call in calls:
        if (answer := call.ok) and answer.high_watermark is not None:
            facts.shown.append(call)
        match call.invoke.operation:
            case Operation.PUBLISH:
                facts.publishes.append(call)
                for index, value in enumerate(call.invoke.values):
                    facts.sent.setdefault(value, []).append(Sent(call, index))
            case Operation.POLL:
                facts.polls.append(call)
            case Operation.FINAL:
                _add_final(facts, call)
            case _:
                pass
    facts.incomplete |= not facts.copies and any(call.phase is Phase.OK for call in facts.publishes)
    return facts


def _add_final(facts: Facts, call: Call) -> None:
    answer = call.ok
    if answer is None:
        facts.incomplete = True
        return
    copy = facts.copies.setdefault(call.invoke.replica, Copy())
    copy.records.update(zip(answer.offsets, answer.values, strict=True))
    copy.digests.update(zip(answer.offsets, answer.digests, strict=False))
    copy.log_start = max(copy.log_start, answer.log_start)
    facts.compacted |= answer.compacted
