"""Iggy's protocol: producers and consumers of one connection, and idle connections."""

import resource
import socket
import struct
from contextlib import ExitStack
from typing import Final

from processes import Broker
from session import Bench, Figures

PASSWORD: Final = "a password of the bench"
SHAPES: Final = ((1000, 1000), (1000, 256), (100, 256), (1, 1000))
"""Messages of a batch, and bytes of each."""
IDLE: Final = 1_000
"""Connections that have logged in and ask for nothing."""
LOGIN_USER: Final = 38

MEASURED: Final = {
    "producer 1000 x 1000 B": 297_000,
    "producer 1000 x 1000 B, fsync": 237_000,
    "producer 1000 x 256 B": 839_000,
    "producer 1 x 1000 B": 23_000,
    "producer 1 x 1000 B, fsync": 2_400,
    "consumer 1000 x 1000 B": 800_000,
    "consumer 1000 x 256 B": 2_000_000,
}
"""Messages a second of Iggy's server 0.4.213, acknowledged from memory unless it says fsync. Measured on 21 November
2026 on a machine of the same kind, not in this run."""


def iggy(bench: Bench) -> None:
    """Sends and polls, with records acknowledged from disk and from memory, beside the figures of Iggy's own server."""
    file = bench.folder / "iggy-password"
    file.write_text(PASSWORD)
    common = {"iggy.listen": "127.0.0.1:0", "iggy.root_password_file": str(file), "cursors.partitions": 1}
    for durability in ("disk", "memory"):
        settings = {**common, "streams.durability": durability}
        broker = Broker.start(bench.folder / f"iggy-{durability}", settings)
        try:
            address = str(broker.ready["iggy_address"])
            for batch, size in SHAPES:
                _shape(bench, broker, (address, durability), batch, size)
            if durability == "disk":
                _idle(bench, broker, address)
            bench.judge(f"Iggy, {durability}: MiB of the broker", broker.peak_mib(), most=500)
        finally:
            broker.stop()
    _judge(bench)


def _shape(bench: Bench, broker: Broker, where: tuple[str, str], batch: int, size: int) -> None:
    address, durability = where
    load = {"address": address, "password": PASSWORD, "stream": f"b{batch}x{size}", "batch": batch, "bytes": size}
    bench.drive("iggy-create", **load)
    name = f"{batch} x {size} B, {durability}"
    sent = list[int]()

    def send() -> Figures:
        figures = bench.drive("iggy-send", seconds=bench.seconds, **load)
        sent.append(figures["count"])
        return figures

    bench.measure(f"Iggy producer {name}", broker, send)
    if batch > 1:
        count = min(sum(sent), 2 * bench.count)
        bench.measure(f"Iggy consumer {name}", broker, lambda: bench.drive("iggy-poll", count=count, **load))


def _idle(bench: Bench, broker: Broker, address: str) -> None:
    """Resident memory for each idle connection."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4 * IDLE), most))
    host, _, port = address.rpartition(":")
    text = [bytes([len(each)]) + each for each in (b"iggy", PASSWORD.encode())]
    login = b"".join(text) + bytes(8)
    request = struct.pack("<II", len(login) + 4, LOGIN_USER) + login
    with ExitStack() as stack:
        before = broker.resident_mib()
        for _ in range(IDLE):
            connection = stack.enter_context(socket.create_connection((host, int(port))))
            connection.sendall(request)
            if connection.recv(8, socket.MSG_WAITALL)[:4] != bytes(4):
                raise RuntimeError("a login is refused")
        each = (broker.resident_mib() - before) * 1024 / IDLE
    bench.judge(f"Iggy: KiB of the broker for each of {IDLE} idle connections", each, most=16)


def _judge(bench: Bench) -> None:
    def rate(kind: str, durability: str) -> float:
        return bench.figures[f"Iggy {kind}, {durability}"]["rate"]

    def share(kind: str, durability: str, of: str, least: float) -> None:
        what = f"Iggy {kind}, {durability}: share of what its server did ({of})"
        bench.judge(what, rate(kind, durability) / MEASURED[of], least=least)

    for size in (1000, 256):
        share(f"producer 1000 x {size} B", "disk", f"producer 1000 x {size} B", 1)
        share(f"consumer 1000 x {size} B", "disk", f"consumer 1000 x {size} B", 1)
    share("producer 1000 x 1000 B", "disk", "producer 1000 x 1000 B, fsync", 1.2)
    share("producer 1 x 1000 B", "disk", "producer 1 x 1000 B, fsync", 1.5)
    share("producer 1 x 1000 B", "memory", "producer 1 x 1000 B", 0.9)
    middle = bench.figures["Iggy producer 100 x 256 B, disk"]["p50_us"]
    bench.judge("Iggy producer 100 x 256 B, disk: ms of a send, median", middle / 1000, most=1)
