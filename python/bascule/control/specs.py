"""Documents for the data plane (`specs/formats/seam.md`), out of the state. Pure.

A setting that the stream leaves open takes the broker's default here, each time its partitions are opened.
"""

from dataclasses import dataclass
from typing import Any

from bascule.metadata import DEFAULT_NAMESPACE, Group, Partition, Stream, StreamSettings, TopicGroup

DEFAULT_CLEANER_INTERVAL_MS = 300_000
DEFAULT_SEGMENT_BYTES = 1 << 30
DEFAULT_HOLD_EXPIRY_MS = 3_600_000
INTERNAL_STREAMS = frozenset({"__activity", "__cursors"})


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings of a stream whose creator left them open; 0 = unlimited or never.

    Attributes:
        retention_age_ms: remove segments older than this.
        retention_bytes: keep at most this many bytes a partition.
        retention_messages: keep at most this many records a partition.
        cleaner_interval_ms: how often retention runs; 0 = 5 minutes.
        retention_min_age_ms: nothing is removed by retention before a broker has had it for so long.
        compact: keep only the last record of each key.
        compact_tombstone_ms: how long a null value stays as the last of its key.
        compact_memory_bytes: memory for keys during a run.
        compact_bytes_per_second: bytes read and written by compaction; 0 = no limit.
        segment_bytes: roll at this size; 0 = 1 GiB.
        segment_age_ms: roll at this age; None = the age of retention.
        max_record_bytes: largest record as received.
        batch_records: records of one batch.
        batch_bytes: bytes of one batch.
        min_isr: in-sync replicas without which nothing is appended; the broker's own streams need one.
    """

    retention_age_ms: int = 7 * 86_400_000
    retention_bytes: int = 0
    retention_messages: int = 0
    cleaner_interval_ms: int = DEFAULT_CLEANER_INTERVAL_MS
    retention_min_age_ms: int = 900_000
    compact: bool = False
    compact_tombstone_ms: int = 86_400_000
    compact_memory_bytes: int = 64 << 20
    compact_bytes_per_second: int = 768 << 20
    segment_bytes: int = 256 << 20
    segment_age_ms: int | None = None
    max_record_bytes: int = 1 << 20
    batch_records: int = 1024
    batch_bytes: int = 1 << 20
    min_isr: int = 1


def partition_subject(stream: Stream, number: int) -> str:
    """The NATS subject that partition `number` listens on; empty = none. The broker's own streams listen on none: what
    they hold is the broker's word.
    """
    if stream.namespace == DEFAULT_NAMESPACE and stream.name in INTERNAL_STREAMS:
        return ""
    if not stream.subject or number == 0 or stream.settings.partition_by_subject:
        return stream.subject
    return f"{stream.subject}.{number}"


def hold_ms(settings: StreamSettings) -> int:
    """Time after the last report of a query at which its hold ends, ms; 0 = the stream lets no query hold records."""
    if settings.retention_hold_max_bytes is None:
        return 0
    return _first(settings.retention_hold_expiry_ms, DEFAULT_HOLD_EXPIRY_MS)


def partition_spec(stream: Stream, partition: Partition, defaults: Defaults) -> dict[str, Any]:
    """What `open` needs to know of one partition."""
    asked = stream.settings
    retention_age_ms = _first(asked.retention_age_ms, defaults.retention_age_ms)
    return {
        "namespace": stream.namespace,
        "stream": stream.name,
        "number": partition.number,
        "incarnation": partition.incarnation,
        "subject": partition_subject(stream, partition.number),
        "base_subject": stream.subject,
        "queue_group": stream.queue_group,
        "durability": asked.durability,
        "codec": asked.codec,
        "nats_copy": asked.nats_copy,
        "nats_acks": asked.nats_acks,
        "max_record_bytes": _first(asked.max_record_bytes, defaults.max_record_bytes),
        "batch_records": defaults.batch_records,
        "batch_bytes": defaults.batch_bytes,
        "retention_age_ms": retention_age_ms,
        "retention_bytes": _first(asked.retention_bytes, defaults.retention_bytes),
        "retention_messages": _first(asked.retention_messages, defaults.retention_messages),
        "cleaner_interval_ms": _first(asked.cleaner_interval_ms, defaults.cleaner_interval_ms)
        or DEFAULT_CLEANER_INTERVAL_MS,
        "retention_min_age_ms": defaults.retention_min_age_ms,
        "compact": defaults.compact if asked.compact_enabled is None else asked.compact_enabled,
        "compact_tombstone_ms": defaults.compact_tombstone_ms,
        "compact_memory_bytes": defaults.compact_memory_bytes,
        "compact_bytes_per_second": defaults.compact_bytes_per_second,
        "archive_wait_bytes": (asked.retention_after_archive_max_bytes or 0) if asked.retention_after_archive else 0,
        "archived_to": partition.archived_to,
        "hold_bytes": asked.retention_hold_max_bytes or 0,
        "hold_ms": hold_ms(asked),
        "trimmed_to": partition.trimmed_to,
        "segment_bytes": _first(asked.segment_bytes, defaults.segment_bytes) or DEFAULT_SEGMENT_BYTES,
        "segment_age_ms": _first(asked.segment_age_ms, _first(defaults.segment_age_ms, retention_age_ms)),
        "concurrency_control": asked.concurrency_control,
        "data_keys": [{"number": key.number, "master": key.master, "wrapped": key.wrapped} for key in stream.data_keys],
        "readonly": partition.readonly,
        "min_isr": _first(asked.min_isr, 1 if stream.name in INTERNAL_STREAMS else defaults.min_isr),
        "in_sync": len(partition.isr),
        "replicas": len(partition.replicas),
        "subject_partitions": len(stream.partitions) if asked.partition_by_subject else 0,
    }


def stream_spec(stream: Stream) -> dict[str, Any]:
    """What `publish_view` needs to know of one stream."""
    return {
        "namespace": stream.namespace,
        "name": stream.name,
        "id": stream.id,
        "subject": stream.subject,
        "created_ns": stream.created_ns,
        "partition_by_subject": stream.settings.partition_by_subject,
        "counts_while_paused": not stream.queue_group and stream.settings.nats_acks == "off",
        "concurrency_control": stream.settings.concurrency_control,
        "resume_all": stream.resume_all,
        "topic_groups": [_topic_group(item) for item in stream.topic_groups],
        "partitions": [
            {
                "number": item.number,
                "incarnation": item.incarnation,
                "leader": item.leader,
                "leader_epoch": item.leader_epoch,
                "isr": [*item.isr],
                "readonly": item.readonly,
                "paused": item.paused,
            }
            for item in stream.partitions
        ],
    }


def _topic_group(group: TopicGroup) -> tuple[int, str, int, int, list[tuple[str, int]]]:
    members = [(item.broker, item.client) for item in group.members]
    return group.id, group.name, group.created, group.changed, members


def group_spec(group: Group) -> dict[str, Any]:
    """One of the `groups` of `Engine.publish_view`."""
    members = {member.id: member.joined for member in group.members}
    # Groups from before `created` was kept: nobody has joined one of them earlier than its first member.
    created = group.created or min(members.values())
    return {"id": group.id, "created": created, "generation": group.generation, "members": members}


def _first(value: int | None, default: int) -> int:
    return default if value is None else value
