"""What v1, v1b and v2 answer, from values to payloads. Numbers count from 1; sizes are bytes, instants µs."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bascule.protocols.iggy.fields import short_text
from bascule.protocols.iggy.numbering import has_options, shown
from bascule.protocols.iggy.options import OptionValue, encode_options

__all__ = ["Group", "Member", "Partition", "Stream", "Token", "Topic", "User", "permissions"]

_ACTIVE, _INACTIVE = 1, 2


def _no_options() -> bytes:
    """What v2 shows of streams and users: an empty block."""
    return bytes(4) if has_options() else b""


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream with what all its topics have together."""

    number: int
    created_at: int
    topics: int
    size: int
    messages: int
    name: str

    def encode(self) -> bytes:
        """As in lists, and before its topics."""
        fixed = struct.pack("<IQIQQ", shown(self.number), self.created_at, self.topics, self.size, self.messages)
        return fixed + short_text(self.name) + _no_options()


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `expiry` µs, `max_size` bytes: as they have effect, 2^64 − 1 = never, unlimited. `explicit`: the options
    that its creator gave; `derived`: the others; of v2.
    """

    number: int
    created_at: int
    partitions: int
    expiry: int
    compression: int
    max_size: int
    replication: int
    size: int
    messages: int
    name: str
    explicit: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])
    derived: Mapping[str, OptionValue] = field(default_factory=dict[str, OptionValue])

    def encode(self) -> bytes:
        """As in lists, and before its partitions."""
        head = struct.pack("<IQIQ", shown(self.number), self.created_at, self.partitions, self.expiry)
        limits = struct.pack("<BQ", self.compression, self.max_size)
        held = struct.pack("<QQ", self.size, self.messages) + short_text(self.name)
        if has_options():
            return head + limits + held + encode_options(self.explicit) + encode_options(self.derived)
        return head + limits + bytes([self.replication]) + held


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition. `current_offset`: the newest, 0 when it is empty."""

    number: int
    created_at: int
    segments: int
    current_offset: int
    size: int
    messages: int

    def encode(self) -> bytes:
        """40 bytes."""
        head = struct.pack("<IQI", shown(self.number), self.created_at, self.segments)
        return head + struct.pack("<QQQ", self.current_offset, self.size, self.messages)


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, by the number of its connection, and the partitions that it reads."""

    client: int
    partitions: Sequence[int]

    def encode(self) -> bytes:
        """As after its group."""
        count = len(self.partitions)
        return struct.pack(f"<II{count}I", self.client, count, *map(shown, self.partitions))


@dataclass(frozen=True, slots=True)
class Group:
    """A group of a topic with `partitions` partitions."""

    number: int
    partitions: int
    members: int
    name: str

    def encode(self) -> bytes:
        """As in lists, and before its members."""
        return struct.pack("<III", shown(self.number), self.partitions, self.members) + short_text(self.name)


@dataclass(frozen=True, slots=True)
class User:
    """A user."""

    number: int
    created_at: int
    name: str
    is_active: bool

    def encode(self) -> bytes:
        """As in lists, and before its permissions."""
        status = _ACTIVE if self.is_active else _INACTIVE
        fixed = struct.pack("<IQB", shown(self.number), self.created_at, status)
        return fixed + short_text(self.name) + _no_options()


def permissions(block: bytes | None) -> bytes:
    """What follows a user: the block of its permissions; `None` = it has none."""
    return bytes(4) if block is None else struct.pack("<BI", 1, len(block)) + block


@dataclass(frozen=True, slots=True)
class Token:
    """A token that stands for a user. `expires_at`: 0 = never."""

    name: str
    expires_at: int

    def encode(self) -> bytes:
        """As in lists."""
        return short_text(self.name) + struct.pack("<Q", self.expires_at)
