"""Hand-made histories for the tests of the checker: one step per line; the clock advances automatically."""

from __future__ import annotations

import itertools
from typing import Any

from tests.checker.history import Event, Operation, Recorder


class Story:
    """Records calls one after another; `begin` leaves a call open."""

    def __init__(self) -> None:
        ticks = itertools.count(1)
        self.recorder = Recorder(clock=lambda: next(ticks))

    def begin(self, process: str, operation: Operation, **known: Any) -> Event:
        """A call without an answer so far."""
        return self.recorder.invoke(process, operation, **known)

    def publish(self, process: str, values: str, first: int, **known: Any) -> None:
        """A publish of the values in `values`, split at spaces, acked with the offsets from `first`."""
        names = tuple(values.split())
        begun = self.begin(process, Operation.PUBLISH, values=names, **known)
        self.recorder.ok(begun, offsets=tuple(range(first, first + len(names))))

    def poll(self, process: str, records: str, start: int | None = None, **shown: Any) -> None:
        """A poll answered with the records in `records`, such as `0:a 1:b`."""
        offsets, values = split(records)
        begun = self.begin(process, Operation.POLL, start=start)
        self.recorder.ok(begun, offsets=offsets, values=values, **shown)

    def final(self, records: str, replica: str = "one", **known: Any) -> None:
        """A final read of everything."""
        offsets, values = split(records)
        begun = self.begin("final", Operation.FINAL, replica=replica)
        self.recorder.ok(begun, offsets=offsets, values=values, **known)

    def commit(self, generation: int, position: int) -> None:
        """A commit that is accepted."""
        self.recorder.ok(self.begin("member", Operation.COMMIT, group="g", generation=generation, position=position))

    def fetch(self, generation: int, position: int | None, incarnation: int = 0) -> None:
        """A fetch of the stored position."""
        begun = self.begin("member", Operation.FETCH, group="g")
        self.recorder.ok(begun, generation=generation, position=position, position_incarnation=incarnation)

    def write(self, process: str, value: str | None) -> None:
        """A metadata write of key `k`."""
        self.recorder.ok(self.begin(process, Operation.WRITE, key="k", value=value))

    def read(self, process: str, value: str | None) -> None:
        """A metadata read of key `k`."""
        self.recorder.ok(self.begin(process, Operation.READ, key="k"), value=value)


def split(records: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """`0:a 1:b` as offsets and values."""
    pairs = [record.partition(":") for record in records.split()]
    return tuple(int(offset) for offset, _, _ in pairs), tuple(value for _, _, value in pairs)
