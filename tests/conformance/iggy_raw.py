"""A client of Iggy's v1 that knows only frames: what the published client does not offer, and what none would send."""

import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from bascule.protocols.iggy.fields import Identifier, identifier, long_text, short_text

from tests.conformance.iggy_transports import Stream, opened

PING, LOGIN_USER, LOGOUT_USER = 1, 38, 39
POLL, SEND, FLUSH = 100, 101, 102
GET_OFFSET, STORE_OFFSET, DELETE_OFFSET = 120, 121, 122
GET_STREAM, GET_STREAMS, CREATE_STREAM, DELETE_STREAM, PURGE_STREAM = 200, 201, 202, 203, 205
GET_TOPIC, GET_TOPICS, CREATE_TOPIC, DELETE_TOPIC, PURGE_TOPIC = 300, 301, 302, 303, 305
GET_GROUP, GET_GROUPS, CREATE_GROUP, DELETE_GROUP, JOIN_GROUP, LEAVE_GROUP = 600, 601, 602, 603, 604, 605

INVALID_COMMAND = 3
"""The status of a payload that is not the command's."""

OFFSET, TIMESTAMP, FIRST, LAST, NEXT = 1, 2, 3, 4, 5
BALANCED = b"\1\0"


class RefusedError(Exception):
    """A command was answered with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


@dataclass(frozen=True)
class Message:
    """A polled message; headers by name, each with the kind of its value."""

    offset: int
    timestamp_us: int
    id: int
    checksum: int
    headers: dict[str, tuple[int, bytes]]
    payload: bytes


@dataclass(frozen=True)
class Polled:
    """The reply to a poll."""

    partition: int
    current_offset: int
    messages: list[Message] = field(default_factory=list["Message"])

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]


class Raw:
    """A connection."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def ask(self, code: int, payload: bytes = b"") -> tuple[int, bytes]:
        """Status and payload of the reply."""
        self.stream.sendall(struct.pack("<II", 4 + len(payload), code) + payload)
        status, size = struct.unpack("<II", self._read(8))
        return status, self._read(size)

    def good(self, code: int, payload: bytes = b"") -> bytes:
        """The payload of a reply that must not be a refusal."""
        status, answer = self.ask(code, payload)
        if status:
            raise RefusedError(status)
        return answer

    def login(self, password: str, name: str = "iggy", version: str = "0.6.202") -> int:
        """LOGIN_USER; the number of the user."""
        payload = short_text(name) + short_text(password) + long_text(version) + long_text("")
        return int.from_bytes(self.good(LOGIN_USER, payload), "little")

    def send(
        self,
        place: Sequence[Identifier],
        partitioning: bytes,
        payloads: Sequence[bytes],
        *,
        ids: Sequence[int] = (),
        headers: bytes = b"",
    ) -> None:
        """SEND_MESSAGES."""
        numbers = [*ids, *[0] * (len(payloads) - len(ids))]
        messages = [
            number.to_bytes(16, "little")
            + struct.pack("<I", len(headers))
            + headers
            + struct.pack("<I", len(item))
            + item
            for number, item in zip(numbers, payloads, strict=True)
        ]
        self.good(SEND, path(*place) + partitioning + b"".join(messages))

    def poll(
        self,
        place: Sequence[Identifier],
        strategy: int = FIRST,
        value: int = 0,
        *,
        count: int = 100,
        partition: int = 0,
        consumer: Identifier = 1,
        kind: int = 1,
        commit: bool = False,
    ) -> Polled:
        """POLL_MESSAGES."""
        fields = struct.pack("<IBQIB", partition, strategy, value, count, commit)
        return polled(self.good(POLL, bytes([kind]) + identifier(consumer) + path(*place) + fields))

    def stored(
        self, place: Sequence[Identifier], partition: int = 1, consumer: Identifier = 1
    ) -> tuple[int, int] | None:
        """GET_CONSUMER_OFFSET: newest and stored offset; `None` = nothing is stored."""
        answer = self.good(GET_OFFSET, owner(place, partition, consumer))
        if not answer:
            return None
        shown, current, stored = struct.unpack("<IQQ", answer)
        assert shown == partition
        return current, stored

    def store(self, place: Sequence[Identifier], offset: int, partition: int = 1, consumer: Identifier = 1) -> None:
        """STORE_CONSUMER_OFFSET."""
        self.good(STORE_OFFSET, owner(place, partition, consumer) + struct.pack("<Q", offset))

    def create(self, stream: str, topic: str = "", partitions: int = 1) -> tuple[str, str]:
        """CREATE_STREAM, and CREATE_TOPIC in it."""
        self.good(CREATE_STREAM, struct.pack("<I", 0) + short_text(stream))
        fields = struct.pack("<IIBQQB", 0, partitions, 1, 0, 0, 0)
        self.good(CREATE_TOPIC, identifier(stream) + fields + short_text(topic or "t"))
        return stream, topic or "t"

    def create_group(self, place: Sequence[Identifier], name: str, number: int = 0) -> int:
        """CREATE_CONSUMER_GROUP; its number."""
        reply = self.good(CREATE_GROUP, path(*place) + struct.pack("<I", number) + short_text(name))
        shown, _, members, size = struct.unpack_from("<IIIB", reply)
        assert (members, reply[13:]) == (0, name.encode()[:size])
        return shown

    def members(self, place: Sequence[Identifier], group: Identifier) -> dict[int, list[int]]:
        """GET_CONSUMER_GROUP: the partitions of each member, by the number of its connection."""
        reply = self.good(GET_GROUP, path(*place, group))
        _, _, count, size = struct.unpack_from("<IIIB", reply)
        at, found = 13 + size, dict[int, list[int]]()
        while at < len(reply):
            client, partitions = struct.unpack_from("<II", reply, at)
            found[client] = [*struct.unpack_from(f"<{partitions}I", reply, at + 8)]
            at += 8 + 4 * partitions
        assert len(found) == count
        return found

    def is_closed(self) -> bool:
        """Whether the broker closes the connection, now or soon."""
        try:
            return self.stream.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.stream.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker has closed the connection")
            data += more
        return data


@contextmanager
def connected(address: str, password: str | None = None) -> Generator[Raw]:
    """A connection over TCP or QUIC (`quic://host:port`), logged in if there is a password."""
    with opened(address) as stream:
        raw = Raw(stream)
        if password is not None:
            assert raw.login(password) == 1
        yield raw


def path(*names: Identifier) -> bytes:
    """Identifiers, one behind the other."""
    return b"".join(identifier(name) for name in names)


def to_partition(number: int) -> bytes:
    """The partitioning that names a partition."""
    return struct.pack("<BBI", 2, 4, number)


def by_key(key: bytes) -> bytes:
    """The partitioning by a key."""
    return bytes([3, len(key)]) + key


def header(name: str, kind: int, value: bytes) -> bytes:
    """One header of a message."""
    return long_text(name) + bytes([kind]) + struct.pack("<I", len(value)) + value


def owner(place: Sequence[Identifier], partition: int, consumer: Identifier) -> bytes:
    """What commands about offsets begin with."""
    return b"\1" + identifier(consumer) + path(*place) + struct.pack("<I", partition)


def polled(reply: bytes) -> Polled:
    """A reply to a poll."""
    partition, current, count = struct.unpack_from("<IQI", reply)
    at, messages = 16, list[Message]()
    while at < len(reply):
        offset, _, timestamp, low, high, checksum, size = struct.unpack_from("<QBQQQII", reply, at)
        at += 41
        headers = _headers(reply[at : at + size])
        at += size
        (size,) = struct.unpack_from("<I", reply, at)
        payload = reply[at + 4 : at + 4 + size]
        at += 4 + size
        messages.append(Message(offset, timestamp, high << 64 | low, checksum, headers, payload))
    assert len(messages) == count
    return Polled(partition, current, messages)


def _headers(block: bytes) -> dict[str, tuple[int, bytes]]:
    at, found = 0, dict[str, tuple[int, bytes]]()
    while at < len(block):
        (size,) = struct.unpack_from("<I", block, at)
        name = block[at + 4 : at + 4 + size].decode()
        at += 4 + size
        kind, size = struct.unpack_from("<BI", block, at)
        found[name] = kind, block[at + 5 : at + 5 + size]
        at += 5 + size
    return found
