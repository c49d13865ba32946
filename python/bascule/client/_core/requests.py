"""Requests and answers of the Liftbridge protocol, from and to the client's own types. No I/O."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, TypeVar

from bascule._liftbridge_pb import message
from bascule.client._core import refusals
from bascule.client._core.types import (
    Ack,
    Broker,
    Content,
    EventTimes,
    Group,
    Headers,
    Partition,
    Stream,
    SubjectReceipt,
)
from bascule.errors import StateError, UsageError, error

__all__ = [
    "Assigned",
    "Joined",
    "Position",
    "StreamOptions",
    "ack_policy",
    "check_id",
    "check_offset",
    "check_partition",
    "create_stream",
    "delete_stream",
    "fetch_assignments",
    "fetch_cursor",
    "group_metadata",
    "join_group",
    "leave_group",
    "metadata",
    "nanoseconds",
    "partition_metadata",
    "pause_stream",
    "publish_to_subject",
    "purge_stream",
    "read_assignments",
    "read_brokers",
    "read_cursor",
    "read_existing",
    "read_group",
    "read_joined",
    "read_partition",
    "read_streams",
    "read_subject_ack",
    "report_coordinator",
    "set_cursor",
    "set_readonly",
    "stored_by",
    "trim_partition",
]

_Bound = TypeVar("_Bound", int, timedelta)

_ACKS: Final = {"leader": 0, "all": 1, "none": 2}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STARTS: Final = {"earliest": "EARLIEST", "latest": "LATEST", "new": "NEW_ONLY"}
_UNKNOWN_STREAM: Final = 1
_UNKNOWN_GROUP: Final = 1
_ACK_ERRORS: Final = {
    2: ("incorrect_offset", "it checks offsets, and only its first record can come by subject"),
    3: ("too_large", "it is larger than the stream takes, see bascule stream edit --max-record-bytes"),
    4: ("encryption_key_missing", "the broker lacks the key to encrypt it, see encryption.keys of its configuration"),
}
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_WIDE: Final = frozenset({"max_record_bytes", "retention_max_bytes", "retention_max_messages", "segment_max_bytes"})
_COUNTS: Final = (
    *sorted(_WIDE),
    "retention_max_age",
    "cleaner_interval",
    "segment_max_age",
    "compact_parallelism",
    "auto_pause_time",
    "min_isr",
)
USUAL_TIMEOUT: Final = 15.0
"""Seconds after which a silent member is expelled, and a silent coordinator reported, unless the broker says others."""
MOST_ID_BYTES: Final = {"cursor": 1024, "stream": 1024, "group": 255, "consumer": 255}
"""Longest ids that a broker of ours takes, UTF-8 bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamOptions:
    """What a stream is to be; `None` = as the broker's `streams.*` settings say. 0 = unlimited or never, for limits."""

    group: str = ""
    """NATS queue group; empty = none."""
    partitions: int | None = None
    """`None` = 1."""
    replication_factor: int = 1
    """−1 = all brokers."""
    retention_max_bytes: int | None = None
    retention_max_messages: int | None = None
    retention_max_age: timedelta | None = None
    cleaner_interval: timedelta | None = None
    segment_max_bytes: int | None = None
    segment_max_age: timedelta | None = None
    """0 = a segment is never closed for its age."""
    compact_enabled: bool | None = None
    """Whether only the last record of each key is kept."""
    compact_parallelism: int | None = None
    """Threads that look for old records, 0 or more; 0 = 10."""
    auto_pause_time: timedelta | None = None
    """Idle time after which a partition is paused; 0 = never."""
    auto_pause_disable_if_subscribers: bool | None = None
    """Whether a partition that somebody reads is not paused."""
    min_isr: int | None = None
    """In-sync replicas that a commit needs, 0 or more."""
    concurrency_control: bool | None = None
    """Whether expected offsets are checked."""
    encryption: bool | None = None
    """Whether it is encrypted at rest; the broker needs a master key."""
    partition_by_subject: bool | None = None
    """Whether the NATS subject of a message chooses its partition."""
    durability: Literal["disk", "memory"] | None = None
    """What an ack stands for."""
    codec: Literal["none", "lz4", "zstd"] | None = None
    """Compression of new batches."""
    nats_copy: Literal["envelope", "value", "none"] | None = None
    """How direct publishes are shown to NATS."""
    nats_acks: Literal["off", "jetstream"] | None = None
    """How plain NATS messages with a reply subject are acknowledged; one partition only."""
    max_record_bytes: int | None = None
    """Largest record that is accepted, 0 or more."""

    def __post_init__(self) -> None:
        """Check what can be checked here.

        Raises:
            UsageError: code `invalid_argument`, naming the option, its value and the bound.
        """
        _check_bounds("partitions", self.partitions or 0, 0, _INT32_MAX)
        _check_bounds("replication_factor", self.replication_factor, -1, _INT32_MAX)
        for option in _COUNTS:
            value: int | timedelta | None = getattr(self, option)
            if isinstance(value, timedelta):
                _check_bounds(option, value, timedelta(0), timedelta.max)
            elif value is not None:
                _check_bounds(option, value, 0, _INT64_MAX if option in _WIDE else _INT32_MAX)


def ack_policy(ack: Ack) -> int:
    """Its number on the wire.

    Raises:
        UsageError: code `invalid_argument`: no such policy.
    """
    if ack not in _ACKS:
        raise UsageError("invalid_argument", f'ack is one of "leader", "all", "none", not {ack!r}')
    return _ACKS[ack]


def create_stream(name: str, subject: str, options: StreamOptions) -> bytes:
    """A CreateStreamRequest."""
    request = message("CreateStreamRequest")(
        name=name,
        subject=subject,
        group=options.group,
        partitions=1 if options.partitions is None else options.partitions,
        replicationFactor=options.replication_factor,
        durability=options.durability or "",
        codec=options.codec or "",
        natsCopy=options.nats_copy or "",
        natsAcks=options.nats_acks or "",
    )
    limits: Mapping[str, int | timedelta | bool | None] = {
        "retentionMaxBytes": options.retention_max_bytes,
        "retentionMaxMessages": options.retention_max_messages,
        "retentionMaxAge": options.retention_max_age,
        "cleanerInterval": options.cleaner_interval,
        "segmentMaxBytes": options.segment_max_bytes,
        "segmentMaxAge": options.segment_max_age,
        "compactEnabled": options.compact_enabled,
        "compactMaxGoroutines": options.compact_parallelism,
        "autoPauseTime": options.auto_pause_time,
        "autoPauseDisableIfSubscribers": options.auto_pause_disable_if_subscribers,
        "minIsr": options.min_isr,
        "optimisticConcurrencyControl": options.concurrency_control,
        "encryption": options.encryption,
        "partitionBySubject": options.partition_by_subject,
        "maxRecordBytes": options.max_record_bytes,
    }
    for field, value in limits.items():
        if value is not None:
            # a present wrapper is meant even when it holds 0 or false
            wrapper = getattr(request, field)
            wrapper.SetInParent()
            wrapper.value = value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value
    return request.SerializeToString()


def delete_stream(name: str) -> bytes:
    """A DeleteStreamRequest."""
    return message("DeleteStreamRequest")(name=name).SerializeToString()


def pause_stream(name: str, partitions: Sequence[int], *, resume_all: bool) -> bytes:
    """A PauseStreamRequest."""
    chosen = [check_partition(partition) for partition in partitions]
    return message("PauseStreamRequest")(name=name, partitions=chosen, resumeAll=resume_all).SerializeToString()


def set_readonly(name: str, partitions: Sequence[int], *, readonly: bool) -> bytes:
    """A SetStreamReadonlyRequest."""
    chosen = [check_partition(partition) for partition in partitions]
    return message("SetStreamReadonlyRequest")(name=name, partitions=chosen, readonly=readonly).SerializeToString()


def trim_partition(name: str, partition: int, before: int, *, dry_run: bool) -> bytes:
    """TrimPartition, a method of ours."""
    return json.dumps({"name": name, "partition": partition, "before": before, "dry_run": dry_run}).encode()


def purge_stream(name: str, *, now: bool, dry_run: bool) -> bytes:
    """PurgeStream, a method of ours. A broker that does not know `now` is not sent it unless it is wanted."""
    return json.dumps({"name": name, "dry_run": dry_run, **({"now": True} if now else {})}).encode()


def metadata(streams: list[str]) -> bytes:
    """A FetchMetadataRequest; no names = all streams."""
    return message("FetchMetadataRequest")(streams=streams).SerializeToString()


def read_streams(answer: bytes) -> list[Stream]:
    """The streams of a FetchMetadataResponse, in its order.

    Raises:
        StateError: code `stream_not_found`: one that was asked for is not there.
    """
    streams: list[Stream] = []
    for found in message("FetchMetadataResponse").FromString(answer).streamMetadata:
        if found.error == _UNKNOWN_STREAM:
            raise refusals.no_stream(found.name)
        created = _EPOCH + timedelta(microseconds=found.creationTimestamp // 1000)
        partitions = tuple(_partition(found.partitions[key]) for key in sorted(found.partitions))
        streams.append(Stream(found.name, found.subject, created, partitions))
    return streams


def read_existing(answer: bytes) -> frozenset[str]:
    """The names of the streams of a FetchMetadataResponse that exist."""
    found = message("FetchMetadataResponse").FromString(answer).streamMetadata
    return frozenset(stream.name for stream in found if stream.error != _UNKNOWN_STREAM)


def read_brokers(answer: bytes) -> list[Broker]:
    """The brokers of a FetchMetadataResponse, in its order: the one that answered first."""
    return [
        Broker(found.id, found.host, found.port, found.partitionCount, found.leaderCount)
        for found in message("FetchMetadataResponse").FromString(answer).brokers
    ]


def group_metadata(group: str) -> bytes:
    """A FetchMetadataRequest for a group. It names a stream too, since no stream means all of them."""
    return message("FetchMetadataRequest")(streams=["__cursors"], groups=[check_id("group", group)]).SerializeToString()


def read_group(answer: bytes) -> Group:
    """The group of a FetchMetadataResponse.

    Raises:
        StateError: code `not_found`: there is none.
    """
    (found,) = message("FetchMetadataResponse").FromString(answer).groupMetadata
    if found.error == _UNKNOWN_GROUP:
        text = f'consumer group "{found.groupId}" does not exist: it has no members'
        raise StateError("not_found", text, {"group": found.groupId})
    return Group(found.groupId, found.coordinator, found.epoch)


class Joined(NamedTuple):
    """What a new member of a group learns. Timeouts are seconds."""

    coordinator: str
    epoch: int
    consumer_timeout: float
    coordinator_timeout: float


def join_group(group: str, consumer: str, streams: Sequence[str]) -> bytes:
    """A JoinConsumerGroupRequest of a member that hands over what it reads."""
    return message("JoinConsumerGroupRequest")(
        groupId=group, consumerId=consumer, streams=streams, handsOver=True
    ).SerializeToString()


def read_joined(answer: bytes) -> Joined:
    """A JoinConsumerGroupResponse. A broker that says no timeouts gets the usual ones."""
    found = message("JoinConsumerGroupResponse").FromString(answer)
    consumer, coordinator = (
        nanos / 1e9 if nanos > 0 else USUAL_TIMEOUT for nanos in (found.consumerTimeout, found.coordinatorTimeout)
    )
    return Joined(found.coordinator, found.epoch, consumer, coordinator)


def fetch_assignments(  # noqa: PLR0913 (what a request holds)
    group: str, consumer: str, epoch: int, held: Iterable[tuple[str, int]] = (), *, seen: int = 0, wait: float = 0
) -> bytes:
    """A FetchConsumerGroupAssignmentsRequest.

    Args:
        group: the group's id.
        consumer: the member's id.
        epoch: of the group, as the member knows it.
        held: stream and partition of each that the member reads or may read.
        seen: version of the last answer that it has got; 0 = none.
        wait: seconds to wait for another version than that.
    """
    request = message("FetchConsumerGroupAssignmentsRequest")(
        groupId=group, consumerId=consumer, epoch=epoch, seenVersion=seen, waitMillis=round(wait * 1000)
    )
    by_stream: dict[str, list[int]] = {}
    for stream, partition in sorted(held):
        by_stream.setdefault(stream, []).append(partition)
    for stream, partitions in by_stream.items():
        request.held.add(stream=stream, partitions=partitions)
    return request.SerializeToString()


class Assigned(NamedTuple):
    """What a member reads, as its coordinator answers."""

    partitions: list[tuple[str, int]]
    version: int
    """0 = the broker knows of no hand-over."""
    streams: frozenset[str]
    """That the group still reads for the member; means nothing without a version."""


def read_assignments(answer: bytes) -> Assigned:
    """A FetchConsumerGroupAssignmentsResponse."""
    response = message("FetchConsumerGroupAssignmentsResponse").FromString(answer)
    found = [(part.stream, partition) for part in response.assignments for partition in part.partitions]
    return Assigned(found, response.version, frozenset(response.streams))


def report_coordinator(group: str, consumer: str, coordinator: str, epoch: int) -> bytes:
    """A ReportConsumerGroupCoordinatorRequest."""
    return message("ReportConsumerGroupCoordinatorRequest")(
        groupId=group, consumerId=consumer, coordinator=coordinator, epoch=epoch
    ).SerializeToString()


def leave_group(group: str, consumer: str) -> bytes:
    """A LeaveConsumerGroupRequest."""
    ids = {"groupId": check_id("group", group), "consumerId": check_id("consumer", consumer)}
    return message("LeaveConsumerGroupRequest")(**ids).SerializeToString()


def set_cursor(cursor: str, stream: str, partition: int, offset: int | None, incarnation: int = 0) -> bytes:
    """A SetCursorRequest; without an offset the cursor is as if it had never been set.

    Args:
        cursor: its id.
        stream: name of the stream.
        partition: number.
        offset: of the last record processed.
        incarnation: of the partition whose record it is, refused when there is another by now; 0 = the present one.

    Raises:
        UsageError: code `invalid_argument`: an id or the offset.
    """
    stored = -1 if offset is None else check_offset("offset", offset)
    return message("SetCursorRequest")(
        stream=check_id("stream", stream),
        partition=check_partition(partition),
        cursorId=check_id("cursor", cursor),
        offset=stored,
        incarnation=incarnation,
    ).SerializeToString()


def stored_by(group: str, consumer: str, epoch: int) -> bytes:
    """What follows a SetCursorRequest that a member of a group sends: it is refused when a member of a later epoch has
    stored a position.
    """
    member = {"groupId": group, "consumerId": consumer, "groupEpoch": epoch}
    return message("SetCursorRequest")(consumer=member).SerializeToString()


def fetch_cursor(cursor: str, stream: str, partition: int) -> bytes:
    """A FetchCursorRequest.

    Raises:
        UsageError: code `invalid_argument`: an id.
    """
    return message("FetchCursorRequest")(
        stream=check_id("stream", stream), partition=check_partition(partition), cursorId=check_id("cursor", cursor)
    ).SerializeToString()


class Position(NamedTuple):
    """Where a cursor stands."""

    offset: int | None
    """Of the last record processed; `None` = there is none."""
    incarnation: int
    """Of the partition as it is now: another one after a purge; 0 = it does not exist, or the broker does not say."""


def read_cursor(answer: bytes) -> Position:
    """The position of a FetchCursorResponse."""
    found = message("FetchCursorResponse").FromString(answer)
    return Position(None if found.offset < 0 else found.offset, found.incarnation)


def publish_to_subject(
    subject: str, value: Content | None, key: Content | None, headers: Headers | None, ack: Ack
) -> bytes:
    """A PublishToSubjectRequest. Headers that a map cannot hold go as a list, which only brokers of ours read."""
    request = message("PublishToSubjectRequest")(subject=subject, ackPolicy=ack_policy(ack))
    if value is None:
        request.nullValue = True
    else:
        request.value = _bytes(value)
    if key:
        request.key = _bytes(key)
    pairs = list(headers.items() if isinstance(headers, Mapping) else headers or ())
    names = [name.encode("utf-8", "surrogateescape") for name, _ in pairs]
    texts = [name for name, _ in pairs if _is_text(name)]
    for name, content in pairs:
        if _is_text(name):
            request.headers[name] = _bytes(content)
    if len(set(texts)) < len(pairs):
        for name, (_, content) in zip(names, pairs, strict=True):
            request.headerList.add(name=name, value=_bytes(content))
    return request.SerializeToString()


def _bytes(content: Content) -> bytes:
    return content.encode() if isinstance(content, str) else bytes(content)


def _is_text(name: str) -> bool:
    """Whether no bytes stand in it as lone surrogates."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)


def read_subject_ack(answer: bytes) -> SubjectReceipt | None:
    """The acknowledgement of a PublishToSubjectResponse; `None` when none was asked for.

    Raises:
        BrokerError: the stream that answered first refused the record.
    """
    response = message("PublishToSubjectResponse").FromString(answer)
    if not response.HasField("ack"):
        return None
    ack = response.ack
    if ack.ackError:
        code, reason = _ACK_ERRORS.get(ack.ackError, ("internal", f"error {ack.ackError}"))
        text = f'stream "{ack.stream}" refused the record on subject "{ack.msgSubject}": {reason}'
        raise error(code, text, {"stream": ack.stream})
    return SubjectReceipt(ack.stream, ack.offset, ack.receptionTimestamp)


def check_id(name: str, value: str) -> str:
    """`value`, which is not empty and not too long.

    Raises:
        UsageError: code `invalid_argument`.
    """
    most, size = MOST_ID_BYTES[name], len(value.encode())
    if not 1 <= size <= most:
        shown = f"{value[:40]!r}… has {size} bytes" if size else "is empty"
        raise UsageError("invalid_argument", f"{name} {shown}: give it 1 to {most} bytes", {name: value[:200]})
    return value


def check_partition(partition: int) -> int:
    """`partition`, which is a number from 0.

    Raises:
        UsageError: code `invalid_argument`.
    """
    _check_bounds("partition", partition, 0, _INT32_MAX)
    return partition


def check_offset(name: str, value: int) -> int:
    """`value`, which is an offset.

    Raises:
        UsageError: code `invalid_argument`.
    """
    _check_bounds(name, value, 0, _INT64_MAX)
    return value


def _check_bounds(name: str, value: _Bound, least: _Bound, most: _Bound) -> None:
    if not least <= value <= most:
        raise UsageError("invalid_argument", f"{name} is {value}: it is to be from {least} to {most}", {name: value})


def partition_metadata(stream: str, partition: int) -> bytes:
    """A FetchPartitionMetadataRequest."""
    return message("FetchPartitionMetadataRequest")(stream=stream, partition=partition).SerializeToString()


def read_partition(answer: bytes) -> Partition:
    """The partition of a FetchPartitionMetadataResponse."""
    return _partition(message("FetchPartitionMetadataResponse").FromString(answer).metadata)


def _partition(found: Any) -> Partition:
    # on the wire both are the last such offset, −1 for none
    return Partition(
        number=found.id,
        leader=found.leader,
        replicas=tuple(found.replicas),
        in_sync=tuple(found.isr),
        high_watermark=found.highWatermark + 1,
        log_end_offset=found.newestOffset + 1,
        paused=found.paused,
        readonly=found.readonly,
        received_times=_times(found.messagesReceivedTimestamps),
        pause_times=_times(found.pauseTimestamps),
        readonly_times=_times(found.readonlyTimestamps),
        log_start=found.logStartOffset.value if found.HasField("logStartOffset") else None,
    )


def _times(found: Any) -> EventTimes:
    return EventTimes(_time(found.firstTimestamp), _time(found.latestTimestamp))


def _time(timestamp_ns: int) -> datetime | None:
    return _EPOCH + timedelta(microseconds=timestamp_ns // 1000) if timestamp_ns else None


def nanoseconds(time: datetime) -> int:
    """Nanoseconds since 1970; a time without a time zone is local time.

    Raises:
        UsageError: code `invalid_argument`: further away than 64 bits of nanoseconds reach.
    """
    found = (time.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
    if not -_INT64_MAX <= found <= _INT64_MAX:
        raise UsageError(
            "invalid_argument", f"the time {time} is not between the years 1678 and 2262", {"time": str(time)}
        )
    return found
