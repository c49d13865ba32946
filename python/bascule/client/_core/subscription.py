"""Reading one partition, batch by batch.

States: not open, open, ended. Opening resolves the stop position "latest" to an offset, so that it stays the same after
a reconnect.
"""

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Final, Self

from bascule import engine
from bascule.client._core import cursors, refusals, requests
from bascule.client._core.batch import Batch
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.deadline import Deadline
from bascule.client._core.error_context import error_context
from bascule.client._core.routes import CursorPlace, PartitionPlace
from bascule.client._core.subscribe_options import SubscribeOptions, is_empty_range, subscribe
from bascule.client._core.types import Record, Start, Stop, Stream
from bascule.errors import BrokerError, StateError, UsageError

__all__ = ["Subscription"]

WAIT_MS: Final = 500
"""Longest single wait in the native core, in milliseconds."""


class Subscription:
    """Records of one partition, in order. Iterating returns batches; `records` returns records one by one. Iteration
    ends at the stop position; without one it waits for new records without limit. For one thread.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        options: SubscribeOptions,
        *,
        timeout: float,
        reconnect: float,
        bell: engine.Bell | None = None,
    ) -> None:
        """Use `Client.subscribe`."""
        self._pool: Final = pool
        self.reading: Final = options
        """The requested partition, start, stop and options."""
        self._start: Start = options.start
        self._stop: Stop = options.stop
        self._incarnation = options.incarnation
        """Incarnation of the partition that `_start` belongs to, once known; a purge begins a new one."""
        self.bell = bell
        """Notified whenever records are available; set it before opening."""
        self._timeout: Final = timeout
        self._reconnect: Final = reconnect
        self._lock: Final = threading.Lock()
        self._native: engine.Subscription | None = None
        self._looked_up = options.cursor is None
        self._is_remembered = options.is_remembered
        """Whether `_start` was reached before, so that the partition must be at least that long."""
        self._last: int | None = None
        self._ended = False
        self._closed = False
        self.reconnects = 0
        """Number of reconnects after its broker was lost."""
        self.remembered: int | None = None
        """The cursor's position when it was fetched, as the offset of the next record; `None` = no position."""
        self.was_reset = False
        """Whether its position was beyond the end and reading was reset by `auto_offset_reset`."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        while not self._ended:
            batch = self.next_batch()
            if batch is not None:
                yield batch

    @property
    def position(self) -> Start:
        """The offset of the next record to read: after the last record returned, or the start before the first one.
        Once the subscription is open, the start is the actual offset if the broker reports it, since the requested one
        may be outside the log.
        """
        return self._start

    @property
    def ended(self) -> bool:
        """Whether the stop position was reached."""
        return self._ended

    def records(self) -> Iterator[Record]:
        """The records one by one. Slower than by batch."""
        for batch in self:
            yield from batch

    def open(self) -> None:
        """Open it now instead of at the first batch. Idempotent.

        Raises:
            StateError: codes `stream_not_found`, `partition_not_found`, `failed_precondition` (paused).
            UnavailableError: no broker answered in time.
        """
        if self._native is None and not self._ended:
            self._open(self._timeout)

    def next_batch(self, timeout: float | None = None) -> Batch | None:
        """The next available records, 1 to `batch_records`; waits for the first.

        Args:
            timeout: seconds to wait; `None` = at most half a second.

        Returns:
            `None` if no record came in time, or if the stop position was reached (then `ended` is true).

        Raises:
            StateError: the stream was deleted or purged, also while disconnected, or the partition is paused.
            StateError: code `offset_out_of_range`: the position is beyond the end, see `auto_offset_reset`.
            UnavailableError: the broker was lost and did not come back in time.
            UsageError: code `closed`.
        """
        if self._ended:
            return None
        if self._closed:
            raise UsageError("closed", "the subscription is closed")
        self.open()
        native = self._native
        if native is None:
            return None
        try:
            with engine.native_errors():
                found = native.next_batch(
                    self.reading.batch_records, WAIT_MS if timeout is None else round(timeout * 1000)
                )
        except BrokerError as failure:
            self._recover(failure)
            return None
        if found is None:
            return None
        self._incarnation = self._incarnation or native.incarnation
        member = self.reading.member
        generation = member.generation if member else 0
        batch = Batch(found, self.reading.stream, self.reading.partition, self._incarnation, generation)
        self._advance(batch.offsets[-1])
        return batch

    def commit(self, timeout: float | None = None) -> int | None:
        """Store the last returned record as the position of the subscription's cursor; returns when it is committed.

        Args:
            timeout: seconds; `None` = the client's.

        Returns:
            The stored offset, that of the last returned record; `None`, and nothing is stored, if there was none.

        Raises:
            UsageError: code `invalid_argument`: the subscription has no cursor.
            StateError: code `failed_precondition`: the broker keeps no cursors; `stream_not_found`: the stream was
                deleted or purged since, and nothing is stored.
            OutcomeUnknownError: it was sent and not answered.
            UnavailableError: no broker answered in time.
        """
        options = self.reading
        if options.cursor is None:
            raise UsageError("invalid_argument", "the subscription has no cursor: subscribe with cursor=…")
        if self._last is not None:
            deadline = Deadline(self._timeout if timeout is None else timeout)
            place = CursorPlace(options.cursor, options.stream, options.partition)
            cursors.store(self._pool, deadline, place, self._last, self._incarnation)
        return self._last

    def close(self) -> None:
        """End it. Idempotent; a wait in another thread ends with `closed`."""
        with self._lock:
            native, self._native, self._closed = self._native, None, True
        if native is not None:
            native.close()

    def _recover(self, failure: BrokerError) -> None:
        """Reconnect, end, or raise."""
        if failure.code == "end_of_stream":
            self._finish()
        elif failure.code == "unavailable" and not self._closed:
            self._native = None
            self.reconnects += 1
            self._open(self._reconnect)
        else:
            with self._naming():
                raise failure

    def _advance(self, last: int) -> None:
        self._last = last
        self._is_remembered = True
        if not self.reading.reverse:
            self._start = last + 1
        elif last > 0:
            self._start = last - 1
        else:
            self._finish()

    def _finish(self) -> None:
        self._ended = True
        with self._lock:
            native, self._native = self._native, None
        if native is not None:
            native.close()

    def _open(self, seconds: float) -> None:
        with self._naming():
            self._open_unnamed(Deadline(seconds))

    def _naming(self) -> AbstractContextManager[None]:
        return error_context(self._pool, self.reading.stream, partition=self.reading.partition)

    def _open_unnamed(self, deadline: Deadline) -> None:
        place = PartitionPlace(self.reading.stream, self.reading.partition)
        self._look_up_cursor(deadline)
        if self._stop == "latest":
            self._stop = self._end(deadline, place)
            self._check_remembered(self._stop)
        native = None if self._is_over(deadline, place) else self._subscribe(deadline, place)
        if native is None:
            self._finish()
            return
        if self._is_below_the_log(native.start):
            native.close()
            self._finish()
            return
        if self._is_remembered and not self.reading.reverse:
            reached = native.start if native.start is not None else self._end(deadline, place)
            if self._check_remembered(reached, native):
                self._open_unnamed(deadline)
                return
        self._begin(native)

    def _is_below_the_log(self, begins: int | None) -> bool:
        """Whether a reverse reading that came back has nothing left: everything below its last record was removed,
        so the broker begins at the first record of the log, which was given before.
        """
        if not self.reading.reverse or self._last is None or begins is None:
            return False
        return isinstance(self._start, int) and begins > self._start

    def _is_over(self, deadline: Deadline, place: PartitionPlace) -> bool:
        """Whether no record can be between start and stop."""
        if not is_empty_range(self._start, self._stop, reverse=self.reading.reverse):
            return False
        if self._is_remembered:
            return not self._check_remembered(self._end(deadline, place))
        return True

    def _subscribe(self, deadline: Deadline, place: PartitionPlace) -> engine.Subscription | None:
        """The native subscription; `None` if the range holds no records."""
        options = self.reading
        wanted = subscribe(options, self._start, self._stop, self._incarnation)
        try:
            return self._pool.run(deadline, lambda native, _left: native.subscribe(wanted, self.bell), place)
        except BrokerError as failure:
            if failure.code == "end_of_stream" or failure.reason == "empty_range":
                return None
            is_paused = failure.reason == "paused" and not options.resume
            raise (self._paused() if is_paused else failure) from None

    def _begin(self, native: engine.Subscription) -> None:
        if native.start is not None and self._start != "earliest":
            self._start = native.start  # so that a reconnect misses nothing that was published meanwhile
        if isinstance(self._start, int):
            self._is_remembered = True
            self._incarnation = self._incarnation or native.incarnation
        with self._lock:
            if not self._closed:
                self._native = native
                return
        native.close()
        raise UsageError("closed", "the subscription is closed")

    def _check_remembered(self, reached: int, native: engine.Subscription | None = None) -> bool:
        """Whether the remembered position is beyond the end `reached` and reading begins elsewhere. If so, `native`,
        which began at that position, is closed.

        Raises:
            StateError: code `offset_out_of_range`, if `auto_offset_reset` is "error".
        """
        options, start = self.reading, self._start
        if options.reverse or not self._is_remembered or not isinstance(start, int) or start <= reached:
            return False
        if native is not None:
            native.close()
        if options.auto_offset_reset == "error":
            raise refusals.beyond_end(self._who(), options.stream, options.partition, start, reached)
        self._start, self._is_remembered, self._last, self.was_reset = options.auto_offset_reset, False, None, True
        return True

    def _who(self) -> str:
        """The owner of the position, for an error message."""
        if self.reading.member is not None:
            return f'group "{self.reading.member.group}"'
        return "the reader" if self.reading.cursor is None else f'cursor "{self.reading.cursor}"'

    def _end(self, deadline: Deadline, place: PartitionPlace) -> int:
        """The high watermark."""
        return requests.read_partition(self._pool.run(deadline, self._ask_end, place)).high_watermark

    def _ask_end(self, native: engine.Client, left_ms: int) -> bytes:
        """The partition's metadata. A paused partition reports no end: it is resumed first, if `resume` allows it."""
        request = requests.partition_metadata(self.reading.stream, self.reading.partition)
        try:
            with engine.native_errors():
                return native.call("FetchPartitionMetadata", request, left_ms)
        except StateError as failure:
            if failure.code != "not_leader":
                raise
            if not self.reading.resume:
                self._refuse_paused(native, left_ms)
                raise
        native.subscribe(subscribe(self.reading, "latest", None)).close()
        return native.call("FetchPartitionMetadata", request, left_ms)

    def _refuse_paused(self, native: engine.Client, left_ms: int) -> None:
        """Raise at once if the partition is paused, instead of retrying until the deadline: it has no leader."""
        request = requests.metadata([self.reading.stream])
        found: list[Stream] = []
        with suppress(BrokerError), engine.native_errors():  # without permission the error of the other call is raised
            found = requests.read_streams(native.call("FetchMetadata", request, left_ms))
        partitions = [item for stream in found for item in stream.partitions]
        if any(item.paused for item in partitions if item.number == self.reading.partition):
            raise self._paused()

    def _paused(self) -> StateError:
        stream, number = self.reading.stream, self.reading.partition
        text = f'partition {number} of stream "{stream}" is paused: subscribe with resume, or bascule stream resume '
        return StateError("failed_precondition", text + stream, {"stream": stream, "partition": number})

    def _look_up_cursor(self, deadline: Deadline) -> None:
        options = self.reading
        if self._looked_up or options.cursor is None:
            return
        found = cursors.find(self._pool, deadline, CursorPlace(options.cursor, options.stream, options.partition))
        if (following := found.following) is not None:
            self._start = self.remembered = following
            self._is_remembered = True
        self._incarnation = found.incarnation
        self._looked_up = True
