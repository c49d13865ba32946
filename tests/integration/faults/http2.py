"""A minimal HTTP/2 client that can send what gRPC libraries cannot: raw frames, one connection, one call at a time."""

import socket
import struct
import time
from typing import Final, Self

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
RESET: Final = -1
"""Result of `call` for a reset call or connection."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def field(name: str, value: str) -> bytes:
    """A header field, neither indexed nor compressed."""
    return b"\x00" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode()
    return _length(len(data)) + data


def _length(length: int) -> bytes:
    """An integer with a prefix of 7 bits."""
    if length < 127:
        return bytes([length])
    out, rest = bytearray([127]), length - 127
    while rest >= 128:
        out.append(rest % 128 + 128)
        rest //= 128
    return bytes([*out, rest])


class Http2:
    """A connection after its handshake, or before it."""

    def __init__(self, address: str, *, greet: bool = True) -> None:
        host, _, port = address.rpartition(":")
        self.socket: Final = socket.create_connection((host, int(port)), timeout=10)
        self._stream = 1
        self._read = b""
        if greet:
            self.send(PREFACE + frame(SETTINGS, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> bool:
        """Send bytes. Returns whether the other side still accepts them."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def request(self, path: str, *extra: tuple[str, str]) -> bytes:
        """The header block of a gRPC request."""
        fields = [
            (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
            ("content-type", "application/grpc"), ("te", "trailers"), *extra,
        ]  # fmt: skip
        return b"".join(field(name, value) for name, value in fields)

    def call(self, path: str, body: bytes, *extra: tuple[str, str]) -> int | None:
        """One call with these bytes as body. Returns its gRPC status, `RESET`, or `None` = no answer within 10 s."""
        stream, self._stream = self._stream, self._stream + 2
        sent = self.send(
            frame(HEADERS, END_HEADERS, stream, self.request(path, *extra)) + frame(DATA, END_STREAM, stream, body)
        )
        return self.status(stream) if sent else RESET

    def status(self, stream: int) -> int | None:
        """The status of a call."""
        limit = time.monotonic() + 10
        while time.monotonic() < limit:
            found = self.next_frame()
            if found is None:
                return RESET
            kind, flags, number, payload = found
            if kind == GOAWAY or (kind == RST_STREAM and number == stream):
                return RESET
            if kind == HEADERS and number == stream and flags & END_STREAM:
                return _grpc_status(payload)
            if kind == DATA and number == stream and flags & END_STREAM:
                return 0
        return None

    def next_frame(self) -> tuple[int, int, int, bytes] | None:
        """The next frame: (kind, flags, stream, payload); `None` at the end of the connection."""
        try:
            head = self._take(9)
            if head is None:
                return None
            payload = self._take(int.from_bytes(head[:3]))
        except OSError:
            return None
        if payload is None:
            return None
        if head[3] == SETTINGS and not head[4] & ACK:
            self.send(frame(SETTINGS, ACK, 0))
        return head[3], head[4], int.from_bytes(head[5:9]) & 0x7FFFFFFF, payload

    def _take(self, count: int) -> bytes | None:
        while len(self._read) < count:
            more = self.socket.recv(65536)
            if not more:
                return None
            self._read += more
        taken, self._read = self._read[:count], self._read[count:]
        return taken


def _grpc_status(block: bytes) -> int:
    """The status in a header block: the digits after the name, which our server sends as literals or Huffman-coded.

    Numbers are distinguished only as "ok" and "not ok": 0 and 2 (unknown).
    """
    for name in (b"grpc-status", bytes.fromhex("9acac8b21234da8f")):
        found = block.find(name)
        if found >= 0:
            value = block[found + len(name) :][:3]
            return 0 if value[:2] in (b"\x01\x30", b"\x81\x07") else 2
    return 2
