"""Reading one partition, batch by batch.

States: not open, open, ended. Opening resolves "stop at what is stored now" to an offset, so that coming back after a
lost connection keeps the same end.
"""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Final, Self

from bascule import engine
from bascule.client import requests
from bascule.client.batch import Batch
from bascule.client.deadline import Deadline
from bascule.client.link import Link
from bascule.client.naming import naming
from bascule.client.types import Record, Start, Stop
from bascule.errors import BrokerError, UsageError

__all__ = ["Subscription"]

WAIT_MS: Final = 500
"""Longest single wait in the native core."""
_EMPTY: Final = ("Stop offset is before start offset", "Failed to lookup offset for timestamp")
"""How the broker says that a range holds nothing."""


class Subscription:
    """Records of one partition, in order. Iterating gives batches; `records` gives them one by one. Iteration ends at
    the stop position; without one it waits for new records for ever. For one thread.
    """

    def __init__(
        self,
        link: Link,
        stream: str,
        *,
        partition: int,
        start: Start,
        stop: Stop,
        resume: bool,
        batch_records: int,
        patience: tuple[float, float],
    ) -> None:
        """Use `Client.subscribe`."""
        self._link: Final = link
        self._stream: Final = stream
        self._partition: Final = partition
        self._start: Start = start
        self._stop: Stop = stop
        self._resume: Final = resume
        self._batch_records: Final = batch_records
        self._timeout, self._reconnect = patience
        self._lock: Final = threading.Lock()
        self._native: engine.Subscription | None = None
        self._ended = False
        self._closed = False
        self.reconnects = 0
        """How often the subscription has come back after its broker went away."""

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
        """Where reading goes on: the offset behind the last record given, or the start before there was any."""
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
        """The next records that are there, 1 to `batch_records`, waiting for the first.

        Args:
            timeout: seconds to wait; `None` = until something comes, at most half a second at a time.

        Returns:
            `None` when nothing came in time, and when the stop position was reached (`ended` is then true).

        Raises:
            StateError: the stream was deleted, or the partition paused.
            UnavailableError: the broker went away and did not come back in time.
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
                found = native.next_batch(self._batch_records, WAIT_MS if timeout is None else round(timeout * 1000))
        except BrokerError as failure:
            self._recover(failure)
            return None
        if found is None:
            return None
        batch = Batch(found, self._stream, self._partition)
        self._start = batch.offsets[-1] + 1
        return batch

    def close(self) -> None:
        """End it. Idempotent; a wait in another thread ends with `closed`."""
        with self._lock:
            native, self._native, self._closed = self._native, None, True
        if native is not None:
            native.close()

    def _recover(self, failure: BrokerError) -> None:
        """Come back, or end, or raise."""
        if failure.code == "end_of_stream":
            self._finish()
        elif failure.code == "unavailable" and not self._closed:
            self._native = None
            self.reconnects += 1
            self._open(self._reconnect)
        else:
            raise failure

    def _finish(self) -> None:
        self._ended = True
        with self._lock:
            native, self._native = self._native, None
        if native is not None:
            native.close()

    def _open(self, seconds: float) -> None:
        with naming(self._stream, partition=self._partition):
            self._open_unnamed(seconds)

    def _open_unnamed(self, seconds: float) -> None:
        deadline = Deadline(seconds)
        if self._stop == "latest":
            request = requests.partition_metadata(self._stream, self._partition)
            answer = self._link.run(deadline, lambda native, left: native.call("FetchPartitionMetadata", request, left))
            self._stop = requests.read_partition(answer).high_watermark
        if requests.is_empty_range(self._start, self._stop):
            self._finish()
            return
        wanted = requests.subscribe(self._stream, self._partition, self._start, self._stop, resume=self._resume)
        try:
            native = self._link.run(deadline, lambda native, _left: native.subscribe(wanted))
        except BrokerError as failure:
            if failure.code == "end_of_stream" or str(failure).startswith(_EMPTY):
                self._finish()
                return
            raise
        with self._lock:
            if not self._closed:
                self._native = native
                return
        native.close()
        raise UsageError("closed", "the subscription is closed")
