"""Handshakes are limited in time and number, whatever they contain; other clients are served."""

import contextlib
import socket
import ssl
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import bascule
import pytest
from bascule import testing

from tests.certificates import Authority

from .http2 import PREFACE, SETTINGS, frame

HANDSHAKE_MS: Final = 700
PLACES: Final = 16
LIMIT_S: Final = 60.0
"""Time limit of each step."""


@dataclass
class Served:
    """A broker with low limits whose clients need certificates."""

    broker: testing.TestBroker
    authority: Authority
    tls: bascule.Tls

    def connect(self) -> socket.socket:
        host, _, port = self.broker.address.rpartition(":")
        return socket.create_connection((host, int(port)), LIMIT_S)

    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.ca))
        context.load_cert_chain(str(self.tls.cert), str(self.tls.key))
        return context

    def check_serves(self) -> None:
        with bascule.connect(self.broker.url, tls=self.tls, timeout=LIMIT_S) as client:
            client.list_streams()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    directory: Path = tmp_path_factory.mktemp("tls")
    authority = Authority(directory)
    own, client = authority.issue("broker"), authority.issue("client")
    settings = {
        "tls.certificate_file": str(own.cert),
        "tls.key_file": str(own.key),
        "tls.client_auth": "required",
        "tls.client_ca_file": str(authority.ca),
        "limits.handshake_ms": HANDSHAKE_MS,
        "limits.handshakes": PLACES,
    }
    with testing.broker(settings=settings) as broker:
        yield Served(broker, authority, bascule.Tls(ca=authority.ca, cert=client.cert, key=client.key))
        assert "panicked" not in broker.log


def hello(context: ssl.SSLContext) -> bytes:
    """The first message of a client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def wait_closed(connection: socket.socket) -> bytes:
    """The bytes that the other side sends until it closes, which it must do."""
    said = b""
    connection.settimeout(LIMIT_S)
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(4096):
            said += part
    return said


def record(kind: int, body: bytes, length: int | None = None) -> bytes:
    """A TLS record."""
    return bytes([kind, 3, 1]) + (len(body) if length is None else length).to_bytes(2) + body


SAID: Final = {
    "nothing": lambda _: b"",
    "half a greeting": lambda context: hello(context)[:100],
    "a greeting and no more": hello,
    "plain text": lambda _: PREFACE + frame(SETTINGS, 0, 0),
    "an old protocol": lambda _: b"GET / HTTP/1.1\r\n\r\n",
    "an alert": lambda _: record(21, b"\x02\x28"),
    "a message of 16 MiB": lambda _: record(22, b"\x01\xff\xff\xff" + b"\0" * 1000) * 200,
    "a record that never ends": lambda _: record(22, b"\x01", length=0xFFFF),
    "empty records": lambda _: record(22, b"") * 1000,
}


@pytest.mark.parametrize("what", SAID)
def test_an_incomplete_handshake_is_closed(served: Served, what: str) -> None:
    with served.connect() as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(SAID[what](served.context()))
        wait_closed(connection)
    served.check_serves()


def test_a_silent_connection_after_the_handshake_is_closed(served: Served) -> None:
    for _ in range(20):
        # On a busy machine the handshake itself may exceed the limit.
        with contextlib.suppress(OSError), served.connect() as connection:
            protected = served.context().wrap_socket(connection, server_hostname="localhost")
            with protected:
                wait_closed(protected)
            return
    pytest.fail("no handshake came to its end")


def test_silent_tls_connections_do_not_exclude_others(served: Served) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(served.connect()) for _ in range(3 * PLACES)]
        served.check_serves()
        for connection in silent:
            wait_closed(connection)


def test_an_error_after_the_handshake_is_readable(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("broker")
    settings = {
        "tls.certificate_file": str(own.cert), "tls.key_file": str(own.key), "limits.connections": 1,
    }  # fmt: skip
    with testing.broker(settings=settings) as broker:
        host, _, port = broker.address.rpartition(":")
        context = ssl.create_default_context(cafile=str(authority.ca))
        with bascule.connect(broker.url, tls=bascule.Tls(ca=authority.ca), timeout=LIMIT_S) as client:
            client.list_streams()
            with (
                socket.create_connection((host, int(port)), LIMIT_S) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as protected,
            ):
                protected.sendall(PREFACE + frame(SETTINGS, 0, 0))
                assert b"limits.connections (1) connections are open" in wait_closed(protected)
