"""Types of arguments and results of the client. An offset names one record; ranges are half-open."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, TypeAlias

__all__ = [
    "Ack",
    "Broker",
    "Content",
    "EventTimes",
    "Group",
    "Headers",
    "OffsetReset",
    "Partition",
    "PartitionChoice",
    "Purged",
    "Receipt",
    "Record",
    "Start",
    "Stop",
    "Stream",
    "SubjectReceipt",
]

Ack: TypeAlias = Literal["leader", "all", "none"]
"""When a publish returns: stored by the leader, stored by every in-sync replica, or (`none`) sent."""

Start: TypeAlias = Literal["earliest", "latest", "new"] | int | datetime
"""Where reading begins: at the first readable record, at the newest one, after the newest one ("new"), at an offset, or
at the first record at or after a time. A time without a time zone is local time.
"""

Stop: TypeAlias = Literal["latest"] | int | datetime | None
"""Where reading ends: after the newest record stored now, before an offset, before a time, or never (`None`)."""


OffsetReset: TypeAlias = Literal["error", "earliest", "latest", "new"]
"""What to do when a remembered position is beyond the end of the partition, because the broker lost records or an older
copy of its data was restored: raise an error, or start at the first record, the newest one, or the next one.
"""

Content: TypeAlias = bytes | bytearray | str
"""Bytes, or text that is sent as UTF-8."""

Headers: TypeAlias = Mapping[str, Content] | Sequence[tuple[str, Content]]
"""Names and values: a dictionary, or pairs in order, in which names may repeat. A name that is not UTF-8 has its bytes
as lone surrogates (`surrogateescape`).
"""

PartitionChoice: TypeAlias = int | Literal["round_robin"] | Callable[[Content | None, Content | None, int], int] | None
"""The partition of a record: a number from 0; `None` = by the CRC-32 of its key, as in other Liftbridge clients, while
records without a key fill one partition (1,024 records or 64 KiB) before they move to the next; "round_robin" = one
after the other from 0, whatever the key; or a function of key, value and number of partitions.
"""


class Receipt(NamedTuple):
    """Partition, offset and time of a published record."""

    offset: int
    """−1 when no acknowledgement was asked for."""
    timestamp_ns: int
    """When the broker received it, nanoseconds since 1970; 0 when no acknowledgement was asked for."""
    partition: int = 0
    """Number of the partition that holds it."""


class SubjectReceipt(NamedTuple):
    """The acknowledgement of the first stream that stored a record published on a subject."""

    stream: str
    offset: int
    timestamp_ns: int
    """When the broker received it, nanoseconds since 1970."""


class Purged(NamedTuple):
    """The result of a purge."""

    records: int
    """Approximate number of removed records."""
    at_once: bool
    """Whether the files are removed without waiting for `limits.grace_ms`: requested, or the broker's disk is full."""


class Record(NamedTuple):
    """One stored record."""

    offset: int
    timestamp_ns: int
    key: bytes | None
    value: bytes | None
    """`None` = a tombstone: in a compacted stream it deletes the key."""
    subject: str
    """The NATS subject it arrived on."""
    headers: list[tuple[str, bytes]]
    """Names and values in order; names may repeat. A name that is not UTF-8 has its bytes as lone surrogates."""
    reply: str = ""
    """The NATS reply subject of the message; empty = none."""
    origin_time_ns: int | None = None
    """The origin time that its publisher set, nanoseconds since 1970; `None` = none."""

    @property
    def text(self) -> str | None:
        """The value as text.

        Raises:
            UnicodeDecodeError: it is not UTF-8.
        """
        return None if self.value is None else self.value.decode()

    @property
    def key_text(self) -> str | None:
        """The key as text.

        Raises:
            UnicodeDecodeError: it is not UTF-8.
        """
        return None if self.key is None else self.key.decode()

    @property
    def header_map(self) -> dict[str, bytes]:
        """The headers by name; the last one of equal names wins."""
        return dict(self.headers)

    def header(self, name: str) -> bytes | None:
        """The value of the last header of this name; `None` = there is none."""
        return next((value for other, value in reversed(self.headers) if other == name), None)


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker, as known to the broker that answered."""

    id: str
    host: str
    port: int
    partitions: int
    """Number of partitions that it has a replica of, without paused ones."""
    leaders: int
    """Number of partitions that it leads."""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group."""

    id: str
    coordinator: str
    """Id of the broker that its members send their heartbeats to."""
    epoch: int
    """Rises with every change of its members, coordinator or streams; 0 for a new group."""
    generation: int = 0
    """As `epoch`, but unique among all groups that had this id; 0 = the broker does not say."""


@dataclass(frozen=True, slots=True)
class EventTimes:
    """First and latest time of an event since the broker started; `None` = never."""

    first: datetime | None
    latest: datetime | None


_NEVER = EventTimes(None, None)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition, as known to the broker that answered."""

    number: int
    leader: str
    replicas: tuple[str, ...]
    in_sync: tuple[str, ...]
    high_watermark: int
    """Offset after the last committed record; 0 = there is none."""
    log_end_offset: int
    """Offset of the next record to be appended."""
    paused: bool
    readonly: bool
    received_times: EventTimes = _NEVER
    """When records arrived. The leader keeps all three times in memory only: a restart resets them."""
    pause_times: EventTimes = _NEVER
    """When it was paused or resumed."""
    readonly_times: EventTimes = _NEVER
    """When it was made read-only or writable."""
    log_start: int | None = None
    """First readable offset; `None` if the partition is not open on the broker that answered (paused, or led by another
    broker), and with brokers of the Liftbridge project."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream and its partitions, by number."""

    name: str
    subject: str
    created: datetime
    partitions: tuple[Partition, ...]
