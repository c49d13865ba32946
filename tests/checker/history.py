"""The history of a run: requests and answers of each client with their times, and when faults began and ended.

A file has one JSON object per line, with the fields of `Event`; fields that do not apply are left out. A call has an
`invoke` event and at most one more with the same process and call number: `ok`; `fail`, only if it certainly had no
effect; or `info`, if the outcome is unknown. A call without a second event is `info` too.

Fields of each operation:

| Operation | `invoke` | `ok` |
|---|---|---|
| run | expected: successful publish and poll calls | |
| fault | name; `ok` is its end | name |
| publish | values, record_keys?, durability, policy, idempotent, atomic | offsets, one per value |
| poll | start: the offset asked for; notice? | offsets, values, high_watermark; notice? |
| ends | | high_watermark: any end shown to a client |
| final | replica | offsets, values, digests?, log_start, compacted: all of it, or consecutive parts |
| commit | group, generation, position | |
| fetch | group | generation, position, position_incarnation; no position: none is stored |
| write | key, value (none: removed) | |
| read | key | value |
| swap | key, expected, value | (`fail`: the expected value was not there, nothing was written) |
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any


class Phase(StrEnum):
    """The phase of a call that an event belongs to."""

    INVOKE = "invoke"
    OK = "ok"
    FAIL = "fail"
    INFO = "info"


class Operation(StrEnum):
    """Kinds of calls."""

    RUN = "run"
    FAULT = "fault"
    PUBLISH = "publish"
    POLL = "poll"
    ENDS = "ends"
    FINAL = "final"
    COMMIT = "commit"
    FETCH = "fetch"
    WRITE = "write"
    READ = "read"
    SWAP = "swap"


class Notice(StrEnum):
    """Why the position of a reader may change between two polls."""

    SEEK = "seek"
    ASSIGNED = "assigned"
    TRUNCATED = "truncated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a history."""

    time: int
    """Monotonic clock, ns; one clock for the whole history."""
    process: str
    """The client, sequential or with concurrent calls."""
    call: int
    """Number of the call, unique within the process, ascending in the order of sending."""
    operation: Operation
    phase: Phase
    incarnation: int = 0
    """Incarnation of the partition."""
    partition: int = 0
    epoch: int | None = None
    """Leader epoch that answered."""
    values: tuple[str, ...] = ()
    """Unique over the run: process and counter."""
    record_keys: tuple[str | None, ...] = ()
    offsets: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()
    """Digests of the stored bytes, one per offset."""
    durability: str = "disk"
    policy: str = "all"
    idempotent: bool = False
    atomic: bool = False
    start: int | None = None
    high_watermark: int | None = None
    """Exclusive."""
    notice: Notice | None = None
    replica: str = ""
    log_start: int = 0
    compacted: bool = False
    group: str = ""
    generation: int = 0
    position: int | None = None
    position_incarnation: int | None = None
    key: str = ""
    value: str | None = None
    expected: str | int | None = None
    """Expected value of a swap; expected number of successful calls of a run."""
    name: str = ""
    """Name of a fault."""

    def to_json(self) -> str:
        """One line, without fields at their defaults."""
        wanted = asdict(self)
        defaults = {known.name: known.default for known in fields(self)}
        return json.dumps({name: value for name, value in wanted.items() if value != defaults[name]})

    @classmethod
    def from_json(cls, line: str) -> Event:
        """Read one line. Unknown fields are rejected, since a misspelt one would disable a check.

        Raises:
            ValueError: the line is not an event.
        """
        document: dict[str, Any] = json.loads(line)
        if unknown := set(document) - {known.name for known in fields(cls)}:
            raise ValueError(f"unknown fields in an event: {', '.join(sorted(unknown))}")
        for name, value in document.items():
            if isinstance(value, list):
                document[name] = tuple(value)
        document["operation"] = Operation(document["operation"])
        document["phase"] = Phase(document["phase"])
        if "notice" in document:
            document["notice"] = Notice(document["notice"])
        return cls(**document)


@dataclass(frozen=True, slots=True)
class Call:
    """A call and its outcome."""

    invoke: Event
    end: Event | None = None
    """`ok` or `fail`; None = unknown."""

    @property
    def phase(self) -> Phase:
        """`ok`, `fail`, or `info`."""
        return self.end.phase if self.end else Phase.INFO

    @property
    def ok(self) -> Event | None:
        """The answer of a call that succeeded."""
        return self.end if self.end and self.end.phase is Phase.OK else None


@dataclass
class History:
    """The calls of a run in the order in which they were sent."""

    calls: list[Call] = field(default_factory=list[Call])

    @classmethod
    def of(cls, events: Iterable[Event]) -> History:
        """Join the events of each call.

        Raises:
            ValueError: for an end without a beginning, two ends, or a call number used twice.
        """
        history = cls()
        begun: dict[tuple[str, int], int] = {}
        ended: set[tuple[str, int]] = set()
        for event in sorted(events, key=lambda event: event.time):
            name = (event.process, event.call)
            if event.phase is Phase.INVOKE:
                if name in begun:
                    raise ValueError(f"call {event.call} of {event.process} begins twice")
                begun[name] = len(history.calls)
                history.calls.append(Call(event))
                continue
            if name not in begun or name in ended:
                raise ValueError(f"call {event.call} of {event.process} ends without having begun, or twice")
            ended.add(name)
            if event.phase is not Phase.INFO:
                history.calls[begun[name]] = Call(history.calls[begun[name]].invoke, event)
        return history

    @classmethod
    def load(cls, path: Path) -> History:
        """Read a history from its file.

        Raises:
            ValueError: naming the line that is not an event.
        """
        events: list[Event] = []
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    events.append(Event.from_json(line))
                except (ValueError, TypeError, KeyError) as error:
                    raise ValueError(f"{path}:{number}: {error}") from error
        return cls.of(events)


class Recorder:
    """Records a history while a rig runs. Safe to use from several threads."""

    def __init__(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls = itertools.count()
        self.events: list[Event] = []

    def _add(self, **known: Any) -> Event:
        with self._lock:
            event = Event(time=self._clock(), **known)
            self.events.append(event)
        return event

    def invoke(self, process: str, operation: Operation, **known: Any) -> Event:
        """Record a call before it is sent; pass the result to `ok`, `fail` or `info`."""
        return self._add(process=process, operation=operation, call=next(self._calls), phase=Phase.INVOKE, **known)

    def _end(self, invoked: Event, phase: Phase, known: dict[str, Any]) -> None:
        place = {"incarnation": invoked.incarnation, "partition": invoked.partition}
        self._add(
            **{"process": invoked.process, "operation": invoked.operation, "call": invoked.call, "phase": phase}
            | place
            | known
        )

    def ok(self, invoked: Event, **known: Any) -> None:
        """Record an answer."""
        self._end(invoked, Phase.OK, known)

    def fail(self, invoked: Event) -> None:
        """Record an error. Only for calls that certainly had no effect."""
        self._end(invoked, Phase.FAIL, {})

    def info(self, invoked: Event) -> None:
        """Record that the outcome is unknown."""
        self._end(invoked, Phase.INFO, {})

    def fault(self, name: str) -> Callable[[], None]:
        """Record the begin of a fault; call the result when it ends."""
        begun = self.invoke("faults", Operation.FAULT, name=name)
        return lambda: self.ok(begun, name=name)

    def history(self) -> History:
        """The history so far."""
        with self._lock:
            return History.of(self.events)

    def save(self, path: Path) -> None:
        """Write the history to a file."""
        with self._lock, path.open("w", encoding="utf-8") as out:
            out.writelines(event.to_json() + "\n" for event in self.events)
