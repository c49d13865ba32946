"""Requests that create, change and list streams, and their answers. No I/O."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from bascule._admin_pb import message as admin
from bascule._liftbridge_pb import message
from bascule.client._core import refusals
from bascule.client._core.requests.bounds import EPOCH, check_partition
from bascule.client._core.requests.stream_options import StreamOptions
from bascule.client._core.types import Broker, EventTimes, Partition, Stream

__all__ = [
    "create_stream",
    "delete_stream",
    "fetch_streams",
    "metadata",
    "partition_metadata",
    "pause_stream",
    "read_brokers",
    "read_existing",
    "read_namespace",
    "read_partition",
    "read_streams",
    "set_readonly",
]

_UNKNOWN_STREAM: Final = 1


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
        "retentionAfterArchive": options.retention_after_archive,
        "retentionAfterArchiveMaxBytes": options.retention_after_archive_max_bytes,
        "retentionHoldMaxBytes": options.retention_hold_max_bytes,
        "retentionHoldExpiry": options.retention_hold_expiry,
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
            # a wrapper must be present even if it holds 0 or false
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


def metadata(streams: list[str]) -> bytes:
    """A FetchMetadataRequest; no names = all streams."""
    return message("FetchMetadataRequest")(streams=streams).SerializeToString()


def read_streams(answer: bytes) -> list[Stream]:
    """The streams of a FetchMetadataResponse, in its order.

    Raises:
        StateError: code `stream_not_found`: a requested stream does not exist.
    """
    streams: list[Stream] = []
    for found in message("FetchMetadataResponse").FromString(answer).streamMetadata:
        if found.error == _UNKNOWN_STREAM:
            raise refusals.no_stream(found.name)
        streams.append(_stream(found.name, found))
    return streams


def fetch_streams(namespace: str) -> bytes:
    """A FetchStreamsRequest."""
    return admin("FetchStreamsRequest")(namespace=namespace).SerializeToString()


def read_namespace(namespace: str, answer: bytes) -> list[Stream]:
    """The streams of a FetchStreamsResponse, in its order, named with their namespace."""
    found = admin("FetchStreamsResponse").FromString(answer).streams
    return [_stream(f"{namespace}/{stream.name}", stream) for stream in found]


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


def partition_metadata(stream: str, partition: int) -> bytes:
    """A FetchPartitionMetadataRequest."""
    return message("FetchPartitionMetadataRequest")(stream=stream, partition=partition).SerializeToString()


def read_partition(answer: bytes) -> Partition:
    """The partition of a FetchPartitionMetadataResponse."""
    return _partition(message("FetchPartitionMetadataResponse").FromString(answer).metadata)


def _stream(name: str, found: Any) -> Stream:
    created = EPOCH + timedelta(microseconds=found.creationTimestamp // 1000)
    partitions = tuple(_partition(found.partitions[key]) for key in sorted(found.partitions))
    return Stream(name, found.subject, created, partitions)


def _partition(found: Any) -> Partition:
    # the wire has the last such offset, and −1 for none
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
    return EPOCH + timedelta(microseconds=timestamp_ns // 1000) if timestamp_ns else None
