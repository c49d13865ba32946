"""Reading one partition over Iggy's protocol, whose polls do not wait: the subscription polls until records come."""

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, cast

from bascule import engine
from bascule.client._core.batch import Batch
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.deadline import Deadline
from bascule.client._core.requests.bounds import nanoseconds
from bascule.client._core.subscribe_options import SubscribeOptions
from bascule.client._core.subscription import Subscription
from bascule.client._iggy.columns import Columns
from bascule.client._iggy.failures import unavailable_method
from bascule.client._iggy.wire import Message, Polled, Strategy
from bascule.errors import StateError, UsageError

if TYPE_CHECKING:
    from bascule.client._iggy.topics import Topics

__all__ = ["IggySubscription"]

WAIT_S: Final = 0.5
POLLS_S: Final = (0.005, 0.01, 0.02, 0.05, 0.1)
"""Seconds between polls that find nothing: rising, then the last one."""


class IggySubscription(Subscription):
    """As `Subscription`; opening resolves start and stop to offsets where it can."""

    def __init__(self, topics: "Topics", options: SubscribeOptions, *, timeout: float, reconnect: float) -> None:
        """Use `Client.subscribe`.

        Raises:
            UsageError: code `unimplemented`: an option that the protocol lacks.
        """
        _check(options)
        # The pool is of the Liftbridge protocol: every method that would use it is replaced here.
        super().__init__(cast("ConnectionPool", None), options, timeout=timeout, reconnect=reconnect)
        self._topics: Final = topics
        self._is_open = False
        self._before = 0

    def open(self) -> None:
        if self._closed:
            raise UsageError("closed", "the subscription is closed")
        if self._is_open or self._ended:
            return
        deadline, options = Deadline(self._timeout), self.reading
        end = self._topics.end(options.stream, options.partition, deadline)
        self._before = self._topics.link.reconnects
        self._look_up_position(deadline)
        if self._stop == "latest":
            self._stop = end
        start = self._start
        if start == "latest":
            start = max(0, end - 1)
        elif start == "new":
            start = end
        elif start == "earliest":
            start = 0
        elif isinstance(start, datetime):
            found = self._poll((Strategy.TIMESTAMP, _micros(start)), 1, deadline).messages
            start = found[0].offset if found else end
        self._start = min(start, end)
        self._is_open = True
        self._end_if_over()

    def next_batch(self, timeout: float | None = None) -> Batch | None:
        if self._ended:
            return None
        self.open()
        until = time.monotonic() + (WAIT_S if timeout is None else timeout)
        pauses = iter(POLLS_S)
        while not self._ended:
            deadline = Deadline(self._reconnect)
            polled = self._poll((Strategy.OFFSET, self._offset()), self._count(), deadline)
            self.reconnects = self._topics.link.reconnects - self._before
            if not polled.messages and self._offset() > polled.current + 1:
                raise self._beyond_end(polled.current)
            messages = self._within(polled.messages)
            if messages:
                return self._batch(messages)
            left = until - time.monotonic()
            if left <= 0 or self._ended:
                break
            time.sleep(min(left, next(pauses, POLLS_S[-1])))
            if self._closed:
                raise UsageError("closed", "the subscription is closed")
        return None

    def commit(self, timeout: float | None = None) -> int | None:
        options = self.reading
        if options.cursor is None:
            raise UsageError("invalid_argument", "the subscription has no cursor: subscribe with cursor=…")
        if self._last is not None:
            deadline = Deadline(self._timeout if timeout is None else timeout)
            self._topics.store(options.cursor, options.stream, options.partition, self._last, deadline)
        return self._last

    def close(self) -> None:
        self._closed = True

    def _look_up_position(self, deadline: Deadline) -> None:
        options = self.reading
        if self._looked_up or options.cursor is None:
            return
        found = self._topics.stored(options.cursor, options.stream, options.partition, deadline)
        if found is not None:
            self._start = self.remembered = found + 1
        self._looked_up = True

    def _offset(self) -> int:
        return self._start if isinstance(self._start, int) else 0

    def _count(self) -> int:
        most = self.reading.batch_records
        return min(most, self._stop - self._offset()) if isinstance(self._stop, int) else most

    def _poll(self, strategy: tuple[Strategy, int], count: int, deadline: Deadline) -> Polled:
        return self._topics.poll(self.reading.stream, self.reading.partition, strategy, count, deadline)

    def _within(self, messages: list[Message]) -> list[Message]:
        """Those before the stop; ends the subscription where none can follow."""
        stop = self._stop
        if isinstance(stop, int):
            kept = [item for item in messages if item.offset < stop]
        elif isinstance(stop, datetime):
            limit = _micros(stop)
            kept = [item for item in messages if item.timestamp_us < limit]
            if not messages and datetime.now(UTC).timestamp() * 1e6 >= limit:
                self._ended = True
        else:
            return messages
        if len(kept) < len(messages):
            self._ended = True
        return kept

    def _batch(self, messages: list[Message]) -> Batch:
        batch = Batch(cast("engine.RecordBatch", Columns(messages)), self.reading.stream, self.reading.partition)
        self._last = messages[-1].offset
        self._start = self._last + 1
        self._end_if_over()
        return batch

    def _beyond_end(self, current: int) -> StateError:
        options, position = self.reading, self._offset()
        text = (
            f'the reader is at offset {position} of partition {options.partition} of stream "{options.stream}", whose'
            f" newest is {current}: it was purged, or the broker lost records; subscribe again from where to continue"
        )
        return StateError("offset_out_of_range", text, {"stream": options.stream, "position": position})

    def _end_if_over(self) -> None:
        if isinstance(self._stop, int) and self._offset() >= self._stop:
            self._ended = True


def _check(options: SubscribeOptions) -> None:
    """Refuse by name what the protocol lacks."""
    plain = SubscribeOptions(stream=options.stream)
    for name in ("reverse", "resume", "from_replica", "subject", "auto_offset_reset"):
        if getattr(options, name) != getattr(plain, name):
            raise unavailable_method(f"{name} of subscribe")


def _micros(instant: datetime) -> int:
    """Microseconds since 1970, at least 0."""
    return max(0, nanoseconds(instant) // 1000)
