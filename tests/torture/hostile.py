"""A hostile client: `python -m tests.torture.hostile ATTACK HOST:PORT SECONDS COUNT STREAM`.

Loopback only; every attack is limited in count and in seconds and ends automatically. It uses the addresses from
127.0.0.2, so that it does not use up the limits of the client that the rig measures (127.0.0.1). Prints one JSON object
at its peak, and another at its end.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import random
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from bascule._liftbridge_pb import message

from tests.integration.faults.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    frame,
)
from tests.integration.faults.http2 import field as header

ADDRESSES: Final = 8
"""Number of loopback addresses of the attacks."""
GREETING: Final = PREFACE + frame(SETTINGS, 0, 0)
MIB: Final = 1 << 20
PUBLISH: Final = "/proto.API/Publish"
EARLIEST: Final = 2


@dataclass
class Attack:
    """Target, duration, count and results of an attack."""

    host: str
    port: int
    seconds: float
    count: int
    stream: str
    open: list[socket.socket] = field(default_factory=list[socket.socket])
    made: int = 0
    """Number of connections."""
    refused: int = 0
    """Number of rejected connections or sends."""

    def __post_init__(self) -> None:
        self.end = time.monotonic() + self.seconds

    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.end

    def connect(self, said: bytes = b"") -> socket.socket | None:
        """A connection after sending these bytes; `None` = it was rejected."""
        made = socket.socket()
        made.settimeout(2)
        try:
            made.bind((f"127.0.0.{2 + self.made % ADDRESSES}", 0))
            made.connect((self.host, self.port))
            made.sendall(said)
        except OSError:
            self.refused += 1
            made.close()
            return None
        self.made += 1
        return made

    def hold(self, said: bytes) -> None:
        """Open `count` connections, send these bytes, and keep them open."""
        while len(self.open) < self.count and not self.is_over():
            if made := self.connect(said):
                self.open.append(made)

    def send(self, connection: socket.socket, data: bytes) -> bool:
        """Whether the broker accepts the bytes."""
        try:
            connection.sendall(data)
        except OSError:
            self.refused += 1
            return False
        return True

    def tell(self, what: str) -> None:
        """Print one line for the rig."""
        facts = {"at": what, "open": len(self.open), "made": self.made, "refused": self.refused}
        print(json.dumps(facts), flush=True)

    def wait(self) -> None:
        """Stay at the peak until the time is up."""
        self.tell("height")
        time.sleep(max(0.0, self.end - time.monotonic()))


def request(path: str, *extra: tuple[str, str]) -> bytes:
    """The header block of a gRPC call."""
    fields = [
        (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"),
        ("content-type", "application/grpc"), ("te", "trailers"), *extra,
    ]  # fmt: skip
    return b"".join(header(name, value) for name, value in fields)


def silent(attack: Attack) -> None:
    """Silent connections."""
    attack.hold(b"")
    attack.wait()


def drip(attack: Attack) -> None:
    """Connections that send the preface byte by byte and never complete it."""
    attack.hold(PREFACE[:1])
    attack.tell("height")
    for byte in PREFACE[1:-1]:
        for connection in attack.open:
            attack.send(connection, bytes([byte]))
        time.sleep(0.3)
        if attack.is_over():
            return


def half_greeting(attack: Attack) -> None:
    """Connections that stop within their first SETTINGS frame."""
    attack.hold(PREFACE + b"\x00\x00\x06\x04\x00")
    attack.wait()


def greeted(attack: Attack) -> None:
    """Connections that are silent after the preface, and do not answer a PING."""
    attack.hold(GREETING)
    attack.wait()


def garbage(attack: Attack) -> None:
    """Random bytes instead of a preface, repeatedly."""
    noise = random.Random(1)
    attack.tell("height")
    while attack.made < attack.count * 4 and not attack.is_over():
        if made := attack.connect(noise.randbytes(noise.randint(1, 3000))):
            made.close()


def flood(attack: Attack) -> None:
    """Connections opened and dropped as fast as possible, at most 10,000 per second."""
    attack.tell("height")
    begun = time.monotonic()
    linger = struct.pack("ii", 1, 0)
    while not attack.is_over():
        if made := attack.connect():
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            made.close()
        ahead = attack.made / 10_000 - (time.monotonic() - begun)
        if ahead > 0.01:
            time.sleep(ahead)


def greeted_streams(attack: Attack, connections: int, said: Callable[[int], bytes]) -> Iterator[socket.socket]:
    """Send `said(i)` on each of a few open connections repeatedly, until the count or the time is reached."""
    attack.open = [made for _ in range(connections) if (made := attack.connect(GREETING))]
    attack.tell("height")
    for i in range(attack.count):
        if attack.is_over() or not attack.open:
            return
        connection = attack.open[i % len(attack.open)]
        if attack.send(connection, said(2 * (i // connections) + 1)):
            yield connection
        else:
            attack.open.remove(connection)
            if made := attack.connect(GREETING):
                attack.open.append(made)


def giant_prefixes(attack: Attack) -> None:
    """Messages that declare 4 GiB, and ones that declare an allowed size and are never sent."""
    block = request(PUBLISH)
    put = request("/arrow.flight.protocol.FlightService/DoPut")

    def said(stream: int) -> bytes:
        giant = frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, 0, stream, b"\x00\xff\xff\xff\xff" + b"x" * 50)
        return giant if stream % 4 == 1 else (
            frame(HEADERS, END_HEADERS, stream, put) + frame(DATA, 0, stream, b"\x00\x04\x00\x00\x00" + b"x" * 5000)
        )  # fmt: skip

    for _ in greeted_streams(attack, 50, said):
        pass
    attack.wait()


def compression_bombs(attack: Attack) -> None:
    """Messages of 64 MiB, compressed to a small size."""
    bomb = gzip.compress(bytes(64 * MIB), 9)[: 200 << 10]
    block = request(PUBLISH, ("grpc-encoding", "gzip"))

    def said(stream: int) -> bytes:
        body = b"\x01" + struct.pack(">I", len(bomb)) + bomb[:10_000]
        return frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, body)

    for _ in greeted_streams(attack, 20, said):
        pass


def header_bombs(attack: Attack) -> None:
    """Header blocks of many CONTINUATION frames, and ones that are large when decoded."""
    attack.tell("height")
    block = request(PUBLISH, *((f"x-{i}", "v" * 500) for i in range(20)))
    for i in range(attack.count):
        if attack.is_over():
            return
        made = attack.connect(GREETING + frame(HEADERS, 0, 1, block))
        if made is None:
            continue
        for _ in range(200 if i % 2 else 20):
            if not attack.send(made, frame(CONTINUATION, 0, 1, header("y", "w" * 4000))):
                break
        made.close()


def rapid_resets(attack: Attack) -> None:
    """Calls that are reset immediately."""
    block = request(PUBLISH)

    def said(stream: int) -> bytes:
        calls = range(stream * 40, stream * 40 + 80, 2)
        each = (
            frame(HEADERS, END_HEADERS, call | 1, block) + frame(RST_STREAM, 0, call | 1, b"\x00" * 4) for call in calls
        )
        return b"".join(each)

    for _ in greeted_streams(attack, 10, said):
        pass


def ping_flood(attack: Attack) -> None:
    """PINGs and SETTINGS whose answers are never read."""
    said = (frame(PING, 0, 0, b"12345678") + frame(SETTINGS, 0, 0)) * 50
    for _ in greeted_streams(attack, 20, lambda _: said):
        pass


def subscribers(attack: Attack) -> None:
    """Subscriptions that never read, a hundred on each connection."""
    body = message("SubscribeRequest")(stream=attack.stream, startPosition=EARLIEST).SerializeToString()
    block = request("/proto.API/Subscribe")
    data = b"\x00" + struct.pack(">I", len(body)) + body
    per_connection = 100
    while len(attack.open) * per_connection < attack.count and not attack.is_over():
        made = attack.connect(GREETING)
        if made is None:
            continue
        # A small receive buffer: nothing of it is read.
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for call in range(per_connection):
            stream = 2 * call + 1
            frames = frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, data)
            if not attack.send(made, frames):
                break
        attack.open.append(made)
    attack.wait()


def silent_calls(attack: Attack, path: str = PUBLISH) -> None:
    """Calls with headers of 15 KiB that never send a message, a thousand on each of up to 60 connections."""
    block = request(path, *((f"x-{i}", "v" * 1000) for i in range(14)))
    for _ in range(min(60, attack.count // 50)):
        made = attack.connect(GREETING)
        if made is None or attack.is_over():
            continue
        for call in range(1000):
            if not attack.send(made, frame(HEADERS, END_HEADERS, 2 * call + 1, block)):
                break
        attack.open.append(made)
    attack.wait()


def silent_checks(attack: Attack) -> None:
    """Health checks with large headers that never send a message."""
    silent_calls(attack, "/grpc.health.v1.Health/Check")


ATTACKS: Final[dict[str, Callable[[Attack], None]]] = {
    "silent": silent,
    "drip": drip,
    "half_greeting": half_greeting,
    "greeted": greeted,
    "garbage": garbage,
    "flood": flood,
    "giant_prefixes": giant_prefixes,
    "compression_bombs": compression_bombs,
    "header_bombs": header_bombs,
    "rapid_resets": rapid_resets,
    "ping_flood": ping_flood,
    "subscribers": subscribers,
    "silent_calls": silent_calls,
    "silent_checks": silent_checks,
}


def main() -> None:
    """Run one attack."""
    name, address, seconds, count, stream = sys.argv[1:]
    host, _, port = address.rpartition(":")
    assert host in {"127.0.0.1", "localhost"}, "only loopback is attacked"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    # The attackers of a real broker have their own processors.
    os.nice(19)
    attack = Attack("127.0.0.1", int(port), float(seconds), int(count), stream)
    try:
        ATTACKS[name](attack)
    finally:
        attack.tell("end")
        for connection in attack.open:
            with contextlib.suppress(OSError):
                connection.close()


if __name__ == "__main__":
    main()
