"""The result of `stream show`."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from bascule.cli.render.output import cell
from bascule.client import BrokerDetails, PartitionDetails, StreamDetails

__all__ = ["StreamView", "summary"]

_INGEST: Final = {
    "nats_dropped_by_broker": "nats_dropped",
    "nats_slow_consumer": "nats_slow_consumer",
    "nats_gaps": "nats_gaps",
}
"""Fields of the view that apply to the whole broker, and their counters."""


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """One partition. Offsets are `None` if it is not open on the broker that answered."""

    number: int
    leader: str
    in_sync: tuple[str, ...]
    state: str
    """`open`, `paused`, `read-only`, `damaged`, `failed` or `elsewhere`; several joined by commas."""
    log_start: int | None
    high_watermark: int | None
    log_end_offset: int | None
    bytes: int | None
    subscribers: int | None
    nats_dropped: int | None
    nats: str | None
    """State of its NATS subscription: `subscribed`, `waiting`, `none`, or `denied` with the server's message."""
    nats_not_stored: dict[str, int]
    """Messages from NATS that were not stored since the broker started, by reason; zeros are left out."""
    last_record: str | None
    paused: bool
    readonly: bool
    damaged_offsets: int

    @classmethod
    def of(cls, partition: PartitionDetails) -> Self:
        """The row of a partition."""
        return cls(
            number=partition.number,
            leader=partition.leader,
            in_sync=partition.in_sync,
            state=_state(partition),
            log_start=partition.log_start,
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log_end,
            bytes=partition.size_bytes,
            subscribers=partition.subscribers,
            nats_dropped=partition.nats_dropped,
            nats=_subscription(partition),
            nats_not_stored={reason: count for reason, count in (partition.nats_not_stored or {}).items() if count},
            last_record=_text(partition.received_at),
            paused=partition.paused,
            readonly=partition.readonly,
            damaged_offsets=sum(damage.end - damage.start for damage in partition.damaged),
        )


@dataclass(frozen=True, slots=True)
class DamageRow:
    """One damaged range of offsets; readers of it get an error."""

    partition: int
    start: int
    end: int
    """Exclusive: the first readable offset after the damage."""
    fault: str
    path: str
    position: int


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting."""

    name: str
    asked: Any
    """`None` = the broker's configuration decides."""
    in_effect: Any
    """`None` = not reported by the broker."""


@dataclass(frozen=True, slots=True)
class StreamView:
    """The stream with all details."""

    name: str
    subject: str
    group: str
    created: str
    durability: str
    encrypted: bool
    resume_all: bool
    ingest: str
    """Whether messages from NATS are stored, or why not."""
    nats_dropped: int
    """Messages from NATS that were not stored since the stream's partitions were opened."""
    nats_dropped_by_broker: int
    """The same of all streams since the broker started, and messages that NATS dropped before the broker read them."""
    nats_slow_consumer: int
    """Number of slow-consumer errors from NATS."""
    nats_gaps: int
    """Number of reconnects to NATS."""
    failures: tuple[str, ...]
    """Errors of partitions that could not be opened."""
    partitions: tuple[PartitionRow, ...]
    damaged: tuple[DamageRow, ...]
    settings: tuple[SettingRow, ...]

    @classmethod
    def of(cls, stream: StreamDetails, broker: BrokerDetails) -> Self:
        """The view of a stream on a broker."""
        counts = {name: broker.statistics.get(counter, 0) for name, counter in _INGEST.items()}
        return cls(
            name=stream.name,
            subject=stream.subject,
            group=stream.group,
            created=stream.created.isoformat(timespec="seconds"),
            durability=str(stream.settings["durability"]),
            encrypted=stream.encrypted,
            resume_all=stream.resume_all,
            ingest=_ingest(broker),
            nats_dropped=sum(item.nats_dropped or 0 for item in stream.partitions),
            **counts,
            failures=tuple(f"{item.number}: {item.failure}" for item in stream.partitions if item.failure),
            partitions=tuple(PartitionRow.of(item) for item in stream.partitions),
            damaged=tuple(
                DamageRow(item.number, damage.start, damage.end, damage.fault, damage.path, damage.position)
                for item in stream.partitions
                for damage in item.damaged
            ),
            settings=tuple(
                SettingRow(name, value, stream.in_effect.get(name, value)) for name, value in stream.settings.items()
            ),
        )


def _ingest(broker: BrokerDetails) -> str:
    checks = {check.name: check for check in broker.checks}
    nats = checks.get("nats")
    return "not reported" if nats is None else nats.reason


@dataclass(frozen=True, slots=True)
class PartitionLine:
    """The columns of a partition in the table."""

    partition: int
    state: str
    log_start: int | None
    high_watermark: int | None
    bytes: int | None
    subscribers: int | None
    last_record: str | None


def summary(view: StreamView) -> dict[str, Any]:
    """The fields of `stream show` as a table: the common ones, then only those that differ from the default."""
    shown: dict[str, Any] = {
        "name": view.name,
        "subject": view.subject,
        "queue_group": view.group,
        "created": view.created,
        "durability": view.durability,
        "encrypted": view.encrypted,
        "ingest": view.ingest,
        "settings": ", ".join(
            f"{row.name}={cell(row.asked)}"
            for row in view.settings
            if row.asked is not None and row.name != "durability"
        ),
    }
    unusual: dict[str, Any] = {
        "nats_denied": [
            f"{row.number}: {row.nats}" for row in view.partitions if (row.nats or "").startswith("denied")
        ],
        "nats_not_stored": _sum(row.nats_not_stored for row in view.partitions),
        "resume_all": view.resume_all,
        "nats_dropped": view.nats_dropped,
        "nats_dropped_by_broker": view.nats_dropped_by_broker,
        "nats_slow_consumer": view.nats_slow_consumer,
        "failures": list(view.failures),
    }
    usual_when_empty = {"queue_group", "settings"}
    shown = {name: value for name, value in shown.items() if value != "" or name not in usual_when_empty}
    shown |= {name: value for name, value in unusual.items() if value}
    shown["partitions"] = [
        PartitionLine(
            row.number, row.state, row.log_start, row.high_watermark, row.bytes, row.subscribers, row.last_record
        )
        for row in view.partitions
    ]
    if view.damaged:
        shown["damaged"] = list(view.damaged)
    return shown


def _subscription(partition: PartitionDetails) -> str | None:
    refusal = partition.nats_refusal
    return f"{partition.nats_subscription}: {refusal}" if refusal else partition.nats_subscription


def _sum(counts: Iterable[Mapping[str, int]]) -> str:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return ", ".join(f"{reason} {number}" for reason, number in total.items())


def _state(partition: PartitionDetails) -> str:
    words = {
        "failed": bool(partition.failure),
        "paused": partition.paused,
        "read-only": partition.readonly,
        "damaged": bool(partition.damaged),
        "elsewhere": partition.log_end is None and not partition.paused and not partition.failure,
    }
    return ", ".join(word for word, holds in words.items() if holds) or "open"


def _text(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat(timespec="seconds")
