"""A client of Iggy's v2 that knows only frames: what the published client does not offer, and what none would send."""

import json
import secrets
import struct
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bascule.protocols.iggy.fields import Identifier, long_text, short_text

from tests.conformance.iggy_raw import RefusedError
from tests.conformance.iggy_transports import Stream, opened

VECTORS = Path(__file__).resolve().parents[2] / "specs/vectors/iggy/v2.json"
HEADER_BYTES = 256
PROTOCOL = 11 << 10
REGISTER, READ, LOGOUT = 1, 2, 3
CREATE_STREAM, CREATE_TOPIC, CREATE_GROUP, JOIN, LEAVE = 128, 132, 139, 148, 149
CREATE_PARTITIONS, DELETE_SEGMENTS, CREATE_TOKEN, SEND, STORE_OFFSET, DELETE_OFFSET = 136, 138, 146, 160, 161, 162
PING, POLL, GET_OFFSET, GET_STREAM, SYNC_GROUP = 1, 100, 120, 200, 606
FIRST, NEXT = 3, 5


class EvictedError(Exception):
    """The session was ended, for this reason."""

    def __init__(self, reason: int) -> None:
        super().__init__(f"reason {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Message:
    """A polled message."""

    offset: int
    timestamp_us: int
    origin_us: int
    id: int
    headers: bytes
    payload: bytes


class Long:
    """A connection, and its session after `login`."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.client = secrets.randbits(127) + 1
        self.session = 0
        self.request = 0

    def header(self, operation: int, code: int, body: bytes) -> bytes:
        return (
            bytes(48)
            + struct.pack("<IIIB", HEADER_BYTES + len(body), 0, 0, 5)
            + bytes(67)
            + self.client.to_bytes(16, "little")
            + struct.pack("<QQQQB7xQII", 0, 0, 0, self.request, operation, self.session, 0, code)
            + bytes(56)
        )

    def ask(self, operation: int, code: int = 0, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the reply.

        Raises:
            EvictedError: the reply is an eviction.
        """
        self.stream.sendall(self.header(operation, code, body) + body)
        head = self._read(HEADER_BYTES)
        (size,) = struct.unpack_from("<I", head, 48)
        answer = self._read(size - HEADER_BYTES)
        if head[60] == 13:
            raise EvictedError(head[255])
        assert (head[60], head[208]) == (8, operation)
        return struct.unpack_from("<I", head, 216)[0], answer

    def read(self, code: int, body: bytes = b"") -> bytes:
        """The body of a reply that must not be a refusal."""
        status, answer = self.ask(READ, code, body)
        if status:
            raise RefusedError(status)
        return answer

    def change(self, operation: int, body: bytes = b"") -> bytes:
        """The same, of a request with the next number, without the section for results."""
        self.request += 1
        status, answer = self.ask(operation, 0, body)
        if status:
            raise RefusedError(status)
        if operation in {SEND, LOGOUT, DELETE_SEGMENTS}:
            return answer
        assert answer[:4] == bytes(4)
        return answer[4:]

    def login(self, password: str = "", *, token: str = "") -> int:
        """A new session; the number of the user."""
        credentials = short_text(token) if token else short_text("iggy") + short_text(password)
        body = struct.pack("<I", PROTOCOL) + short_text("test") + short_text("0") + credentials + long_text("")
        self.session = self.request = 0
        status, answer = self.ask(REGISTER, 0, body)
        if status:
            raise RefusedError(status)
        result, user, self.session = struct.unpack_from("<IIQ", answer)
        assert result == 0
        return user

    def create(self, stream: str, partitions: int = 1) -> tuple[str, str]:
        """CREATE_STREAM, and CREATE_TOPIC in it."""
        self.change(CREATE_STREAM, short_text(stream))
        self.change(CREATE_TOPIC, place_of(stream) + struct.pack("<I", partitions) + short_text("t"))
        return stream, "t"

    def send(self, place: Sequence[Identifier], batch: bytes, partition: int = 0) -> int:
        """SEND_MESSAGES; the offset of the first message."""
        confirmed = self.change(SEND, sent(place, batch, partition))
        count, _, _, shown, offset = struct.unpack("<IIIIQ", confirmed)
        assert (count, shown) == (1, partition)
        return offset

    def poll(
        self,
        place: Sequence[Identifier],
        *,
        strategy: int = FIRST,
        partition: int = 0,
        group: str = "",
        count: int = 1000,
        commit: bool = False,
    ) -> list[Message]:
        """POLL_MESSAGES of one partition, by consumer 0 or a group."""
        consumer = b"\2" + place_of(group) if group else b"\1" + place_of(0)
        ask = struct.pack("<BIBQIB", 1, partition, strategy, 0, count, commit)
        return polled(self.read(POLL, consumer + place_of(*place) + ask), partition)

    def assignment(self, place: Sequence[Identifier], group: str) -> tuple[int, list[int]]:
        """SYNC_CONSUMER_GROUP: round and partitions."""
        answer = self.read(SYNC_GROUP, place_of(*place, group))
        number, count = struct.unpack_from("<QI", answer)
        return number, [*struct.unpack_from(f"<{count}I", answer, 12)]

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.stream.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker has closed the connection")
            data += more
        return bytes(data)


@contextmanager
def connected(address: str, password: str | None = None, *, token: str = "") -> Generator[Long]:
    """A connection over TCP or QUIC (`quic://host:port`), logged in if there is a password or a token."""
    with opened(address) as stream:
        client = Long(stream)
        if password is not None or token:
            client.login(password or "", token=token)
        yield client


def place_of(*names: Identifier) -> bytes:
    """Identifiers, one behind the other; numbers from 0."""
    return b"".join(
        struct.pack("<BBI", 1, 4, name) if isinstance(name, int) else b"\2" + short_text(name) for name in names
    )


def sent(place: Sequence[Identifier], batch: bytes, partition: int = 0) -> bytes:
    """The body of a send of one batch to one partition."""
    metadata = place_of(*place) + struct.pack("<BBI", 2, 4, partition) + batch[48:52]
    return struct.pack("<I", len(metadata)) + metadata + batch


def recorded() -> list[dict[str, Any]]:
    """What the published client was recorded to send, in order."""
    captures = json.loads(VECTORS.read_text())["captures"]
    return [item for item in captures if "is_body" not in item]


def _batches() -> tuple[bytes, ...]:
    """Those of the recorded sends; what they are checked by does not include where they go."""
    bodies = [bytes.fromhex(item["request_hex"])[HEADER_BYTES:] for item in recorded() if item["operation"] == SEND]
    return tuple(body[4 + int.from_bytes(body[:4], "little") :] for body in bodies)


HELLO, X, Y = _batches()
"""Batches of two messages (`hello 1` with the header k, `hello 2`), and of one (`x`, `y`)."""


def polled(reply: bytes, partition: int) -> list[Message]:
    """The messages of a reply to a poll."""
    shown, _, count = struct.unpack_from("<IQI", reply)
    assert shown == partition
    at, messages = 16, list[Message]()
    while at < len(reply):
        of, base, timestamp, origin, length, _, frames = struct.unpack_from("<QQQQQQI", reply, at)
        assert of == partition
        rest = reply[at + HEADER_BYTES : at + length]
        at += length
        for _ in range(frames):
            _, low, high, offset, time, headers, size, _ = struct.unpack_from("<QQQIIIIQ", rest)
            end = 48 + size + headers
            block, payload = rest[48 + size : end], rest[48 : 48 + size]
            messages.append(Message(base + offset, timestamp, origin + time, high << 64 | low, block, payload))
            rest = rest[end:]
        assert not rest
    assert len(messages) == count
    return messages
