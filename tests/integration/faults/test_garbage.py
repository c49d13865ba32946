"""Other bytes than gRPC on the gRPC port: the broker closes it or waits, and serves everybody else meanwhile."""

import contextlib
import random
import socket
import struct
import time

import pytest
from bascule import testing

from .http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Http2,
    field,
    frame,
)
from .raw import Raw, resident_bytes

MIB = 1 << 20
STREAM = "garbage"


@pytest.fixture(autouse=True, scope="module")
def stream(broker: testing.TestBroker) -> None:
    with Raw(broker.address) as raw:
        raw.create_stream(STREAM)


@pytest.fixture(autouse=True)
def serves_others(broker: testing.TestBroker, stream: None) -> object:
    """After each test, also with its connections still open, other clients are served at once."""
    del stream
    yield
    check_serves(broker)


def check_serves(broker: testing.TestBroker) -> None:
    began = time.monotonic()
    with Raw(broker.address) as raw:
        raw.publish(STREAM, b"x")
    assert time.monotonic() - began < 5


def until_closed(connection: socket.socket, limit_s: float = 5) -> bytes:
    """The bytes that the broker sends until it closes; empty if it does not close in time."""
    connection.settimeout(limit_s)
    said = b""
    try:
        while more := connection.recv(65536):
            said += more
    except OSError:
        pass
    return said


def connect(broker: testing.TestBroker) -> socket.socket:
    host, _, port = broker.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=5)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"POST /proto.API/Publish HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc",
        b"INFO {}\r\nPING\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 500,  # the beginning of TLS
        b"\x00" * 10_000,
        PREFACE[:10] + b"X" * 100,
    ],
    ids=["http1", "http1-post", "nats", "tls", "zeros", "half-preface"],
)
def test_another_protocol_is_rejected(broker: testing.TestBroker, said: bytes) -> None:
    with connect(broker) as connection:
        connection.sendall(said)
        with contextlib.suppress(OSError):  # it may already be closed
            connection.shutdown(socket.SHUT_WR)
        until_closed(connection)


def test_random_bytes_are_survived(broker: testing.TestBroker) -> None:
    chance = random.Random(11)
    for number in range(200):
        with connect(broker) as connection, contextlib.suppress(OSError):
            start = PREFACE + frame(SETTINGS, 0, 0) if number % 2 else b""
            connection.sendall(start + chance.randbytes(chance.randrange(1, 4_000)))
            if number % 3:
                connection.shutdown(socket.SHUT_WR)


def test_random_frames_are_survived(broker: testing.TestBroker) -> None:
    """Well-formed frames of every kind, on any stream, in any order."""
    chance = random.Random(12)
    for _ in range(150):
        with Http2(broker.address) as connection:
            for _ in range(chance.randrange(1, 30)):
                payload = connection.request("/proto.API/Publish") if chance.random() < 0.3 else b""
                payload = payload or chance.randbytes(chance.choice([0, 1, 4, 5, 8, 100]))
                kind, flags, number = chance.randrange(12), chance.randrange(256), chance.choice([0, 1, 1, 2, 3, 5])
                if not connection.send(frame(kind, flags, number, payload)):
                    break


def test_half_open_connections_do_not_block_others(broker: testing.TestBroker) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(200):
            connection = stack.enter_context(connect(broker))
            connection.sendall(PREFACE[: number % len(PREFACE)])
        check_serves(broker)
        for _ in range(50):
            connection = stack.enter_context(Http2(broker.address))
            connection.send(frame(HEADERS, 0, 1, connection.request("/proto.API/Publish")[:20]))
        check_serves(broker)
        for path in (
            "/proto.API/Publish",
            "/proto.API/PublishAsync",
            "/proto.API/Subscribe",
            "/proto.API/FetchMetadata",
        ):
            connection = stack.enter_context(Http2(broker.address))
            connection.send(frame(HEADERS, END_HEADERS, 1, connection.request(path)))
            connection.send(frame(DATA, 0, 1, b"\x00\x00\x00\x40\x00" + b"x" * 1_000))  # incomplete
        check_serves(broker)
    # closed with a reset
    for path in ("/proto.API/PublishAsync", "/proto.API/Subscribe"):
        with Http2(broker.address) as connection:
            connection.send(frame(HEADERS, END_HEADERS, 1, connection.request(path)))
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_huge_frame_is_rejected_before_it_is_buffered(broker: testing.TestBroker) -> None:
    before = resident_bytes(broker.pid)
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            connection = stack.enter_context(Http2(broker.address))
            connection.send(frame(HEADERS, END_HEADERS, 1, connection.request("/proto.API/Publish")))
            connection.send(b"\xff\xff\xff" + bytes([DATA, 0]) + struct.pack(">I", 1))  # 16 MiB in one frame
            if connection.send(b"x" * MIB):
                connection.send(b"x" * MIB)
    assert resident_bytes(broker.pid) - before < 40 * MIB


def test_a_flood_of_headers_uses_little_memory(broker: testing.TestBroker) -> None:
    """Endless header blocks, of one large field and of many small ones: rejected, not buffered."""
    before = resident_bytes(broker.pid)
    with contextlib.ExitStack() as stack:
        for block in (field("x-large", "y" * 16_000), b"".join(field(f"x-{number}", "y") for number in range(1_500))):
            for _ in range(5):
                connection = stack.enter_context(Http2(broker.address))
                connection.send(frame(HEADERS, 0, 1, connection.request("/proto.API/FetchMetadata")))
                for _ in range(500):
                    if not connection.send(frame(CONTINUATION, 0, 1, block)):
                        break
        assert resident_bytes(broker.pid) - before < 60 * MIB
        check_serves(broker)


@pytest.mark.parametrize("kind", ["reset", "ping", "settings", "window"])
def test_a_flood_of_small_frames_uses_little_memory(broker: testing.TestBroker, kind: str) -> None:
    before = resident_bytes(broker.pid)
    with Http2(broker.address) as connection:
        connection.socket.settimeout(2)  # the answers are not read: sending blocks when the buffers are full
        block = connection.request("/proto.API/Subscribe")
        for number in range(20_000):
            small = {
                "reset": frame(HEADERS, END_HEADERS, 2 * number + 1, block)
                + frame(RST_STREAM, 0, 2 * number + 1, struct.pack(">I", 8)),
                "ping": frame(PING, 0, 0, b"12345678"),
                "settings": frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 100)),
                "window": frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1)),
            }[kind]
            if not connection.send(small):
                break
        check_serves(broker)
    assert resident_bytes(broker.pid) - before < 60 * MIB


def test_a_goaway_ends_a_connection(broker: testing.TestBroker) -> None:
    with Http2(broker.address) as connection:
        connection.send(frame(GOAWAY, 0, 0, struct.pack(">II", 0, 0)))


@pytest.mark.parametrize(
    ("path", "extra"),
    [
        ("/proto.API/NoSuchMethod", ()),
        ("/no.such.Service/Publish", ()),
        ("/", ()),
        ("/proto.API/Publish", (("grpc-timeout", "soon"),)),
        ("/proto.API/Publish", (("grpc-encoding", "no-such-thing"),)),
        ("/proto.API/" + "x" * 8_000, ()),
    ],
    ids=["method", "service", "root", "timeout", "encoding", "long"],
)
def test_an_invalid_call_is_answered(broker: testing.TestBroker, path: str, extra: tuple[tuple[str, str], ...]) -> None:
    with Http2(broker.address) as connection:
        assert connection.call(path, b"\x00\x00\x00\x00\x01\x80", *extra) not in {None, 0}
