"""A member of a consumer group."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeAlias

from bascule.client._core.batch import Batch
from bascule.client._core.consumer_core import Change, ConsumerCore
from bascule.client._core.membership import Assignment
from bascule.client._core.types import Record
from bascule.errors import BrokerError

__all__ = ["Callbacks", "Consumer", "OnChange", "raise_first"]

OnChange: TypeAlias = Callable[[Sequence[Assignment]], object]
"""Told of partitions, in order, at least one. May use the consumer's `commit`; must not close it."""


@dataclass(frozen=True, slots=True)
class Callbacks:
    """What the application wants to be told."""

    assigned: OnChange | None
    revoked: OnChange | None
    lost: OnChange | None

    def of(self, change: Change) -> OnChange | None:
        """The callback of a change."""
        return {"assigned": self.assigned, "revoked": self.revoked, "lost": self.lost}[change.kind]


class Consumer:
    """Reads its share of the partitions of some streams; the members of a group share them. For one thread.

    Iterating gives batches of any of its partitions (`Batch.stream`, `Batch.partition`), and waits for new ones for
    ever. Within a partition records come in order. A record may come again after a member died or partitions moved, if
    its position was not stored before: at least once.

    Signs of life go out from a thread of the consumer's own, so that slow processing does not cost the membership; it
    ends when the consumer is closed. Callbacks run in the thread that reads: in `next_batch`, before the records that
    come after the change, and in `close`. What a callback raises comes out there, and the change takes effect all the
    same.
    """

    def __init__(self, core: ConsumerCore, callbacks: Callbacks) -> None:
        """Use `Client.consumer`."""
        self.core: Final = core
        self.callbacks: Final = callbacks

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._close(processed=failure is None)
        except Exception as second:  # whatever a callback raises
            if failure is None:
                raise
            failure.add_note(f"and the consumer could not be closed in order: {second!r}")

    def __iter__(self) -> Iterator[Batch]:
        while True:
            batch = self.next_batch()
            if batch is not None:
                yield batch

    @property
    def assignment(self) -> frozenset[Assignment]:
        """What it reads now; empty before it is told."""
        return self.core.assignment

    def records(self) -> Iterator[Record]:
        """The records one by one. A record counts as processed when the next one is asked for. Slower than by batch."""
        for batch in self:
            self.core.give(batch, batch.offsets[0] - 1)
            for record in batch:
                self.core.process_given()
                self.core.give(batch, record.offset)
                yield record

    def open(self) -> None:
        """Join the group now instead of at the first batch. Idempotent.

        Raises:
            StateError: code `stream_not_found`; `failed_precondition`: a consumer of this id is a member already.
            UnavailableError: no broker answered in time.
            UsageError: code `closed`.
        """
        self.core.open()

    def next_batch(self, timeout: float | None = None) -> Batch | None:
        """The next records of any partition, 1 to `batch_records`. What was given before counts as processed.

        Args:
            timeout: seconds to wait for something; 0 = only what is there; `None` = half a second.

        Returns:
            `None` when nothing came in time, which includes that partitions came or went.

        Raises:
            StateError: a stream was deleted or purged, and is read from the beginning of what it holds next when asked
                again; a partition is paused; `not_found`: there is no stored position, and the consumer starts at
                "error".
            UnavailableError: the broker went away and did not come back in time. The consumer goes on when it is asked
                again.
            UsageError: code `closed`.
            Exception: what a callback raised.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.core.advance(None if end is None else max(0.0, end - time.monotonic()))
            if not isinstance(found, Change):
                if found is not None:
                    self.core.give(found)
                return found
            try:
                self._tell(found)
            finally:
                self.core.finish(found)

    def commit(self, batch: Batch | None = None, *, timeout: float | None = None) -> None:
        """Store positions; returns when they are committed.

        Args:
            batch: everything up to its end was processed; `None` = everything that was given was.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `failed_precondition`: the partition of `batch` was given up meanwhile; `stream_not_found`:
                a stream was deleted or purged since, and nothing is stored for it.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        self.core.commit(batch, timeout)

    def close(self) -> None:
        """Store positions (unless that is left to `commit`), give up the partitions and leave the group, so that others
        take over at once. Everything that was given counts as processed. Idempotent; no thread is left.

        Raises:
            BrokerError: a position could not be stored, or the group not be left (it notices later by itself).
            Exception: what a callback raised.
        """
        self._close(processed=True)

    def _close(self, *, processed: bool) -> None:
        change, failures = self.core.begin_close(processed=processed)
        try:
            if change is not None:
                self._tell(change)
        finally:
            failures += self.core.end_close()
        raise_first(failures)

    def _tell(self, change: Change) -> None:
        callback = self.callbacks.of(change)
        if callback is not None:
            callback(change.partitions)


def raise_first(failures: list[BrokerError]) -> None:
    """Raise the first failure; the others stand in its notes."""
    if failures:
        for other in failures[1:]:
            failures[0].add_note(f"and: {other}")
        raise failures[0]
