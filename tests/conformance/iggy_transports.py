"""How clients that know only frames reach a broker: over TCP, or over QUIC with a stream for each request."""

import asyncio
import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Thread
from typing import Protocol

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from bascule.testing import TestBroker

LIMIT_S = 30.0
TRANSPORTS = ("tcp", "quic")
_QUIC = "quic://"


class Stream(Protocol):
    """What a client needs of a socket."""

    def sendall(self, data: bytes, /) -> None:
        """Send a whole request."""
        ...

    def recv(self, size: int, /) -> bytes:
        """What has come, up to `size` bytes; empty = the connection is closed."""
        ...

    def getsockname(self) -> tuple[str, int]:
        """Host and port of this end."""
        ...


class QuicStreams(QuicConnectionProtocol):
    """A connection of QUIC; each request has a stream of its own.

    Attributes:
        port: of this end.
    """

    port = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As the base class, which keeps the port to itself."""
        super().connection_made(transport)
        self.port = transport.get_extra_info("sockname")[1]

    async def ask(self, request: bytes) -> bytes:
        """The whole reply to the bytes of a stream."""
        reader, writer = await self.create_stream()
        writer.write(request)
        writer.write_eof()
        return await reader.read()


class QuicSocket:
    """The same for callers that wait."""

    def __init__(self, streams: QuicStreams) -> None:
        self._streams = streams
        self._come = b""

    def sendall(self, data: bytes) -> None:
        """Send a request, and wait for its reply."""
        asked = asyncio.run_coroutine_threadsafe(self._streams.ask(data), _loop())
        self._come += asked.result(LIMIT_S)

    def recv(self, size: int) -> bytes:
        """As of a socket."""
        taken, self._come = self._come[:size], self._come[size:]
        return taken

    def getsockname(self) -> tuple[str, int]:
        """Host and port of this end."""
        return "127.0.0.1", self._streams.port


def address_of(running: TestBroker, transport: str) -> str:
    """What `opened` takes."""
    return f"{_QUIC}{running.iggy_quic_address}" if transport == "quic" else running.iggy_address


def settings_of(password: Path, **more: object) -> dict[str, object]:
    """Settings of a broker that listens with both, and whose first user has the password of this file."""
    listening = dict.fromkeys(("iggy.listen", "iggy.quic_listen"), "127.0.0.1:0")
    return {**listening, "iggy.root_password_file": str(password), "cursors.partitions": 1, **more}


@contextmanager
def opened(address: str, *, authority: Path | None = None) -> Generator[Stream]:
    """A connection to `host:port` or `quic://host:port`; without an authority no certificate is verified."""
    host, _, port = address.removeprefix(_QUIC).rpartition(":")
    if not address.startswith(_QUIC):
        with socket.create_connection((host, int(port)), timeout=LIMIT_S) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield stream
        return
    configuration = QuicConfiguration(is_client=True, server_name="localhost")
    if authority is None:
        configuration.verify_mode = ssl.CERT_NONE
    else:
        configuration.load_verify_locations(cafile=str(authority))
    connecting = connect(host, int(port), configuration=configuration, create_protocol=QuicStreams)
    streams = asyncio.run_coroutine_threadsafe(connecting.__aenter__(), _loop()).result(LIMIT_S)
    assert isinstance(streams, QuicStreams)
    try:
        yield QuicSocket(streams)
    finally:
        asyncio.run_coroutine_threadsafe(connecting.__aexit__(None, None, None), _loop()).result(LIMIT_S)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Of all connections, in a thread."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="quic", daemon=True).start()
    return loop
