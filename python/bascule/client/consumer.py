"""A member of a consumer group."""

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from bascule.client._core.batch import Batch
from bascule.client._core.consumer_flow import UNCLOSED, ConsumerFlow, completed
from bascule.client._core.leaving import leaving
from bascule.client._core.types import Record

__all__ = ["Consumer"]

P = ParamSpec("P")
T = TypeVar("T")


class Consumer(ConsumerFlow):
    """Reads its share of the partitions of some streams; the members of a group share them. For one thread.

    Iterating returns batches of any of its partitions (`Batch.stream`, `Batch.partition`) and waits for new ones
    without limit. Within a partition records come in order. Delivery is at least once: a record may come again after a
    member died or partitions moved, if its position was not stored before.

    A thread of the consumer sends heartbeats, so that slow processing does not end the membership; it ends when the
    consumer is closed. Callbacks run in the thread that reads: in `next_batch`, before the records that come after the
    change, and in `close`. An exception of a callback is raised there; the change takes effect nevertheless.
    """

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
        with leaving(failure, UNCLOSED):
            completed(self._end, processed=failure is None)

    def __iter__(self) -> Iterator[Batch]:
        while True:
            batch = self.next_batch()
            if batch is not None:
                yield batch

    def records(self) -> Iterator[Record]:
        """The records one by one. A record counts as processed when the next one is asked for. Slower than by batch."""
        for batch in self:
            yield from self._records(batch)

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
        return completed(self._next, timeout)

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
        completed(self._end, processed=True)

    async def _run(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        return function(*arguments, **named)

    async def _complete(self, answer: object) -> None:
        """The callback ran to its end when it was called."""
