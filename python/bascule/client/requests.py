"""Requests and answers of the Liftbridge protocol, from and to the client's own types. No I/O."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from bascule._liftbridge_pb import message, number
from bascule.client.types import Ack, Partition, Start, Stop, Stream
from bascule.errors import StateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "StreamOptions",
    "ack_policy",
    "create_stream",
    "delete_stream",
    "is_empty_range",
    "metadata",
    "nanoseconds",
    "partition_metadata",
    "read_partition",
    "read_streams",
    "subscribe",
]

_ACKS: Final = {"leader": 0, "all": 1, "none": 2}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STARTS: Final = {"earliest": "EARLIEST", "latest": "LATEST", "new": "NEW_ONLY"}
_UNKNOWN_STREAM: Final = 1
_INT64_MAX: Final = 2**63 - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamOptions:
    """What a stream is to be; `None` = as the broker's `streams.*` settings say. 0 = unlimited or never, for limits."""

    group: str = ""
    """NATS queue group; empty = none."""
    partitions: int = 1
    replication_factor: int = 1
    """−1 = all brokers."""
    retention_max_bytes: int | None = None
    retention_max_messages: int | None = None
    retention_max_age: timedelta | None = None
    cleaner_interval: timedelta | None = None
    segment_max_bytes: int | None = None
    segment_max_age: timedelta | None = None
    concurrency_control: bool | None = None
    """Whether expected offsets are checked."""
    encryption: bool | None = None
    """Whether it is encrypted at rest; the broker needs a master key."""


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
        partitions=options.partitions,
        replicationFactor=options.replication_factor,
    )
    limits: Mapping[str, int | timedelta | bool | None] = {
        "retentionMaxBytes": options.retention_max_bytes,
        "retentionMaxMessages": options.retention_max_messages,
        "retentionMaxAge": options.retention_max_age,
        "cleanerInterval": options.cleaner_interval,
        "segmentMaxBytes": options.segment_max_bytes,
        "segmentMaxAge": options.segment_max_age,
        "optimisticConcurrencyControl": options.concurrency_control,
        "encryption": options.encryption,
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


def trim_partition(name: str, partition: int, before: int, *, dry_run: bool) -> bytes:
    """TrimPartition, a method of ours."""
    return json.dumps({"name": name, "partition": partition, "before": before, "dry_run": dry_run}).encode()


def purge_stream(name: str, *, dry_run: bool) -> bytes:
    """PurgeStream, a method of ours."""
    return json.dumps({"name": name, "dry_run": dry_run}).encode()


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
            raise StateError("stream_not_found", f"stream {found.name} does not exist", {"stream": found.name})
        created = _EPOCH + timedelta(microseconds=found.creationTimestamp // 1000)
        partitions = tuple(_partition(found.partitions[key]) for key in sorted(found.partitions))
        streams.append(Stream(found.name, found.subject, created, partitions))
    return streams


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
    )


def is_empty_range(start: Start, stop: Stop) -> bool:
    """Whether nothing can lie between: the protocol has no word for an empty range."""
    if isinstance(stop, int):
        return stop <= 0 or (isinstance(start, int) and start >= stop)
    return isinstance(stop, datetime) and isinstance(start, datetime) and start >= stop


def subscribe(stream: str, partition: int, start: Start, stop: Stop, *, resume: bool = False) -> bytes:
    """A SubscribeRequest. Stops are exclusive here and inclusive on the wire.

    Raises:
        UsageError: code `invalid_argument`: a start or stop that means nothing.
    """
    request = message("SubscribeRequest")(stream=stream, partition=partition, resume=resume)
    if isinstance(start, datetime):
        request.startPosition = number("StartPosition", "TIMESTAMP")
        request.startTimestamp = nanoseconds(start)
    elif isinstance(start, int):
        request.startPosition = number("StartPosition", "OFFSET")
        request.startOffset = _offset("start", start)
    elif start in _STARTS:
        request.startPosition = number("StartPosition", _STARTS[start])
    else:
        raise UsageError(
            "invalid_argument", f'start is "earliest", "latest", "new", an offset or a datetime, not {start!r}'
        )
    if isinstance(stop, datetime):
        request.stopPosition = number("StopPosition", "STOP_TIMESTAMP")
        request.stopTimestamp = nanoseconds(stop) - 1
    elif isinstance(stop, int):
        request.stopPosition = number("StopPosition", "STOP_OFFSET")
        request.stopOffset = _offset("stop", stop) - 1
    elif stop == "latest":
        request.stopPosition = number("StopPosition", "STOP_LATEST")
    elif stop is not None:
        raise UsageError("invalid_argument", f'stop is "latest", an offset, a datetime or None, not {stop!r}')
    return request.SerializeToString()


def _offset(name: str, value: int) -> int:
    if not 0 <= value <= _INT64_MAX:
        raise UsageError("invalid_argument", f"{name} is an offset from 0 to {_INT64_MAX}, not {value}")
    return value


def nanoseconds(time: datetime) -> int:
    """Nanoseconds since 1970; a time without a time zone is local time."""
    return (time.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1) * 1000
