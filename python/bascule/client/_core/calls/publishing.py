"""Calls of the client that publish."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from bascule import engine
from bascule.client._core import requests
from bascule.client._core.calls.unary import Calls
from bascule.client._core.columns import Columns
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.deadline import Deadline
from bascule.client._core.partitioning import Partitioning, check_choice, number_of
from bascule.client._core.pipelined_publish import Outgoing, publish_in_parts
from bascule.client._core.routes import PartitionPlace
from bascule.client._core.sessions import Sessions
from bascule.client._core.types import Ack, Content, Headers, PartitionChoice, Receipt
from bascule.errors import BrokerError, UsageError

__all__ = ["Publishing"]

PART_RECORDS: Final = 8_192
"""Number of records of one part of a longer list."""


_MISSING: Final = frozenset({"stream_not_found", "partition_not_found"})


class Publishing(Calls):
    """Publishing records, one by one, as a list, or in the background."""

    def __init__(self, pool: ConnectionPool, *, timeout: float, reconnect: float) -> None:
        """Use `bascule.connect`."""
        super().__init__(pool, timeout=timeout, reconnect=reconnect)
        self._sessions: Final = Sessions(pool)
        self._partitioning: Final = Partitioning(pool)

    def publish(
        self,
        stream: str,
        value: Content | None,
        *,
        key: Content | None = None,
        headers: Headers | None = None,
        partition: PartitionChoice = None,
        ack: Ack = "leader",
        expected_offset: int | None = None,
        subject: str | None = None,
        origin_time_ns: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Publish one record; returns when it is acknowledged. `publish_many` is much faster for many records.

        If a Bascule broker did not answer because the connection broke or it died, the record is sent again within the
        timeout, and stored once.

        Args:
            stream: name of the stream.
            value: any bytes, or text, at most the stream's `max_record_bytes`; `None` = a tombstone, which a Liftbridge
                server stores as an empty value.
            key: any bytes, or text; empty is the same as `None`.
            headers: names and values, in which names may repeat; at most 1,024.
            partition: number, from 0; `None` = by the key, without one sticky; "round_robin"; or a function of key,
                value and number of partitions.
            ack: which acknowledgement to wait for; with `none` the receipt's offset is −1.
            expected_offset: the offset that the record must get; the stream checks it with `concurrency_control`;
                `None` = any. Needs a partition by number.
            subject: NATS subject to be stored with the record, without wildcards; `None` = the partition's own. Nothing
                is published on it.
            origin_time_ns: time at the origin, nanoseconds since 1970, kept beside the time of receipt.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: codes `stream_not_found`, `partition_not_found`, `readonly`, `not_enough_replicas`,
                `encryption_key_missing`; `incorrect_offset`: `details` has the `next_offset`, if it is known.
            UsageError: codes `invalid_argument`; `too_large`: `details` has the `bytes` of the message and the `limit`.
            OutcomeUnknownError: it was sent and not acknowledged in time.
            UnavailableError: it could not be sent in time.
        """
        check_choice(partition)
        expected = _checked_expected(expected_offset, partition)
        deadline = self._deadline(timeout)
        if isinstance(partition, int):
            number = partition
        else:
            chooser = self._partitioning.of(stream, partition, deadline)
            number = number_of(partition, chooser, key, value)
        place = PartitionPlace(stream, number)
        batch = self._batch(place, ack)
        with engine.native_errors():
            batch.push(key, value, headers, expected, subject, origin_time_ns)
        with self._forgetting(stream):
            self._sessions.publish(place, batch, ack, deadline, expected_offset)
        places = batch.places()
        return Receipt._make(places[0]) if places else Receipt(-1, 0, number)

    def publish_many(
        self,
        stream: str,
        values: Sequence[Content | None],
        *,
        keys: Sequence[Content | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        partition: PartitionChoice = None,
        partitions: Sequence[int] | None = None,
        ack: Ack = "leader",
        subjects: Sequence[str | None] | None = None,
        origin_times_ns: Sequence[int | None] | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Publish records in order within each partition. Returns one receipt per record, in order, when all are
        acknowledged; an empty list with ack `none`. Retries as `publish`, and stores each record once.

        Args:
            stream: name of the stream.
            values: n ≥ 0 values, each as of `publish`.
            keys: n keys, or `None` for records without keys.
            headers: n sets of headers, or `None` for records without headers.
            partition: as for `publish`, applied to each record.
            partitions: n partition numbers, instead of `partition`.
            ack: which acknowledgement to wait for.
            subjects: n subjects, as for `publish`.
            origin_times_ns: n origin times, as for `publish`.
            timeout: seconds for all of them; `None` = the client's.

        Raises:
            BrokerError: as `publish`, for the first record that failed; `details` has its `index` and the number of
                records that are known to be stored (`acknowledged`). Up to 8,192 records after it may be stored too.
            TypeError: a value is neither bytes nor text. Of a list of up to 32,768 records nothing was sent then.
        """
        columns = Columns(
            values=values,
            keys=keys,
            headers=headers,
            partitions=partitions,
            subjects=subjects,
            origin_times_ns=origin_times_ns,
        )
        check_choice(partition)
        deadline = self._deadline(timeout)
        requests.ack_policy(ack)
        return self._publish_many(stream, columns, partition, ack, deadline) if values else []

    def _publish_many(
        self, stream: str, columns: Columns, choice: PartitionChoice, ack: Ack, deadline: Deadline
    ) -> list[Receipt]:
        if columns.partitions is None and callable(choice):
            chooser = self._partitioning.of(stream, None, deadline)
            rows = zip(columns.keys or [None] * len(columns.values), columns.values, strict=True)
            columns = replace(columns, partitions=[number_of(choice, chooser, key, value) for key, value in rows])
        if columns.partitions is None:
            make = self._maker(stream, choice, ack, deadline)
        else:
            make = self._spread_maker(stream, None, ack, deadline)

        def framed(part: slice) -> Outgoing:
            batch = make()
            columns.fill(batch, part)
            return batch

        begins = range(0, len(columns.values), PART_RECORDS)
        parts = map(framed, (slice(begin, begin + PART_RECORDS) for begin in begins))
        return publish_in_parts(parts, lambda batch: self._publish(stream, batch, ack, deadline))

    def _maker(
        self, stream: str, choice: PartitionChoice, ack: Ack, deadline: Deadline, *, may_be_old: bool = False
    ) -> Callable[[], Outgoing]:
        """A function that returns a new, empty batch."""
        if isinstance(choice, int):
            place = PartitionPlace(stream, choice)
            return lambda: self._batch(place, ack)
        if not callable(choice):
            chooser = self._partitioning.of(stream, choice, deadline, may_be_old=may_be_old)
            if chooser.partitions == 1:  # as fast as a partition by its number
                return lambda: self._batch(PartitionPlace(stream, 0), ack)
        return self._spread_maker(stream, choice, ack, deadline, may_be_old=may_be_old)

    def _spread_maker(
        self, stream: str, choice: PartitionChoice, ack: Ack, deadline: Deadline, *, may_be_old: bool = False
    ) -> Callable[[], engine.Spread]:
        """A function that returns a new, empty batch whose records may go to several partitions."""
        chooser = self._partitioning.of(stream, choice, deadline, may_be_old=may_be_old)
        return lambda: self._pool.spread(stream, chooser, requests.ack_policy(ack))

    def _batch(self, place: PartitionPlace, ack: Ack) -> engine.Outgoing:
        return self._pool.outgoing(place.stream, place.partition, requests.ack_policy(ack))

    def _publish(self, stream: str, batch: Outgoing, ack: Ack, deadline: Deadline) -> None:
        """Publish a batch.

        Raises:
            BrokerError: of the first record that failed; `details` has its `index`, and how many of the batch are known
                to be stored (`acknowledged`).
        """
        with self._forgetting(stream):
            if isinstance(batch, engine.Outgoing):
                self._sessions.publish(PartitionPlace(stream, batch.partition), batch, ack, deadline)
                return
            parts = batch.parts()
            outcomes = self._sessions.publish_all(stream, parts, ack, deadline)
            _raise_first(batch, parts, outcomes)

    def _refresh(self, stream: str, choice: PartitionChoice, deadline: Deadline) -> None:
        """Fetch the number of partitions again if it is old. A failure is ignored here: the publish reports it."""
        if not isinstance(choice, int):
            with suppress(BrokerError):
                self._partitioning.of(stream, choice, deadline)

    @contextmanager
    def _forgetting(self, stream: str) -> Generator[None]:
        """Forget the number of partitions of the stream if the body reports a missing partition."""
        try:
            yield
        except BrokerError as failure:
            if failure.code in _MISSING:
                self._partitioning.forget(stream)
            raise


def _checked_expected(expected: int | None, partition: PartitionChoice) -> int:
    """The expected offset of a record as the native core takes it: −1 = any.

    Raises:
        UsageError: code `invalid_argument`.
    """
    if expected is None:
        return -1
    offset = requests.check_offset("expected_offset", expected)
    if not isinstance(partition, int):
        text = f"expected_offset {expected} is an offset of one partition: pass partition with its number"
        raise UsageError("invalid_argument", text, {"expected_offset": expected})
    return offset


def _raise_first(
    batch: engine.Spread, parts: Sequence[engine.Outgoing], outcomes: Sequence[BrokerError | None]
) -> None:
    """Raise the failure of the record that comes first in the batch; the others are added to its notes."""
    stored = 0
    failures: list[tuple[int, BrokerError]] = []
    for part, outcome in zip(parts, outcomes, strict=True):
        if outcome is None:
            stored += len(part)
            continue
        stored += outcome.details.get("acknowledged", 0)
        position = batch.position(part.partition, outcome.details.get("index", 0))
        failures.append((len(batch) if position is None else position, outcome))
    if not failures:
        return
    index, first = min(failures, key=lambda found: found[0])
    for _, other in failures:
        if other is not first:
            first.add_note(f"and: {other}")
    first.details.update(index=index, acknowledged=stored)
    raise first
