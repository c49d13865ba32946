"""The methods of the client that Iggy's protocol has. Streams are `stream/topic`, or topics of the stream `default`."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NoReturn, cast

from bascule.client._core.calls.positions import Positions
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.consumer_config import ConsumerConfig, GroupStart
from bascule.client._core.consumer_flow import Callbacks, OnChange
from bascule.client._core.deadline import Deadline
from bascule.client._core.iggy_target import Target
from bascule.client._core.pipelined_publish import Outgoing
from bascule.client._core.refusals import no_partition
from bascule.client._core.requests import StreamOptions, ack_policy, check_partition
from bascule.client._core.subscribe_options import SubscribeOptions
from bascule.client._core.types import (
    Ack,
    Content,
    Headers,
    OffsetReset,
    Partition,
    PartitionChoice,
    Purged,
    Receipt,
    Start,
    Stop,
    Stream,
)
from bascule.client._iggy.consuming import IggyConsumerCore
from bascule.client._iggy.failures import unavailable_method
from bascule.client._iggy.link import Link
from bascule.client._iggy.reading import IggySubscription
from bascule.client._iggy.topics import DEFAULT, Topics
from bascule.client._iggy.wire import NewTopic, TopicRow
from bascule.client._iggy.writing import Pending, message, partitioning
from bascule.client.consumer import Consumer
from bascule.client.producer import OnAck, Producer
from bascule.client.sync import Client
from bascule.errors import StateError, UsageError

__all__ = ["IggyClient"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
FOREVER: Final = (1 << 64) - 1


class IggyClient(Client):
    """A `Client` over Iggy's protocol. Methods, and arguments, that the protocol lacks raise `unimplemented`.

    Receipts have no offset and no time (−1, 0), since the protocol reports none, and the partition −1 where the broker
    chooses it. Positions are offsets of Iggy's consumers: the name of a cursor is that of a consumer.
    """

    def __init__(self, target: Target, *, timeout: float, reconnect: float, wait: bool, name: str) -> None:
        """Use `bascule.connect`."""
        # The pool is of the Liftbridge protocol: every method that would use it is replaced or refused here.
        Positions.__init__(self, cast("ConnectionPool", None), timeout=timeout, reconnect=reconnect)
        self._link: Final = Link(target, wait=wait, name=name)
        self._topics: Final = Topics(self._link)

    @property
    def reconnects(self) -> int:
        return self._link.reconnects

    def open(self) -> None:
        self._link.open(Deadline(self._timeout))

    def close(self) -> None:
        self._link.close()

    def create_stream(
        self,
        name: str,
        subject: str | None = None,
        *,
        options: StreamOptions | None = None,
        exist_ok: bool = False,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> None:
        _refuse("create_stream", subject=subject is not None, dry_run=dry_run)
        asked, deadline = options or StreamOptions(), self._deadline(timeout)
        partitions = 1 if asked.partitions is None else asked.partitions
        kept = {
            "partitions": asked.partitions,
            "replication_factor": asked.replication_factor,
            "retention_max_age": asked.retention_max_age,
            "retention_max_bytes": asked.retention_max_bytes,
        }
        if replace(StreamOptions(), **cast("dict[str, Any]", kept)) != asked:
            raise unavailable_method(f"an option of create_stream other than {', '.join(kept)}")
        age, size = asked.retention_max_age, asked.retention_max_bytes
        expiry = 0 if age is None else age // timedelta(microseconds=1) or FOREVER
        most = 0 if size is None else size * partitions or FOREVER
        try:
            self._topics.create(name, NewTopic(partitions, expiry, most, max(0, asked.replication_factor)), deadline)
        except StateError as failure:
            if failure.code != "stream_exists" or not exist_ok:
                raise
            found = self._topics.find(name, deadline).partitions
            if asked.partitions not in {None, found}:
                text = f'stream "{name}" exists with {found} partitions, not {asked.partitions}'
                raise StateError("stream_exists", text, {"stream": name}) from failure

    def delete_stream(self, name: str, *, missing_ok: bool = False, timeout: float | None = None) -> None:
        try:
            self._topics.delete(name, self._deadline(timeout))
        except StateError as failure:
            if not (missing_ok and failure.code == "stream_not_found"):
                raise

    def purge_stream(
        self, name: str, *, now: bool = False, dry_run: bool = False, timeout: float | None = None
    ) -> Purged:
        _refuse("purge_stream", now=now, dry_run=dry_run)
        deadline = self._deadline(timeout)
        records = sum(self._topics.find(name, deadline).ends)
        self._topics.purge(name, deadline)
        return Purged(records, at_once=False)

    def list_streams(self, *, namespace: str = DEFAULT, timeout: float | None = None) -> list[Stream]:
        found = self._topics.list_in(namespace, self._deadline(timeout))
        prefix = "" if namespace == DEFAULT else f"{namespace}/"
        return sorted((_stream(prefix + row.name, row) for row in found), key=lambda stream: stream.name)

    def get_stream(self, name: str, *, timeout: float | None = None) -> Stream:
        return _stream(name, self._topics.find(name, self._deadline(timeout)))

    def get_partition(self, stream: str, partition: int = 0, *, timeout: float | None = None) -> Partition:
        row = self._topics.find(stream, self._deadline(timeout))
        if check_partition(partition) >= len(row.ends):
            raise no_partition(stream, partition, len(row.ends))
        return _stream(stream, row).partitions[partition]

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
        _refuse("publish", expected_offset=expected_offset is not None, subject=subject is not None)
        chosen = _chosen("publish", partition, ack)
        where = partitioning(key, chosen)
        self._topics.send(stream, where, [message(value, headers, origin_time_ns)], self._deadline(timeout))
        return Receipt(-1, 0, -1 if chosen is None else chosen)

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
        _refuse(
            "publish_many",
            partitions=partitions is not None,
            subjects=subjects is not None,
            origin_times_ns=origin_times_ns is not None,
        )
        batch = Pending(_chosen("publish_many", partition, ack))
        batch.fill(keys, values, headers)
        self._send(stream, batch, self._deadline(timeout))
        return [Receipt._make(place) for place in batch.places()]

    def producer(
        self,
        stream: str,
        *,
        partition: PartitionChoice = None,
        ack: Ack = "leader",
        batch_records: int = 32_768,
        max_in_flight: int = 131_072,
        max_in_flight_bytes: int = 64 << 20,
        timeout: float | None = None,
        on_ack: OnAck | None = None,
    ) -> Producer:
        chosen = _chosen("producer", partition, ack)
        return Producer(
            make=cast("Callable[[], Outgoing]", lambda: Pending(chosen)),
            publish=lambda batch: self._send(stream, cast("Pending", batch), self._deadline(timeout)),
            choose=None,
            batch_records=batch_records,
            most=(max_in_flight, max_in_flight_bytes),
            on_ack=on_ack,
        )

    def subscribe(
        self,
        stream: str,
        *,
        partition: int = 0,
        start: Start = "earliest",
        stop: Stop = None,
        reverse: bool = False,
        cursor: str | None = None,
        subject: str | None = None,
        auto_offset_reset: OffsetReset = "error",
        resume: bool = False,
        from_replica: bool = False,
        batch_records: int = 8192,
    ) -> IggySubscription:
        options = SubscribeOptions(
            stream=stream,
            partition=partition,
            start=start,
            stop=stop,
            reverse=reverse,
            cursor=cursor,
            subject=subject,
            auto_offset_reset=auto_offset_reset,
            resume=resume,
            from_replica=from_replica,
            batch_records=batch_records,
        )
        return IggySubscription(self._topics, options, timeout=self._timeout, reconnect=self._reconnect)

    def consumer(
        self,
        group: str,
        streams: str | Sequence[str],
        *,
        consumer: str | None = None,
        start: GroupStart = "earliest",
        commit_interval: float | None = 5.0,
        subject: str | None = None,
        auto_offset_reset: OffsetReset = "error",
        resume: bool = False,
        batch_records: int = 8192,
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
        on_lost: OnChange | None = None,
    ) -> Consumer:
        _refuse("consumer", consumer=consumer is not None)
        config = ConsumerConfig(
            group=group,
            consumer="iggy",
            streams=(streams,) if isinstance(streams, str) else tuple(streams),
            start=start,
            commit_interval=commit_interval,
            subject=subject,
            auto_offset_reset=auto_offset_reset,
            resume=resume,
            batch_records=batch_records,
        )
        core = IggyConsumerCore(self._link.another(), config, timeout=self._timeout, reconnect=self._reconnect)
        return Consumer(core, Callbacks(on_assigned, on_revoked, on_lost))

    def set_cursor(
        self, cursor: str, stream: str, offset: int | None, *, partition: int = 0, timeout: float | None = None
    ) -> None:
        self._topics.store(cursor, stream, partition, offset, self._deadline(timeout))

    def fetch_cursor(self, cursor: str, stream: str, *, partition: int = 0, timeout: float | None = None) -> int | None:
        return self._topics.stored(cursor, stream, partition, self._deadline(timeout))

    def _send(self, stream: str, batch: Pending, deadline: Deadline) -> None:
        for where, messages in batch.sends(self._link.generation.max_send_bytes):
            self._topics.send(stream, where, messages, deadline)


def _stream(name: str, row: TopicRow) -> Stream:
    """The subject, leaders and replicas are empty: the protocol does not show them."""
    partitions = tuple(
        Partition(number, "", (), (), high_watermark=end, log_end_offset=end, paused=False, readonly=False)
        for number, end in enumerate(row.ends)
    )
    return Stream(name, "", EPOCH + timedelta(microseconds=row.created_us), partitions)


def _refuse(method: str, **given: bool) -> None:
    """Refuse the arguments that were given."""
    for name, is_given in given.items():
        if is_given:
            raise unavailable_method(f"{name} of {method}")


def _chosen(method: str, partition: PartitionChoice, ack: Ack) -> int | None:
    """The partition by number; `None` = by key, or as the broker chooses.

    Raises:
        UsageError: code `unimplemented`, `invalid_argument`.
    """
    ack_policy(ack)
    _refuse(method, ack=ack == "none")
    if partition is None or partition == "round_robin":
        return None
    if isinstance(partition, int):
        return check_partition(partition)
    if callable(partition):
        raise unavailable_method(f"a function as partition of {method}")
    text = f'partition is a number, None or "round_robin", not {partition!r}'
    raise UsageError("invalid_argument", text)


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise unavailable_method(name)

    return refuse


for _name, _method in inspect.getmembers(Client, inspect.isfunction):
    if not _name.startswith("_") and _name not in vars(IggyClient):
        setattr(IggyClient, _name, _refusing(_name))
