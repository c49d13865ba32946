"""Requests and replies of Iggy's protocol, in the two layouts that a login of this client can mean. No I/O.

A login with a password states SDK 0.10, so the connection speaks v1b with 64-byte message heads; a login with a token
states no version, so the connection speaks v1. Inside, everything is numbered from 0. All integers are little-endian.
"""

import struct
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from bascule.client._core.requests.bounds import check_bounds
from bascule.errors import UnavailableError, UsageError

__all__ = [
    "V1",
    "V1B",
    "Code",
    "Generation",
    "Message",
    "NewTopic",
    "Polled",
    "Sent",
    "Strategy",
    "TopicRow",
]

MAX_FIELD_BYTES: Final = 255
RAW, TEXT = 1, 2
"""Kinds of header values and keys."""
MAX_HEADER_BYTES: Final = 100_000
MAX_U32: Final = (1 << 32) - 1


class Code(IntEnum):
    """Codes of the commands that this client sends."""

    PING = 1
    GET_ME = 20
    LOGIN_USER = 38
    LOGIN_WITH_TOKEN = 44
    POLL_MESSAGES = 100
    SEND_MESSAGES = 101
    GET_OFFSET = 120
    STORE_OFFSET = 121
    DELETE_OFFSET = 122
    CREATE_STREAM = 202
    GET_TOPIC = 300
    GET_TOPICS = 301
    CREATE_TOPIC = 302
    DELETE_TOPIC = 303
    PURGE_TOPIC = 305
    GET_GROUP = 600
    CREATE_GROUP = 602
    JOIN_GROUP = 604
    LEAVE_GROUP = 605


class Strategy(IntEnum):
    """Where a poll begins."""

    OFFSET = 1
    TIMESTAMP = 2


@dataclass(frozen=True, slots=True)
class Sent:
    """A message to be sent. `headers`: names and values in order; `origin_us`: 0 = none, which v1 cannot state."""

    payload: bytes
    headers: Sequence[tuple[str, bytes]] = ()
    origin_us: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A polled message. A header's name that is not a text is shown as `#<kind>:<bytes, hexadecimal>`."""

    id: int
    offset: int
    timestamp_us: int
    origin_us: int
    headers: list[tuple[str, bytes]]
    payload: bytes


@dataclass(frozen=True, slots=True)
class Polled:
    """The reply to a poll; `current` is the newest offset of the partition."""

    partition: int
    current: int
    messages: list[Message]


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic of Iggy. `ends`: offset after the newest record of each partition; empty in lists."""

    name: str
    created_us: int
    partitions: int
    ends: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created.

    Attributes:
        partitions: how many.
        expiry_us: age at which messages are removed; 0 = the broker's default, 2^64 − 1 = never.
        max_bytes: of all partitions; 0 = the broker's default, 2^64 − 1 = unlimited.
        copies: replication factor; 0 = the broker's default.
    """

    partitions: int
    expiry_us: int
    max_bytes: int
    copies: int


@dataclass(frozen=True, slots=True)
class Generation:
    """A layout.

    Attributes:
        first: what a connection calls the first partition.
        is_v1: v1, otherwise v1b with 64-byte heads.
        max_send_bytes: of all payloads of one send.
    """

    first: int
    is_v1: bool
    max_send_bytes: int

    def create_stream(self, name: str) -> bytes:
        """CREATE_STREAM."""
        return (struct.pack("<I", 0) if self.is_v1 else b"") + _short(name)

    def new_group(self, name: str) -> bytes:
        """The end of CREATE_CONSUMER_GROUP, behind stream and topic."""
        return (struct.pack("<I", 0) if self.is_v1 else b"") + _short(name)

    def members(self, reply: bytes) -> dict[int, list[int]]:
        """The members of a GET_CONSUMER_GROUP: partitions by number of the connection; none of a group that is missing.

        Raises:
            UnavailableError: it is cut, or has another layout.
        """
        found = dict[int, list[int]]()
        with _readable("a group"):
            at = 13 + reply[12] if reply else 0
            while at < len(reply):
                client, count = struct.unpack_from("<II", reply, at)
                numbers = struct.unpack_from(f"<{count}I", reply, at + 8)
                found[client] = [number - self.first for number in numbers]
                at += 8 + 4 * count
        return found

    def create_topic(self, stream: str, name: str, topic: "NewTopic") -> bytes:
        """CREATE_TOPIC."""
        number = struct.pack("<I", 0) if self.is_v1 else b""
        fields = struct.pack("<IBQQB", topic.partitions, 1, topic.expiry_us, topic.max_bytes, topic.copies)
        return place(stream) + number + fields + _short(name)

    def partition(self, number: int | None) -> bytes:
        """A partition that may be left out."""
        if self.is_v1:
            return struct.pack("<I", 0 if number is None else number + 1)
        return struct.pack("<BI", number is not None, number or 0)

    def poll(self, consumer: bytes, topic: bytes, partition: int, strategy: tuple[Strategy, int], count: int) -> bytes:
        """POLL_MESSAGES without automatic commits. `topic`: of `place`."""
        kind, value = strategy
        return consumer + topic + self.partition(partition) + struct.pack("<BQIB", kind, value, count, 0)

    def to_partition(self, number: int) -> bytes:
        """Partitioning to a partition."""
        return struct.pack("<BBI", 2, 4, number + self.first)

    def send(self, topic: bytes, partitioning: bytes, messages: Sequence[Sent]) -> bytes:
        """SEND_MESSAGES.

        Raises:
            UsageError: codes `invalid_argument`, `too_large`.
        """
        size = sum(len(item.payload) for item in messages)
        if size > self.max_send_bytes:
            text = f"one send has {size} bytes of values: Iggy's protocol carries {self.max_send_bytes}"
            raise UsageError("too_large", text, {"bytes": size, "limit": self.max_send_bytes})
        bodies = [self._message(item) for item in messages]
        if self.is_v1:
            return topic + partitioning + b"".join(bodies)
        head = topic + partitioning + struct.pack("<I", len(messages))
        index, end = list[bytes](), 0
        for body in bodies:
            end += len(body)
            index.append(struct.pack("<IIQ", 0, end, 0))
        return struct.pack("<I", len(head)) + head + b"".join(index) + b"".join(bodies)

    def _message(self, item: Sent) -> bytes:
        headers = b"".join(self._header(*pair) for pair in item.headers)
        if self.is_v1:
            if item.origin_us:
                raise UsageError("unimplemented", "origin_time_ns needs a login with a password: v1 has no such field")
            return (
                bytes(16)
                + struct.pack("<I", len(headers))
                + headers
                + struct.pack("<I", len(item.payload))
                + item.payload
            )
        head = struct.pack("<Q16xQQQIIQ", 0, 0, 0, item.origin_us, len(headers), len(item.payload), 0)
        return head + item.payload + headers

    def _header(self, name: str, value: bytes) -> bytes:
        key = name.encode("utf-8", "surrogateescape")
        check_bounds(f"the length of header name {name!r}", len(key), 1, MAX_FIELD_BYTES)
        check_bounds(f"the length of header {name!r}", len(value), 1, MAX_FIELD_BYTES)
        kind = b"" if self.is_v1 else bytes([TEXT])
        return kind + struct.pack("<I", len(key)) + key + struct.pack("<BI", RAW, len(value)) + value

    def polled(self, reply: bytes) -> Polled:
        """The reply to a poll.

        Raises:
            UnavailableError: it is cut, or has another layout.
        """
        if not reply:
            return Polled(0, 0, [])
        with _readable("a poll"):
            number, current, _ = struct.unpack_from("<IQI", reply)
            messages = list(self._v1_messages(reply) if self.is_v1 else self._v1b_messages(reply))
        return Polled(number - self.first, current, messages)

    def _v1_messages(self, reply: bytes) -> Iterator[Message]:
        at = 16
        while at < len(reply):
            offset, _, timestamp, low, high, _, size = struct.unpack_from("<QBQQQII", reply, at)
            headers, at = self._headers(reply, at + 41, size)
            (size,) = struct.unpack_from("<I", reply, at)
            payload, at = _slice(reply, at + 4, size)
            yield Message(high << 64 | low, offset, timestamp, timestamp, headers, payload)

    def _v1b_messages(self, reply: bytes) -> Iterator[Message]:
        at = 16
        while at < len(reply):
            _, low, high, offset, timestamp, origin, head_bytes, size, _ = struct.unpack_from("<QQQQQQIIQ", reply, at)
            payload, at = _slice(reply, at + 64, size)
            headers, at = self._headers(reply, at, head_bytes)
            yield Message(high << 64 | low, offset, timestamp, origin, headers, payload)

    def _headers(self, reply: bytes, at: int, size: int) -> tuple[list[tuple[str, bytes]], int]:
        block, end = _slice(reply, at, size)
        at, found = 0, list[tuple[str, bytes]]()
        while at < len(block):
            kind = TEXT if self.is_v1 else block[at]
            at += 0 if self.is_v1 else 1
            (length,) = struct.unpack_from("<I", block, at)
            key, at = _slice(block, at + 4, length)
            _, length = struct.unpack_from("<BI", block, at)
            value, at = _slice(block, at + 5, length)
            name = key.decode("utf-8", "surrogateescape") if kind == TEXT else f"#{kind}:{key.hex()}"
            found.append((name, value))
        return found, end

    def stored(self, reply: bytes) -> int | None:
        """The stored offset of a GET_CONSUMER_OFFSET; `None` = nothing is stored."""
        if not reply:
            return None
        with _readable("an offset"):
            _, _, offset = struct.unpack_from("<IQQ", reply)
        return int(offset)


V1: Final = Generation(1, is_v1=True, max_send_bytes=10_000_000)
V1B: Final = Generation(0, is_v1=False, max_send_bytes=64_000_000)


def login(user: str, password: str, context: str) -> bytes:
    """LOGIN_USER of a client that speaks `V1B`."""
    return _short(user) + _short(password) + _long("0.10.0") + _long(context)


def login_with_token(token: str) -> bytes:
    """LOGIN_WITH_PERSONAL_ACCESS_TOKEN, after which the connection speaks `V1`."""
    return _short(token)


def place(*names: str) -> bytes:
    """Identifiers of streams, topics and groups, by name."""
    return b"".join(b"\2" + _short(name) for name in names)


def consumer(name: str) -> bytes:
    """A single consumer, not a group."""
    return b"\1" + place(name)


def group(name: str) -> bytes:
    """A group as a consumer."""
    return b"\2" + place(name)


def client_number(reply: bytes) -> int:
    """The number of the connection in a GET_ME.

    Raises:
        UnavailableError: it is cut.
    """
    with _readable("the connection"):
        (number,) = struct.unpack_from("<I", reply)
    return int(number)


BALANCED: Final = b"\1\0"


def by_key(key: bytes) -> bytes:
    """Partitioning by a key."""
    check_bounds("the length of the key", len(key), 1, MAX_FIELD_BYTES)
    return bytes([3, len(key)]) + key


def topic_row(reply: bytes) -> TopicRow:
    """The topic of a GET_TOPIC or CREATE_TOPIC that is not empty, with its partitions.

    Raises:
        UnavailableError: it is cut, or has another layout.
    """
    with _readable("a topic"):
        row, at = _topic(reply, 0)
        ends = list[int]()
        while at < len(reply):
            _, _, _, current, _, messages = struct.unpack_from("<IQIQQQ", reply, at)
            ends.append(current + 1 if messages or current else 0)
            at += 40
    return TopicRow(row.name, row.created_us, row.partitions, tuple(ends))


def topic_rows(reply: bytes) -> list[TopicRow]:
    """The topics of a GET_TOPICS.

    Raises:
        UnavailableError: it is cut, or has another layout.
    """
    at, found = 0, list[TopicRow]()
    with _readable("topics"):
        while at < len(reply):
            row, at = _topic(reply, at)
            found.append(row)
    return found


@contextmanager
def _readable(what: str) -> Generator[None]:
    """Raise one error for every way in which a reply cannot be read."""
    try:
        yield
    except (struct.error, IndexError, UnicodeDecodeError) as broken:
        text = f"the broker's reply to a request about {what} cannot be read: {broken}"
        raise UnavailableError("unavailable", text) from broken


def _topic(reply: bytes, at: int) -> tuple[TopicRow, int]:
    _, created, partitions, _, _, _, _, _, _, size = struct.unpack_from("<IQIQBQBQQB", reply, at)
    name, at = _slice(reply, at + 51, size)
    return TopicRow(name.decode(), created, partitions, ()), at


def _slice(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    """`size` bytes from `at` on, and where they end."""
    if at + size > len(data):
        raise IndexError(f"{size} bytes at {at} are beyond the {len(data)} of the reply")
    return data[at : at + size], at + size


def _short(text: str) -> bytes:
    data = text.encode()
    check_bounds(f"the length of {text[:80]!r}", len(data), 1, MAX_FIELD_BYTES)
    return bytes([len(data)]) + data


def _long(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data
