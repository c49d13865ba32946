"""A consumer without its callbacks: follows its membership, reads its partitions in turn, stores positions.

`advance` returns a batch, or a `Change` for the application; `finish` completes the change after the callback. So the
synchronous and the asynchronous consumer run callbacks in their own way, in the order of events.

Positions: a batch counts as processed when the next one is requested, or when the consumer is closed without a
failure. Positions of processed records are stored periodically, before a partition is given up, and at the end.
A partition that stays assigned is read on from its position, but never before a position that another member stored
meanwhile.

A purge or a deletion ends the incarnation of a partition: the consumer drops the partition's position, notifies the
application once, and reads the next incarnation from its beginning. If the broker reports the incarnation, a position
of one incarnation is never stored or continued in another.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from bascule import engine
from bascule.client._core import cursors, requests
from bascule.client._core.batch import Batch
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.consumer_config import ConsumerConfig
from bascule.client._core.deadline import Deadline
from bascule.client._core.error_context import error_context
from bascule.client._core.fencing import Fencing, is_fenced
from bascule.client._core.membership import Assignment, Membership, MembershipState
from bascule.client._core.routes import CursorPlace, PartitionPlace
from bascule.client._core.subscribe_options import Member, SubscribeOptions
from bascule.client._core.subscription import Subscription
from bascule.errors import BrokerError, StateError, UsageError, error

__all__ = ["Change", "ConsumerCore"]

_GONE: Final = frozenset({"stream_not_found", "partition_not_found"})
"""Error codes that mean that the incarnation that was read has ended."""
_RETRY_SECONDS: Final = 1.0
"""Seconds before a partition that could not be read, or that ended, is tried again."""
_WAIT_SECONDS: Final = 0.5
"""Longest single wait, in seconds."""


@dataclass(frozen=True, slots=True)
class Change:
    """Partitions that were assigned, are about to be revoked, or were lost."""

    kind: Literal["assigned", "revoked", "lost"]
    partitions: tuple[Assignment, ...]
    """One or more, in order."""


@dataclass(slots=True)
class _Owned:
    """A partition that this consumer reads. Offsets are those of records; −1 = none."""

    subscription: Subscription
    given: int = -1
    processed: int = -1
    stored: int = -1
    again: float = 0.0
    """Earliest time of the next read, on the monotonic clock."""
    is_gone: bool = False
    """Its incarnation ended: reading starts again from the beginning."""
    since: int = 0
    """Generation of the group in which it was assigned; records from before do not count."""
    is_reset: bool = False
    """The stored position is beyond the end and reading began elsewhere: the stored position is ignored."""

    @property
    def incarnation(self) -> int:
        """Incarnation of the partition that the offsets belong to; 0 = not known."""
        return self.subscription.reading.incarnation

    def forget(self) -> None:
        """Drop all positions: the incarnation has ended."""
        self.given = self.processed = self.stored = -1
        self.is_gone = True

    def note_reset(self) -> None:
        """Drop positions from before the subscription was reset to another offset."""
        if self.subscription.was_reset:
            self.subscription.was_reset = False
            self.given = self.processed = self.stored = -1
            self.is_reset = True


class ConsumerCore:
    """See the module. For one thread at a time."""

    def __init__(self, pool: ConnectionPool, config: ConsumerConfig, *, timeout: float, reconnect: float) -> None:
        """Does not join the group yet.

        Raises:
            UsageError: code `invalid_argument`: an invalid id, or no stream.
        """
        self._pool: Final = pool
        self._config: Final = config
        self._timeout: Final = timeout
        self._reconnect: Final = reconnect
        self._cursor: Final = cursors.group_cursor(config.group)
        self._bell: Final = engine.Bell()
        self._membership: Final = Membership(pool, config.group, config.consumer, config.streams, self._bell.ring)
        self._fenced_reads: Final = Fencing(self._membership, config.group)
        self._fenced_stores: Final = Fencing(self._membership, config.group)
        self._owned: Final[dict[Assignment, _Owned]] = {}
        self._changes: Final[deque[Change]] = deque()
        self._deferred: Final[list[BrokerError]] = []
        self._followed = MembershipState(0, 0, frozenset())
        self._turn = 0
        self._interrupted = False
        self._next_commit = 0.0
        self._state: Literal["new", "open", "closed"] = "new"

    @property
    def assignment(self) -> frozenset[Assignment]:
        """The partitions that it reads."""
        return frozenset(self._owned)

    def open(self) -> None:
        """Join the group. Idempotent.

        Raises:
            BrokerError: as `Membership.join`; `closed`.
        """
        if self._state == "closed":
            raise UsageError("closed", "the consumer is closed")
        if self._state == "new":
            self._membership.join(Deadline(self._timeout))
            self._state = "open"
            self._put_off_commit()

    # -- reading ----------------------------------------------------------------------------------------------------
    def advance(self, timeout: float | None) -> Batch | Change | None:
        """The next batch or change; `None` if neither came within `timeout` seconds (`None` = half a second)."""
        self.open()
        if self._deferred:
            raise self._deferred.pop(0)
        self.process_given()
        end = time.monotonic() + (_WAIT_SECONDS if timeout is None else timeout)
        while not self._interrupted:
            rung = self._bell.wait(0, 0)
            found = self._change() or self._poll()
            if found is not None:
                return found
            self._commit_if_due()
            left = end - time.monotonic()
            if left <= 0:
                return None
            self._wait(rung, min(left, _WAIT_SECONDS))
        return None

    def interrupt(self) -> None:
        """End the current and every later `advance`; may be called from any thread."""
        self._interrupted = True
        self._bell.ring()

    def finish(self, change: Change) -> None:
        """Complete a change, after the application was notified."""
        if self._changes and self._changes[0] is change:
            self._changes.popleft()
        if change.kind != "assigned":
            self._drop(change.partitions)
            self._membership.release(frozenset(self._owned))

    def give(self, batch: Batch, offset: int | None = None) -> None:
        """Count the records of `batch`, the last one, as given up to `offset` (inclusive); `None` = all of them."""
        owned = self._owned.get(Assignment(batch.stream, batch.partition))
        if owned is not None and not owned.is_gone:
            position = owned.subscription.position
            end = position - 1 if isinstance(position, int) else owned.given
            owned.given = end if offset is None else offset

    def process_given(self) -> None:
        """Count all given records as processed."""
        for owned in self._owned.values():
            owned.processed = max(owned.processed, owned.given)

    def _wait(self, rung: int, seconds: float) -> None:
        retries = [owned.again for owned in self._owned.values() if owned.again]
        until = min([seconds, *(max(0.01, again - time.monotonic()) for again in retries)])
        self._bell.wait(rung, max(1, round(until * 1000)))

    def _places(self) -> list[Assignment]:
        """The partitions that are read."""
        return list(self._owned)

    def _poll(self) -> Batch | None:
        """The next available batch; the partitions take turns."""
        places = self._places()
        for step in range(len(places)):
            place = places[(self._turn + step) % len(places)]
            batch = self._read(place)
            if batch is not None:
                self._turn = (self._turn + step + 1) % len(places)
                return batch
        return None

    def _read(self, place: Assignment) -> Batch | None:
        owned = self._owned[place]
        if owned.again > time.monotonic():
            return None
        owned.again = 0.0
        try:
            if owned.is_gone:
                owned.subscription.close()
                owned = self._owned[place] = self._begin(place, self._followed, is_recreated=True)
            batch = owned.subscription.next_batch(0)
            owned.note_reset()
        except BrokerError as failure:
            owned.again = time.monotonic() + _RETRY_SECONDS
            if failure.code in _GONE:
                owned.forget()
            if not owned.is_gone:
                owned.subscription = self._renewed(owned.subscription)
            if not is_fenced(failure):
                raise
            if self._fenced_reads.is_explained(place, self._followed):
                return None  # another member already reads it: the next heartbeat reports that
            raise self._fenced_reads.error(place, failure) from failure
        if batch is not None:
            self._fenced_reads.clear(place)
        if owned.subscription.ended:
            # the partition is read-only and read to its end, or another member took over
            owned.again = time.monotonic() + _RETRY_SECONDS
            owned.subscription = self._renewed(owned.subscription)
        return batch

    def _renewed(self, old: Subscription) -> Subscription:
        old.close()
        position = old.position
        return self._subscription(replace(old.reading, start=position, is_remembered=isinstance(position, int)))

    def _subscription(self, options: SubscribeOptions) -> Subscription:
        return Subscription(self._pool, options, timeout=self._timeout, reconnect=self._reconnect, bell=self._bell)

    # -- following the membership -------------------------------------------------------------------------------------
    def _change(self) -> Change | None:
        """The next change for the application."""
        if not self._changes:
            self._follow()
        if not self._changes:
            return None
        change = self._changes[0]
        if change.kind == "assigned":
            self._changes.popleft()
        elif change.kind == "revoked" and self._config.commit_interval is not None:
            # a failed store must not keep the partition, others may already read it: the failure is raised later
            self._split_lost(change, self._attempt_store(self._deferred, change.partitions))
        return self._changes[0] if self._changes else change

    def _split_lost(self, change: Change, refused: Collection[Assignment]) -> None:
        """Replace `change`, the next one: partitions whose positions were refused are lost."""
        if refused:
            self._changes.popleft()
            kept = tuple(place for place in change.partitions if place not in refused)
            if kept:
                self._changes.appendleft(replace(change, partitions=kept))
            self._changes.appendleft(Change("lost", tuple(sorted(refused))))

    def _follow(self) -> None:
        """Adjust what is read to the membership, or queue the changes that the application must see first."""
        if self._membership.failure is not None:
            raise self._membership.failure
        if self._membership.state == self._followed:
            return
        state, before = self._membership.follow(), self._followed
        if state.expulsions != before.expulsions and self._owned:
            self._changes.append(Change("lost", tuple(sorted(self._owned))))
            return
        gone = self._owned.keys() - state.assigned
        if gone and state.expulsions == before.expulsions:
            self._changes.append(Change("revoked", tuple(sorted(gone))))
            return
        if state.epoch != before.epoch:
            for place in tuple(self._owned):
                self._read_on(place, state)
        new = tuple(sorted(state.assigned - self._owned.keys()))
        was_recreated = self._membership.was_recreated
        self._owned.update(
            {place: self._begin(place, state, is_recreated=was_recreated(place.stream)) for place in new}
        )
        self._followed = state
        # partitions that could not be started, and are now assigned to others
        self._membership.release(frozenset(self._owned))
        if new:
            self._changes.append(Change("assigned", new))

    def _read_on(self, place: Assignment, state: MembershipState) -> None:
        """Continue a partition that stays assigned, under the new epoch: the broker ends older subscriptions."""
        owned = self._owned[place]
        found = cursors.find(self._pool, Deadline(self._timeout), self._place(place))
        stored, incarnation = found
        if incarnation != owned.incarnation:
            owned.forget()
        if owned.is_gone:
            return  # it will start again, under the epoch of that time
        position = owned.subscription.position
        if stored is not None and not owned.is_reset and (not isinstance(position, int) or stored >= position):
            position = found.following
            owned.stored = stored
        owned.subscription.close()
        owned.subscription = self._subscription(self._subscribe_options(place, state, position, incarnation))
        owned.again = 0.0

    def _begin(self, place: Assignment, state: MembershipState, *, is_recreated: bool = False) -> _Owned:
        """Read a newly assigned partition, after its stored position. `is_recreated`: this member saw the end of an
        earlier incarnation, so all records of the partition are newer.
        """
        found = cursors.find(self._pool, Deadline(self._timeout), self._place(place))
        stored, incarnation = found
        if stored is None:
            first = self._first(place, is_recreated=is_recreated)
            options = self._subscribe_options(place, state, first, incarnation)
            return _Owned(self._subscription(options), since=state.generation)
        subscription = self._subscription(self._subscribe_options(place, state, found.following, incarnation))
        return _Owned(subscription, stored, stored, stored, since=state.generation)

    def _first(self, place: Assignment, *, is_recreated: bool) -> Literal["earliest"] | int:
        """Where the group begins. "new" is resolved to an offset now, so that it survives a lost connection."""
        start = self._config.start
        if start == "earliest" or (is_recreated and start != "error"):
            return "earliest"
        if start == "error":
            text = (
                f'group "{self._config.group}" has no stored position in partition {place.partition} of stream '
                f'"{place.stream}": store one, or start at "earliest", "latest" or "new"'
            )
            raise error("not_found", text, {"stream": place.stream, "partition": place.partition})
        request = requests.partition_metadata(place.stream, place.partition)
        answer = self._pool.run(
            Deadline(self._timeout),
            lambda native, left: native.call("FetchPartitionMetadata", request, left),
            PartitionPlace(place.stream, place.partition),
        )
        end = requests.read_partition(answer).high_watermark
        return end if start == "new" else max(0, end - 1)

    def _subscribe_options(
        self, place: Assignment, state: MembershipState, start: int | object, incarnation: int
    ) -> SubscribeOptions:
        return SubscribeOptions(
            stream=place.stream,
            partition=place.partition,
            start=start,  # pyright: ignore[reportArgumentType]
            is_remembered=isinstance(start, int),
            auto_offset_reset=self._config.auto_offset_reset,
            subject=self._config.subject,
            resume=self._config.resume,
            batch_records=self._config.batch_records,
            member=Member(self._config.group, self._config.consumer, state.epoch, state.generation),
            incarnation=incarnation,
        )

    def _place(self, place: Assignment) -> CursorPlace:
        return CursorPlace(self._cursor, place.stream, place.partition)

    def _drop(self, places: Iterable[Assignment]) -> None:
        for place in places:
            owned = self._owned.pop(place, None)
            if owned is not None:
                owned.subscription.close()

    # -- positions ----------------------------------------------------------------------------------------------------
    def commit(self, batch: Batch | None, timeout: float | None) -> None:
        """Store the positions of processed records, or the end of `batch`."""
        deadline = Deadline(self._timeout if timeout is None else timeout)
        is_expelled = self._membership.state.expulsions != self._followed.expulsions
        if batch is None and not (is_expelled and self._owned):
            self.process_given()
            for failure in self._store(tuple(self._owned), deadline).values():
                raise failure
            return
        if batch is None:
            text = f'consumer "{self._config.consumer}" was expelled from group "{self._config.group}"'
            raise StateError("failed_precondition", text, {"group": self._config.group})
        place = Assignment(batch.stream, batch.partition)
        owned = self._owned.get(place)
        if owned is None or is_expelled or batch.is_from_before(owned.since):
            text = f'partition {place.partition} of stream "{place.stream}" is no longer assigned to this consumer'
            raise StateError("failed_precondition", text, place._asdict())
        if owned.is_gone or batch.incarnation != owned.incarnation:
            text = f'the records of this batch no longer exist: stream "{place.stream}" was deleted or purged'
            raise StateError("stream_not_found", text, place._asdict())
        owned.processed = max(owned.processed, batch.offsets[-1])
        for failure in self._store((place,), deadline).values():
            raise failure

    def _commit_if_due(self) -> None:
        if self._config.commit_interval is not None and time.monotonic() >= self._next_commit:
            self._put_off_commit()
            for place, failure in self._store(tuple(self._owned), Deadline(self._timeout)).items():
                if not is_fenced(failure):
                    self._deferred.append(failure)
                # usually the next heartbeat reports that the partition was revoked, or the member expelled
                elif not self._fenced_stores.is_explained(place, self._followed):
                    self._deferred.append(self._fenced_stores.error(place, failure))

    def _put_off_commit(self) -> None:
        self._next_commit = time.monotonic() + (self._config.commit_interval or 0)

    def _store(self, places: Sequence[Assignment], deadline: Deadline) -> dict[Assignment, BrokerError]:
        """Store the positions of processed records. Returns the errors of positions whose incarnation has ended, or for
        which the member is fenced off.
        """
        refused: dict[Assignment, BrokerError] = {}
        state = self._followed
        member = Member(self._config.group, self._config.consumer, state.epoch, state.generation)
        for place in places:
            owned = self._owned.get(place)
            if owned is None or owned.processed <= owned.stored:
                continue
            try:
                with error_context(self._pool, place.stream, partition=place.partition):
                    position = requests.Position(owned.processed, owned.incarnation)
                    cursors.store_as(self._pool, deadline, self._place(place), position, member)
            except BrokerError as failure:
                if failure.code in _GONE:
                    owned.forget()
                elif not is_fenced(failure):
                    raise
                refused[place] = failure
            else:
                self._fenced_stores.clear(place)
                owned.stored = owned.processed
                owned.is_reset = False
        return refused

    def _attempt_store(
        self, failures: list[BrokerError], places: Sequence[Assignment]
    ) -> dict[Assignment, BrokerError]:
        """Store, appending a failure to `failures`; returns the partitions that the member is fenced off from."""
        refused: dict[Assignment, BrokerError] = {}
        _attempt(failures, lambda: refused.update(self._store(places, Deadline(self._timeout))))
        return {place: failure for place, failure in refused.items() if is_fenced(failure)}

    # -- the end ------------------------------------------------------------------------------------------------------
    def begin_close(self, *, processed: bool) -> tuple[Change | None, list[BrokerError]]:
        """Stop following the group and store positions. Returns the last change for the application, and the errors.

        Args:
            processed: whether all given records count as processed.
        """
        if self._state != "open":
            self._state = "closed"
            return None, []
        self._state = "closed"
        self._membership.freeze()
        self._changes.clear()
        failures = self._deferred
        lost = self._membership.state.expulsions != self._followed.expulsions
        if processed:
            self.process_given()
        if not lost and self._config.commit_interval is not None:
            refused = self._attempt_store(failures, tuple(self._owned))
            failures.extend(self._fenced_stores.error(place, failure) for place, failure in refused.items())
        kind = "lost" if lost else "revoked"
        return (Change(kind, tuple(sorted(self._owned))) if self._owned else None), failures

    def end_close(self) -> list[BrokerError]:
        """Leave the group and release all resources; returns the errors. Idempotent."""
        failures: list[BrokerError] = []
        self._drop(tuple(self._owned))
        _attempt(failures, lambda: self._membership.end(Deadline(self._timeout)))
        return failures


def _attempt(failures: list[BrokerError], action: Callable[[], object]) -> None:
    try:
        action()
    except BrokerError as failure:
        failures.append(failure)
