"""Admission: handshakes have a time limit, connections are limited, errors name the limit, others are served."""

import resource
import socket
import time
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import grpc
import pytest
from bascule import testing
from bascule._liftbridge_pb import message

from .http2 import PREFACE, SETTINGS, frame
from .process import wait_for
from .raw import EARLIEST, Raw, refusal
from .test_garbage import connect, until_closed

STREAM: Final = "admission"
GREETING: Final = PREFACE + frame(SETTINGS, 0, 0)
HANDSHAKE_S: Final = 0.5


@pytest.fixture(scope="module")
def broker() -> Generator[testing.TestBroker]:
    """A broker with low limits."""
    settings = {
        "limits.handshake_ms": int(HANDSHAKE_S * 1000),
        "limits.handshakes": 16,
        "limits.connections_per_address": 12,
        "limits.connections": 6,
        "limits.calls": 10,
    }
    with testing.broker(settings=settings) as running:
        with Raw(running.address) as raw:
            raw.create_stream(STREAM)
        yield running
        assert "panicked" not in running.log


def from_address(broker: testing.TestBroker, address: str, said: bytes = b"") -> socket.socket:
    """A connection from another loopback address."""
    made = socket.socket()
    made.settimeout(5)
    made.bind((address, 0))
    host, _, port = broker.address.rpartition(":")
    made.connect((host, int(port)))
    made.sendall(said)
    return made


@pytest.mark.parametrize("said", [b"", PREFACE[:5], PREFACE, PREFACE + b"\x00\x00\x06\x04\x00\x00\x00\x00\x00ab"])
def test_an_incomplete_preface_is_closed_in_time(broker: testing.TestBroker, said: bytes) -> None:
    with connect(broker) as connection:
        connection.sendall(said)
        began = time.monotonic()
        assert until_closed(connection) == b""
        assert HANDSHAKE_S * 0.8 < time.monotonic() - began < HANDSHAKE_S + 2


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        PREFACE[:23] + b"X",
        PREFACE + b"\x00\xff\xff\x04" + b"\x00" * 5,
        PREFACE + b"\x00" * 9,
    ],
)
def test_bytes_that_are_not_a_preface_close_the_connection_at_once(broker: testing.TestBroker, said: bytes) -> None:
    with connect(broker) as connection:
        connection.sendall(said)
        began = time.monotonic()
        assert until_closed(connection) == b""
        assert time.monotonic() - began < HANDSHAKE_S * 0.8


def test_a_preface_byte_by_byte_is_served(broker: testing.TestBroker) -> None:
    with connect(broker) as connection:
        for byte in GREETING:
            connection.sendall(bytes([byte]))
        assert connection.recv(9)[3] == SETTINGS


def test_silent_connections_do_not_exclude_active_ones(broker: testing.TestBroker) -> None:
    with ExitStack() as silent:
        first = silent.enter_context(from_address(broker, "127.0.0.9"))
        for i in range(16):
            silent.enter_context(from_address(broker, f"127.0.0.{10 + i % 2}"))
        began = time.monotonic()
        assert until_closed(first) == b""
        assert time.monotonic() - began < HANDSHAKE_S * 0.8, "the oldest is closed at once"
        with Raw(broker.address) as raw:
            raw.publish(STREAM, b"x")


def test_a_connection_too_many_gets_the_name_of_the_limit(broker: testing.TestBroker) -> None:
    with ExitStack() as open_ones:
        said = b""
        for _ in range(30):  # connections of earlier tests may still be closing
            connection = open_ones.enter_context(from_address(broker, "127.0.0.8", GREETING))
            said = b"" if _is_let_in(connection) else until_closed(connection)
            if said:
                break
        assert b"limits.connections (6) connections are open" in said


def _is_let_in(connection: socket.socket) -> bool:
    """Whether the broker's first bytes are its preface, with settings."""
    return connection.recv(9, socket.MSG_PEEK)[2] > 0


def test_an_address_has_its_own_limit(broker: testing.TestBroker) -> None:
    with ExitStack() as open_ones:
        said = b""
        for _ in range(15):
            connection = open_ones.enter_context(from_address(broker, "127.0.0.6"))
            connection.settimeout(0.02)
            try:
                said += connection.recv(500)
            except OSError:
                continue
        assert b"limits.connections_per_address (12)" in said
        with Raw(broker.address) as raw:
            raw.publish(STREAM, b"x")


def test_a_call_above_the_limit_is_rejected_and_health_is_not(broker: testing.TestBroker) -> None:
    body = message("SubscribeRequest")(stream=STREAM, startPosition=EARLIEST).SerializeToString()
    with Raw(broker.address) as raw, grpc.insecure_channel(broker.address) as channel:
        calls = [raw.subscribe(body, timeout=30) for _ in range(10)]
        for call in calls:
            next(call)
        code, sentence = refusal(lambda: raw.publish(STREAM, b"x"))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "limits.calls (10)" in sentence
        answer = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=5)
        assert answer == b"\x08\x01"
        for call in calls:
            call.cancel()
        wait_for(lambda: _serves(raw), 5, "served again")


def _serves(raw: Raw) -> bool:
    try:
        raw.publish(STREAM, b"x")
    except grpc.RpcError:
        return False
    return True


def test_without_descriptors_connections_wait_and_the_log_continues() -> None:
    with testing.broker() as broker:
        with Raw(broker.address) as raw:
            raw.create_stream(STREAM)
            raw.publish(STREAM, b"before")
            used = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
            usual = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (used + 2, usual[1]))
            with ExitStack() as open_ones:
                for _ in range(50):
                    open_ones.enter_context(connect(broker)).sendall(GREETING)
                assert raw.publish(STREAM, b"during") == 1
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, usual)
        with Raw(broker.address) as raw:
            wait_for(lambda: _serves(raw), 5, "accepting again")
        assert 1 <= broker.log.count("cannot be accepted") <= 2, "logged once, not at every attempt"


def test_the_last_descriptors_are_kept_for_files() -> None:
    with testing.broker(settings={"limits.descriptor_reserve": 1 << 20}) as broker:
        limit = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)[0]
        assert limit == resource.getrlimit(resource.RLIMIT_NOFILE)[1], "raised to the hard limit"
        with Raw(broker.address) as raw:
            raw.create_stream(STREAM)
            raw.publish(STREAM, b"half of all is left for connections")
