"""The two peers of a JetStream publisher: a Bascule stream with natsAcks, and a stream of a real nats-server."""

import asyncio
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import nats
from bascule import StreamOptions
from bascule.testing import TestBroker
from nats.js.api import StreamConfig

from tests.names import fresh

READY_SECONDS = 30.0
INBOX = "_INBOX.frames"


@dataclass(frozen=True)
class Peer:
    """One of the two peers."""

    name: str
    url: str
    broker: TestBroker | None
    """The Bascule broker; None = the peer is JetStream."""

    async def create(self, stream: str, subject: str) -> None:
        """A stream that acknowledges publishers."""
        if self.broker is not None:
            async with self.broker.connect_async() as client:
                await client.create_stream(stream, subject, options=StreamOptions(nats_acks="jetstream"))
            return
        connection = await nats.connect(self.url)
        await connection.jetstream().add_stream(StreamConfig(name=stream, subjects=[subject]))
        await connection.close()


@contextmanager
def jetstream_server() -> Generator[str]:
    """A nats-server with JetStream, stopped with the context. Yields its URL."""
    binary = Path(sys.executable).with_name("nats-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        command = [str(binary), "--addr", "127.0.0.1", "--port", str(port), "--jetstream", "--store_dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            limit = time.monotonic() + READY_SECONDS
            while True:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                assert time.monotonic() < limit, "nats-server did not start"
                time.sleep(0.02)  # poll until it listens
            yield f"nats://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def frame(subject: str, headers: Sequence[bytes], *, reply: str = INBOX, body: bytes = b"x") -> bytes:
    """An HPUB frame with these header lines."""
    block = b"NATS/1.0\r\n" + b"".join(line + b"\r\n" for line in headers) + b"\r\n"
    head = f"HPUB {subject} {reply} {len(block)} {len(block) + len(body)}\r\n".replace("  ", " ")
    return head.encode() + block + body + b"\r\n"


async def answers(url: str, frames: Sequence[bytes]) -> list[bytes]:
    """The answers to frames, sent one at a time over a connection without a client library."""
    host, _, port = url.removeprefix("nats://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        async with asyncio.timeout(60):
            await reader.readline()
            writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB _INBOX.frames 1\r\n')
            return [await _answer(reader, writer, each) for each in frames]
    finally:
        writer.close()
        await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, sent: bytes) -> bytes:
    writer.write(sent)
    line = b""
    while not line.startswith((b"MSG ", b"HMSG ")):
        line = await reader.readline()
        assert line, "the server closed the connection"
        assert not line.startswith(b"-ERR"), line
    return (await reader.readexactly(int(line.split()[-1]) + 2))[:-2]


def nats_cli() -> str | None:
    """The path of the `nats` program."""
    return shutil.which("nats") or shutil.which("nats", path=str(Path.home() / "go" / "bin"))


def stream_name(request_name: str) -> str:
    """A name that JetStream also accepts."""
    return fresh(request_name).replace(".", "-")
