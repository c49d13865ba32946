"""Publishing in the background: records are collected in a native batch while the previous one is sent."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeAlias

from bascule import engine
from bascule._text import counted
from bascule.client._core.leaving import leaving
from bascule.client._core.partitioning import number_of
from bascule.client._core.pipelined_publish import Outgoing, partition_of, receipts
from bascule.client._core.types import Content, Headers, Receipt
from bascule.errors import BrokerError, UnavailableError, UsageError

__all__ = ["UNPUBLISHED", "OnAck", "Producer"]

OnAck: TypeAlias = Callable[[list[Receipt]], object]
"""Called with the receipts of acknowledged records, in order."""

UNPUBLISHED: Final = "and the remaining records of the producer could not be published: {}"
"""Note of an exception that leaves the context of a producer."""

MAX_RECORDS: Final = 50_000
"""Maximum number of records of one call into the native core."""
BATCH_BYTES: Final = 16 << 20
"""Approximate size, in bytes, at which a batch is closed."""


@dataclass(slots=True)
class _Group:
    """Records that are published together."""

    batch: Outgoing
    records: int = 0
    bytes: int = 0
    futures: dict[int, "Future[Receipt]"] = field(default_factory=dict[int, "Future[Receipt]"])


class Producer:
    """Publishes in its own thread, in order, with a bounded number of unacknowledged records and bytes. Safe to share
    between threads.

    A failed publish is always reported: the next `send`, `flush` or `close` raises the first failure since the last one
    that was raised; its details hold the number of records that are not known to be stored (`unstored`). Records after
    a failed batch are still published. `close`, and leaving the context, publish the remaining records or raise, and
    end the thread.
    """

    def __init__(  # noqa: PLR0913 (everything is keyword-only)
        self,
        *,
        make: Callable[[], Outgoing],
        publish: Callable[[Outgoing], None],
        choose: Callable[[Content | None, Content | None, int], int] | None,
        batch_records: int,
        most: tuple[int, int],
        on_ack: OnAck | None,
    ) -> None:
        """Use `Client.producer`.

        Raises:
            UsageError: code `invalid_argument`: a number out of range.
        """
        _check_bound("batch_records", batch_records, MAX_RECORDS)
        _check_bound("max_in_flight", most[0])
        _check_bound("max_in_flight_bytes", most[1])
        self._make: Final = make
        self._publish: Final = publish
        self._choose: Final = choose
        self._batch_records: Final = batch_records
        self._most_records, self._most_bytes = most
        self.on_ack = on_ack
        """Called with the receipts of each batch; `None` = not called. Set it before the first record."""
        self._lock: Final = threading.RLock()
        self._changed: Final = threading.Condition(self._lock)
        self._front: Final[deque[_Group]] = deque()
        self._records = 0
        self._bytes = 0
        self._thread: threading.Thread | None = None
        self._idle = False
        self._closed = False
        self._abandoned = False
        self._failure: Exception | None = None
        self._unstored = 0
        self.published = 0
        """Number of records acknowledged so far (with ack `none`: sent)."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        with leaving(failure, UNPUBLISHED):
            self.close()

    @property
    def in_flight(self) -> int:
        """Number of records accepted and not yet acknowledged."""
        return self._records

    def prepare(self) -> None:
        """Fetch the number of partitions of the stream now instead of at the first record.

        Raises:
            StateError: code `stream_not_found`.
            UnavailableError: no broker answered in time.
        """
        self._make()

    def send(self, value: Content | None, *, key: Content | None = None, headers: Headers | None = None) -> None:
        """Accept one record and copy it; waits while too much is in flight.

        Args:
            value: any bytes, or text, at most the stream's `max_record_bytes`; `None` = a tombstone.
            key: any bytes, or text; empty is the same as `None`.
            headers: names and values, in which names may repeat.

        Raises:
            BrokerError: earlier records could not be published; this one was not accepted.
            UsageError: code `closed`.
            TypeError: neither bytes nor text.
        """
        with self._lock:  # takes half the time of entering the condition
            full = self._records >= self._most_records or self._bytes >= self._most_bytes
            if full or self._failure is not None or self._closed:
                self._wait_for_room()
            self._take(value, key, headers)

    def submit(
        self, value: Content | None, *, key: Content | None = None, headers: Headers | None = None
    ) -> "Future[Receipt]":
        """As `send`; returns a future of the record's receipt or failure. The next `send`, `flush` or `close` raises
        the failure too.
        """
        receipt: Future[Receipt] = Future()
        receipt.set_running_or_notify_cancel()  # cannot be cancelled: the record may already be sent
        with self._changed:
            self._wait_for_room()
            group = self._take(value, key, headers)
            group.futures[group.records - 1] = receipt
        return receipt

    def try_send(self, value: Content | None, *, key: Content | None = None, headers: Headers | None = None) -> bool:
        """As `send`, without waiting; false = too much is in flight, and the record was not accepted."""
        with self._changed:
            if self._is_full():
                return False
            self._wait_for_room()
            self._take(value, key, headers)
            return True

    def send_many(
        self,
        values: Sequence[Content | None],
        *,
        keys: Sequence[Content | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """Accept all records or none, and copy them; waits while too much is in flight. Faster than one by one.

        Args:
            values: n ≥ 0 values, at most 50,000.
            keys: as many keys, or `None` for records without.
            headers: as many sets of headers, or `None` for records without.

        Raises:
            BrokerError: as `send`.
            UsageError: code `closed`; `invalid_argument`: too many.
            ValueError: columns of different lengths.
            TypeError: neither bytes nor text.
        """
        if not values:
            return
        group = _Group(self._make(), len(values))
        with engine.native_errors():
            group.bytes = self._fill(group.batch, keys, values, headers)
        with self._changed:
            self._wait_for_room()
            self._front.append(group)
            self._records += group.records
            self._bytes += group.bytes
            self._wake()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until nothing is in flight.

        Args:
            timeout: seconds; `None` = as long as the batches' own timeouts last.

        Raises:
            BrokerError: records could not be published.
            UnavailableError: code `deadline_exceeded`: the time is up; records in flight stay in flight.
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            if not self._drained(end):
                records = counted(self._records, "record")
                text = f"not acknowledged within {timeout:g} s and still in flight: {records}"
                raise UnavailableError("deadline_exceeded", text, {"in_flight": self._records})
            self._raise_failure()

    def close(self, timeout: float | None = None) -> None:
        """Publish the accepted records, accept no more, and wait until the producer's thread has ended. Idempotent.

        Args:
            timeout: seconds; after it, batches that were not started are dropped and reported. `None` = as long as the
                batches' own timeouts last.

        Raises:
            BrokerError: records could not be published, or were dropped (`unavailable`).
        """
        end = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            if not self._drained(end):
                self._abandoned = True
            thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with self._changed:
            self._raise_failure()

    # -- under the lock -----------------------------------------------------------------------------------------------
    def _wait_for_room(self) -> None:
        while True:
            self._raise_failure()
            if self._closed:
                raise UsageError("closed", "the producer is closed")
            if not self._is_full():
                return
            self._changed.wait()

    def _is_full(self) -> bool:
        return self._records >= self._most_records or self._bytes >= self._most_bytes

    def _take(self, value: Content | None, key: Content | None, headers: Headers | None) -> _Group:
        group = self._front[-1] if self._front else None
        if group is None or group.records >= self._batch_records or group.bytes >= BATCH_BYTES:
            group = _Group(self._make())
            self._front.append(group)
        try:
            if self._choose is None:
                held = group.batch.push(key, value, headers)
            else:
                held = self._push_chosen(group.batch, key, value, headers)
        except BaseException:
            if not group.records:
                self._front.pop()
            raise
        self._bytes += held - group.bytes
        self._records += 1
        group.bytes = held
        group.records += 1
        if self._idle or self._thread is None:
            self._wake()
        return group

    def _push_chosen(self, batch: Outgoing, key: Content | None, value: Content | None, headers: Headers | None) -> int:
        """Add a record to the partition that the application's function chooses."""
        assert isinstance(batch, engine.Spread)
        with engine.native_errors():
            return batch.push(key, value, headers, number_of(self._choose, batch.partitioner, key, value))

    def _fill(
        self,
        batch: Outgoing,
        keys: Sequence[Content | None] | None,
        values: Sequence[Content | None],
        headers: Sequence[Headers | None] | None,
    ) -> int:
        if self._choose is None or not isinstance(batch, engine.Spread):
            return batch.fill(keys, values, headers)
        rows = zip(keys or [None] * len(values), values, strict=True)
        chosen = [number_of(self._choose, batch.partitioner, key, value) for key, value in rows]
        return batch.fill(keys, values, headers, chosen)

    def _wake(self) -> None:
        """Wake the thread: there is a batch to publish."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="bascule-producer", daemon=True)
            self._thread.start()
        elif self._idle:
            self._changed.notify_all()

    def _drained(self, end: float | None) -> bool:
        """Wait until nothing is in flight; false when the time is up."""
        while self._records:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            self._changed.wait(left)
        return True

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is None:
            return
        if isinstance(failure, BrokerError):
            failure.details["unstored"] = self._unstored
        self._unstored = 0
        raise failure

    # -- the thread ---------------------------------------------------------------------------------------------------
    def _work(self) -> None:
        while (group := self._next_group()) is not None:
            failure: Exception | None = None
            try:
                self._send_out(group)
            except Exception as caught:  # noqa: BLE001 (reported to the caller, whatever it is)
                failure = caught
            self._finish(group, failure)

    def _send_out(self, group: _Group) -> None:
        if self._abandoned:
            raise UnavailableError("unavailable", "the producer was closed before this was sent")
        self._publish(group.batch)

    def _next_group(self) -> _Group | None:
        with self._changed:
            while not self._front:
                if self._closed:
                    return None
                self._idle = True
                self._changed.wait()
                self._idle = False
            return self._front.popleft()

    def _finish(self, group: _Group, failure: Exception | None) -> None:
        """Report the outcome of a group; the group stays in flight until all have been notified."""
        stored = group.records
        if failure is not None:
            stored = int(failure.details.get("acknowledged", 0)) if isinstance(failure, BrokerError) else 0
        try:
            self._report(group, failure)
        except Exception as raised:  # noqa: BLE001 (the next call raises an exception of a callback)
            failure = failure or raised
        with self._changed:
            self.published += stored
            self._unstored += group.records - stored
            self._failure = self._failure or failure
            self._records -= group.records
            self._bytes -= group.bytes
            self._changed.notify_all()

    def _report(self, group: _Group, failure: Exception | None) -> None:
        if not group.futures and (self.on_ack is None or failure is not None):
            return
        places = group.batch.places()
        for index, future in group.futures.items():
            place = places[index] if index < len(places) else (-1, 0, partition_of(group.batch, index))
            if failure is None or place[0] >= 0:
                future.set_result(Receipt._make(place))
            else:
                future.set_exception(failure)
        if self.on_ack is not None and failure is None and places:
            self.on_ack(receipts(places))


def _check_bound(name: str, value: int, most: int | None = None) -> None:
    if value < 1 or (most is not None and value > most):
        bound = "1 or more" if most is None else f"1 to {most}"
        raise UsageError("invalid_argument", f"{name} is {bound}, not {value}")
