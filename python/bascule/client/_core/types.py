"""What the client's methods take and give. Offsets are inclusive where one record is meant; ranges are half-open."""

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
"""When a publish counts as done: stored by the leader, stored by every in-sync replica, or sent."""

Start: TypeAlias = Literal["earliest", "latest", "new"] | int | datetime
"""Where reading begins: the first readable record, the newest one, only what comes from now on, an offset, or the first
record at or after a time. A time without a time zone is one of the local zone.
"""

Stop: TypeAlias = Literal["latest"] | int | datetime | None
"""Where reading ends: behind what is stored now, before an offset, before a time, or never (`None`)."""


OffsetReset: TypeAlias = Literal["error", "earliest", "latest", "new"]
"""What happens when a remembered position lies beyond the end of the partition, because the broker lost records or an
older copy of its data was restored: the call fails, or reading starts at the first record, the newest one, or the next.
"""

Content: TypeAlias = bytes | bytearray | str
"""Bytes, or text that is sent as UTF-8."""

Headers: TypeAlias = Mapping[str, Content] | Sequence[tuple[str, Content]]
"""Names and values: a dictionary, or pairs in order, in which names may repeat. A name that is not UTF-8 has its bytes
as lone surrogates (`surrogateescape`).
"""

PartitionChoice: TypeAlias = int | Literal["round_robin"] | Callable[[Content | None, Content | None, int], int] | None
"""Which partition a record goes to: a number from 0; `None` = by CRC-32 of its key, as other Liftbridge clients compute
it, and records without a key stay with one partition for a while (1,024 records or 64 KiB) before the next one gets its
share; "round_robin" = one after the other from 0, whatever the key; or a function of key, value and number of
partitions.
"""


class Receipt(NamedTuple):
    """Where a published record lies."""

    offset: int
    """−1 when no acknowledgement was asked for."""
    timestamp_ns: int
    """When the broker received it, nanoseconds since 1970; 0 when no acknowledgement was asked for."""
    partition: int = 0
    """The partition that it went to."""


class SubjectReceipt(NamedTuple):
    """What the first stream that stored a record published on a subject said."""

    stream: str
    offset: int
    timestamp_ns: int
    """When the broker received it, nanoseconds since 1970."""


class Purged(NamedTuple):
    """What a purge removes."""

    records: int
    """About how many records."""
    at_once: bool
    """Their files do not stay for `limits.grace_ms`: that was asked for, or the broker's disk is full."""


class Record(NamedTuple):
    """One stored record."""

    offset: int
    timestamp_ns: int
    key: bytes | None
    value: bytes | None
    """`None` = a tombstone: where only the last record of each key is kept, it deletes the key."""
    subject: str
    """The NATS subject it arrived on."""
    headers: list[tuple[str, bytes]]
    """Names and values in order; names may repeat. One that is not UTF-8 has its bytes as lone surrogates."""
    reply: str = ""
    """The NATS subject that an answer was asked for on; empty = none."""
    origin_time_ns: int | None = None
    """The time at the origin that its publisher gave, nanoseconds since 1970."""

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
        """The headers by name; of equal names the last."""
        return dict(self.headers)

    def header(self, name: str) -> bytes | None:
        """The value of the last header of this name; `None` = there is none."""
        return next((value for other, value in reversed(self.headers) if other == name), None)


@dataclass(frozen=True, slots=True)
class Broker:
    """A running server as the broker that answered knows it."""

    id: str
    host: str
    port: int
    partitions: int
    """Partitions that it has a replica of, paused ones left out."""
    leaders: int
    """Partitions that it leads."""


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group."""

    id: str
    coordinator: str
    """Id of the broker that its members send their signs of life to."""
    epoch: int
    """Rises with every change of its members, coordinator or streams; 0 for a new group."""


@dataclass(frozen=True, slots=True)
class EventTimes:
    """When something happened, in this life of the broker; `None` = never."""

    first: datetime | None
    latest: datetime | None


_NEVER = EventTimes(None, None)


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition as the broker that answered knows it."""

    number: int
    leader: str
    replicas: tuple[str, ...]
    in_sync: tuple[str, ...]
    high_watermark: int
    """Offset behind the last committed record; 0 = none."""
    log_end_offset: int
    """Offset that the next record gets."""
    paused: bool
    readonly: bool
    received_times: EventTimes = _NEVER
    """When records arrived. All three are kept in memory by the leader: never, after it started anew."""
    pause_times: EventTimes = _NEVER
    """When it was paused or resumed."""
    readonly_times: EventTimes = _NEVER
    """When it was made read-only or writable."""
    log_start: int | None = None
    """First offset that can be read; `None` when it is not open on the broker that answered (paused, or elsewhere), and
    where the broker is one of Liftbridge's own."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream and its partitions, by number."""

    name: str
    subject: str
    created: datetime
    partitions: tuple[Partition, ...]
