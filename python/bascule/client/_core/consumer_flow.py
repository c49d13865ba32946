"""What a consumer does around its core, in the order of events, once for the synchronous and the asynchronous one.

The steps are coroutines. The asynchronous consumer awaits them: its blocking calls run in a thread, its callbacks in
the event loop. In the synchronous one everything runs in the calling thread, so that a step is complete when it is
started: `completed` returns its result.
"""

# ruff: noqa: ASYNC109 (the deadline must end the native wait: the native core keeps it)

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar

from bascule.client._core.batch import Batch
from bascule.client._core.consumer_core import Change, ConsumerCore
from bascule.client._core.membership import Assignment
from bascule.client._core.types import Record
from bascule.errors import BrokerError

__all__ = ["UNCLOSED", "Callbacks", "ConsumerFlow", "OnChange", "completed"]

P = ParamSpec("P")
T = TypeVar("T")

UNCLOSED: Final = "and closing the consumer failed: {!r}"
"""Note of an exception that leaves the context of a consumer."""

OnChange: TypeAlias = Callable[[Sequence[Assignment]], object]
"""Called with one or more partitions, in order. May call the consumer's `commit`; must not close the consumer."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The callbacks of the application; `None` = not called."""

    assigned: OnChange | None
    revoked: OnChange | None
    lost: OnChange | None

    def of(self, change: Change) -> OnChange | None:
        """The callback of a change."""
        return {"assigned": self.assigned, "revoked": self.revoked, "lost": self.lost}[change.kind]


class ConsumerFlow(ABC):
    """Base of both consumers; they define how blocking calls and callbacks run."""

    def __init__(self, core: ConsumerCore, callbacks: Callbacks) -> None:
        """Of a consumer that is not open yet."""
        self.core: Final = core
        self.callbacks: Final = callbacks

    @property
    def assignment(self) -> frozenset[Assignment]:
        """The partitions that it reads now; empty until the broker has assigned some."""
        return self.core.assignment

    @abstractmethod
    async def _run(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        """Run a call that may block."""

    async def _advance(self, timeout: float | None) -> Batch | Change | None:
        return await self._run(self.core.advance, timeout)

    @abstractmethod
    async def _complete(self, answer: object) -> None:
        """Complete a callback that was called and returned `answer`."""

    async def _next(self, timeout: float | None) -> Batch | None:
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            found = await self._advance(None if end is None else max(0.0, end - time.monotonic()))
            if not isinstance(found, Change):
                if found is not None:
                    self.core.give(found)
                return found
            try:
                await self._notify(found)
            finally:
                await self._run(self.core.finish, found)

    async def _end(self, *, processed: bool) -> None:
        """Close it. `processed`: whether all returned records count as processed."""
        change, failures = await self._run(self.core.begin_close, processed=processed)
        try:
            if change is not None:
                await self._notify(change)
        finally:
            failures += await self._run(self.core.end_close)
        _raise_first(failures)

    async def _notify(self, change: Change) -> None:
        callback = self.callbacks.of(change)
        if callback is not None:
            await self._complete(callback(change.partitions))

    def _records(self, batch: Batch) -> Iterator[Record]:
        """The records of a batch. A record counts as processed when the next one is asked for."""
        self.core.give(batch, batch.offsets[0] - 1)
        for record in batch:
            self.core.process_given()
            self.core.give(batch, record.offset)
            yield record


def completed(step: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **named: P.kwargs) -> T:
    """The result of a coroutine function that never waits."""
    try:
        step(*arguments, **named).send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("a step of the synchronous consumer waits")


def _raise_first(failures: list[BrokerError]) -> None:
    """Raise the first failure; the others are added to its notes."""
    if failures:
        for other in failures[1:]:
            failures[0].add_note(f"and: {other}")
        raise failures[0]
