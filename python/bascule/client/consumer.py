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


class Consumer:
    """Reads its share of the partitions of some streams; the members of a group share them. For one thread.

    Iterating returns batches of any of its partitions (`Batch.stream`, `Batch.partition`) and waits for new ones
    without limit. Within a partition records come in order. Delivery is at least once: a record may come again after a
    member died or partitions moved, if its position was not stored before.

    A thread of the consumer sends heartbeats, so that slow processing does not end the membership; it ends when the
    consumer is closed. Callbacks run in the thread that reads: in `next_batch`, before the records that come after the
    change, and in `close`. An exception of a callback is raised there; the change takes effect nevertheless.
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
        except Exception as second:  # a callback may raise any exception
            if failure is None:
                raise
            failure.add_note(f"and closing the consumer failed: {second!r}")

    def __iter__(self) -> Iterator[Batch]:
        while True:
            batch = self.next_batch()
            if batch is not None:
                yield batch

    @property
    def assignment(self) -> frozenset[Assignment]:
        """The partitions that it reads now; empty until the broker has assigned some."""
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
        """The next records of any partition, 1 to `batch_records`. Records returned before count as processed.

        Args:
            timeout: seconds to wait; 0 = return only what is available now; `None` = half a second.

        Returns:
            `None` when no records came in time; partitions may have been assigned or revoked meanwhile.

        Raises:
            StateError: a stream was deleted or purged (the next call reads it from its new beginning); a partition is
                paused; `not_found`: there is no stored position, and the consumer starts at "error".
            UnavailableError: the broker was lost and did not come back in time. The next call continues.
            UsageError: code `closed`.
            Exception: an exception of a callback.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            found = self.core.advance(None if end is None else max(0.0, end - time.monotonic()))
            if not isinstance(found, Change):
                if found is not None:
                    self.core.give(found)
                return found
            try:
                self._notify(found)
            finally:
                self.core.finish(found)

    def commit(self, batch: Batch | None = None, *, timeout: float | None = None) -> None:
        """Store positions; returns when they are committed.

        Args:
            batch: everything up to its end was processed; `None` = everything that was returned was processed.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `failed_precondition`: the partition of `batch` was given up meanwhile; `stream_not_found`:
                a stream was deleted or purged since, and nothing is stored for it.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        self.core.commit(batch, timeout)

    def close(self) -> None:
        """Store positions (unless `commit_interval` is `None`), give up the partitions and leave the group, so that
        other members take over at once. All returned records count as processed. Idempotent; no thread is left.

        Raises:
            BrokerError: a position could not be stored, or leaving failed (then the broker expels the member later).
            Exception: an exception of a callback.
        """
        self._close(processed=True)

    def _close(self, *, processed: bool) -> None:
        change, failures = self.core.begin_close(processed=processed)
        try:
            if change is not None:
                self._notify(change)
        finally:
            failures += self.core.end_close()
        raise_first(failures)

    def _notify(self, change: Change) -> None:
        callback = self.callbacks.of(change)
        if callback is not None:
            callback(change.partitions)


def raise_first(failures: list[BrokerError]) -> None:
    """Raise the first failure; the others are added to its notes."""
    if failures:
        for other in failures[1:]:
            failures[0].add_note(f"and: {other}")
        raise failures[0]
