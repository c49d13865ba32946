"""A member of a consumer group over Iggy's protocol.

The consumer has a connection of its own, which is the member: the broker deals the partitions of a topic out among the
connections that have joined, and ends the membership with the connection. The protocol says nothing when that changes,
so the consumer asks once a second which partitions it reads. It fences nobody: while partitions move, two members may
read one for as long, and the position that is stored last counts.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from bascule.client._core.batch import Batch
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.consumer_config import ConsumerConfig
from bascule.client._core.consumer_core import Change, ConsumerCore
from bascule.client._core.deadline import Deadline
from bascule.client._core.membership import Assignment
from bascule.client._iggy.columns import Columns
from bascule.client._iggy.failures import unavailable_method
from bascule.client._iggy.groups import Group
from bascule.client._iggy.link import Link
from bascule.client._iggy.topics import Topics
from bascule.errors import BrokerError, StateError, UsageError, error

if TYPE_CHECKING:
    from bascule import engine

__all__ = ["IggyConsumerCore"]

REFRESH_S: Final = 1.0
"""Seconds between two questions about the assignment."""
POLL_S: Final = 0.05
"""Seconds between polls that find nothing."""


@dataclass(slots=True)
class _Read:
    """A partition that is read. Offsets are those of records; −1 = none. `position`: of the next one."""

    position: int
    given: int = -1
    processed: int = -1
    stored: int = -1


class IggyConsumerCore(ConsumerCore):
    """As `ConsumerCore`. For one thread at a time."""

    def __init__(self, link: Link, config: ConsumerConfig, *, timeout: float, reconnect: float) -> None:
        """Use `Client.consumer`. `link`: of this consumer alone, which closes it.

        Raises:
            UsageError: code `unimplemented`: an option that the protocol lacks.
        """
        for name, plain in (("subject", None), ("auto_offset_reset", "error"), ("resume", False)):
            if getattr(config, name) != plain:
                raise unavailable_method(f"{name} of consumer")
        # The pool is of the Liftbridge protocol: every method that would use it is replaced here.
        super().__init__(cast("ConnectionPool", None), config, timeout=timeout, reconnect=reconnect)
        self._link: Final = link
        self._topics: Final = Topics(link)
        self._groups: Final = {name: Group(link, name, config.group) for name in config.streams}
        self._reads: Final[dict[Assignment, _Read]] = {}
        self._client = 0
        self._connection = 0
        self._refresh = 0.0

    @property
    def assignment(self) -> frozenset[Assignment]:
        return frozenset(self._reads)

    def open(self) -> None:
        if self._state == "closed":
            raise UsageError("closed", "the consumer is closed")
        if self._state == "new":
            self._join(Deadline(self._timeout))
            self._state = "open"
            self._put_off_commit()

    def _join(self, deadline: Deadline) -> None:
        while True:
            self._link.open(deadline)
            self._connection = self._link.reconnects
            self._client = self._topics.me(deadline)
            for group in self._groups.values():
                group.join(deadline)
            # A connection that was made meanwhile is not the one that has joined.
            if self._connection == self._link.reconnects:
                self._refresh = 0.0
                return

    # -- reading ----------------------------------------------------------------------------------------------------
    def finish(self, change: Change) -> None:
        if self._changes and self._changes[0] is change:
            self._changes.popleft()
        if change.kind != "assigned":
            self._drop(change.partitions)

    def give(self, batch: Batch, offset: int | None = None) -> None:
        read = self._reads.get(Assignment(batch.stream, batch.partition))
        if read is not None:
            read.given = batch.offsets[-1] if offset is None else offset

    def process_given(self) -> None:
        for read in self._reads.values():
            read.processed = max(read.processed, read.given)

    def _wait(self, rung: int, seconds: float) -> None:
        self._bell.wait(rung, max(1, round(min(seconds, POLL_S) * 1000)))

    def _places(self) -> list[Assignment]:
        return list(self._reads)

    def _read(self, place: Assignment) -> Batch | None:
        read = self._reads[place]
        count, deadline = self._config.batch_records, Deadline(self._reconnect)
        polled = self._groups[place.stream].poll(place.partition, read.position, count, deadline)
        if polled.messages:
            read.position = polled.messages[-1].offset + 1
            columns = cast("engine.RecordBatch", Columns(polled.messages))
            return Batch(columns, place.stream, place.partition)
        if read.position > polled.current + 1:
            position, read.position = read.position, 0
            read.given = read.processed = read.stored = -1
            text = (
                f'the group is at offset {position} of partition {place.partition} of stream "{place.stream}", whose'
                f" newest is {polled.current}: it was purged, and is read from its beginning now"
            )
            raise StateError("offset_out_of_range", text, {"stream": place.stream, "position": position})
        return None

    # -- following the group ------------------------------------------------------------------------------------------
    def _change(self) -> Change | None:
        if not self._changes:
            self._follow()
        if not self._changes:
            return None
        change = self._changes[0]
        if change.kind == "assigned":
            self._changes.popleft()
        elif change.kind == "revoked" and self._config.commit_interval is not None:
            # A failed store must not keep the partition, others may already read it: the failure is raised later.
            self._try_to_store(change.partitions)
        return change

    def _follow(self) -> None:
        """Ask which partitions are this member's, and queue what has changed."""
        if self._link.reconnects == self._connection and time.monotonic() < self._refresh:
            return
        assigned = self._assigned(Deadline(self._reconnect))
        if assigned is None:
            lost = tuple(sorted(self._reads))
            self._join(Deadline(self._reconnect))
            if lost:
                self._changes.append(Change("lost", lost))
            return
        self._refresh = time.monotonic() + REFRESH_S
        gone = tuple(sorted(self._reads.keys() - assigned))
        if gone:
            self._refresh = 0.0
            self._changes.append(Change("revoked", gone))
            return
        new = tuple(sorted(assigned - self._reads.keys()))
        self._reads.update({place: self._start_of(place) for place in new})
        if new:
            self._changes.append(Change("assigned", new))

    def _assigned(self, deadline: Deadline) -> set[Assignment] | None:
        """The partitions of the connection that has joined; `None` = it is gone, or a member no more."""
        found = set[Assignment]()
        for name, group in self._groups.items():
            partitions = group.assigned(self._client, deadline)
            if partitions is None or self._link.reconnects != self._connection:
                return None
            found.update(Assignment(name, partition) for partition in partitions)
        return found

    def _start_of(self, place: Assignment) -> _Read:
        deadline, start = Deadline(self._timeout), self._config.start
        stored = self._groups[place.stream].stored(place.partition, deadline)
        if stored is not None:
            return _Read(stored + 1, stored, stored, stored)
        if start == "earliest":
            return _Read(0)
        if start == "error":
            text = (
                f'group "{self._config.group}" has no stored position in partition {place.partition} of stream '
                f'"{place.stream}": store one, or start at "earliest", "latest" or "new"'
            )
            raise error("not_found", text, {"stream": place.stream, "partition": place.partition})
        end = self._topics.end(place.stream, place.partition, deadline)
        return _Read(end if start == "new" else max(0, end - 1))

    def _drop(self, places: Iterable[Assignment]) -> None:
        for place in places:
            self._reads.pop(place, None)

    # -- positions ----------------------------------------------------------------------------------------------------
    def commit(self, batch: Batch | None, timeout: float | None) -> None:
        deadline = Deadline(self._timeout if timeout is None else timeout)
        if batch is None:
            self.process_given()
            for place in tuple(self._reads):
                self._store_one(place, deadline)
            return
        place = Assignment(batch.stream, batch.partition)
        read = self._reads.get(place)
        if read is None:
            text = f'partition {place.partition} of stream "{place.stream}" is no longer assigned to this consumer'
            raise StateError("failed_precondition", text, place._asdict())
        read.processed = max(read.processed, batch.offsets[-1])
        self._store_one(place, deadline)

    def _commit_if_due(self) -> None:
        if self._config.commit_interval is not None and time.monotonic() >= self._next_commit:
            self._put_off_commit()
            self._try_to_store(tuple(self._reads))

    def _store_one(self, place: Assignment, deadline: Deadline) -> None:
        read = self._reads.get(place)
        if read is not None and read.processed > read.stored:
            self._groups[place.stream].store(place.partition, read.processed, deadline)
            read.stored = read.processed

    def _try_to_store(self, places: Iterable[Assignment]) -> None:
        """Store positions; failures are raised later."""
        for place in places:
            try:
                self._store_one(place, Deadline(self._timeout))
            except BrokerError as failure:
                self._deferred.append(failure)

    # -- the end ------------------------------------------------------------------------------------------------------
    def begin_close(self, *, processed: bool) -> tuple[Change | None, list[BrokerError]]:
        was_open, self._state = self._state == "open", "closed"
        if not was_open:
            return None, []
        self._changes.clear()
        if processed:
            self.process_given()
        if self._config.commit_interval is not None:
            self._try_to_store(tuple(self._reads))
        return (Change("revoked", tuple(sorted(self._reads))) if self._reads else None), self._deferred

    def end_close(self) -> list[BrokerError]:
        failures = list[BrokerError]()
        for group in self._groups.values() if self._client else ():
            try:
                group.leave(Deadline(self._timeout))
            except BrokerError as failure:
                failures.append(failure)
        self._client = 0
        self._drop(tuple(self._reads))
        self._link.close()
        return failures
