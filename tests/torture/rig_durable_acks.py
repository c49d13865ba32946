"""S22: the rate of durable acks, and a check that each of them was durable.

A broker on an ext4 image on a loop device, and the load driver of `make bench`: 64 callers that publish 1 KiB and wait
for the ack, alternating between a stream of class `disk` and one of class `memory`, whose acks do not wait for a sync.
In a last turn the power of the image is cut under load and the broker is killed: after a restart every record acked
before the cut must exist unchanged at its offset.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from bascule import StreamOptions, testing
from pyarrow import flight

from tests.torture import volume
from tests.torture.result import Result, Scale
from tests.torture.rig_overload import build_driver

ROW = "S22"
IN_FLIGHT = 64
VALUE_BYTES = 1024
TURNS = {Scale.SHORT: 1, Scale.FULL: 5}
SECONDS = {Scale.SHORT: 1, Scale.FULL: 5}
MIB = {Scale.SHORT: 1024, Scale.FULL: 6144}
LEAST_RATE = 20_000
LEAST_SHARE = 0.4
MOST_P99_MS = 15.0
ENTRY = struct.Struct("<QQ")
"""Entry of the driver's ledger: the number at the start of a value, and its acked offset."""
STREAMS = {"durable": "disk", "unsynced": "memory"}
CUT_WITHIN_SECONDS = 60


@dataclass
class Measured:
    """Results of the turns, by stream."""

    sync_us: float = 0.0
    load: list[float] = field(default_factory=list[float])
    """Load average of the machine at the end of each turn, because other processes affect every figure."""
    rates: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in STREAMS})
    p99_ms: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in STREAMS})

    def rate(self, stream: str) -> float:
        """Acks per second."""
        return statistics.median(self.rates[stream])


@dataclass(frozen=True)
class Verdict:
    """The state of the records acked before the cut."""

    acked: int
    lost: int

    @property
    def clean(self) -> bool:
        """Whether there were any, and all exist."""
        return self.acked > 0 and self.lost == 0


class Load:
    """The driver against one broker."""

    def __init__(self, driver: Path, address: str) -> None:
        self._driver, self._address = driver, address

    def command(self, stream: str, seconds: int, acks: Path) -> list[str]:
        """Publish to a stream for the given time; acked records are written to a file."""
        return [
            str(self._driver), "publish", f"address={self._address}", f"stream={stream}", f"in_flight={IN_FLIGHT}",
            f"bytes={VALUE_BYTES}", f"seconds={seconds}", f"acks={acks}",
        ]  # fmt: skip

    def turn(self, stream: str, seconds: int, acks: Path, into: Measured) -> None:
        """One turn, measured."""
        result = json.loads(subprocess.check_output(self.command(stream, seconds, acks), text=True))
        into.rates[stream].append(result["rate"])
        into.p99_ms[stream].append(result["p99_us"] / 1000)


def cut_under_load(load: Load, mounted: volume.Volume, broker: testing.TestBroker, acks: Path) -> int:
    """Cut the power under load, and kill the broker. Returns the number of records acked before the cut."""
    publishing = subprocess.Popen(load.command("durable", CUT_WITHIN_SECONDS, acks), stderr=subprocess.DEVNULL)
    try:
        before = acks.stat().st_size if acks.exists() else 0
        limit = time.monotonic() + CUT_WITHIN_SECONDS / 2
        while (acks.stat().st_size if acks.exists() else 0) < before + 1000 * ENTRY.size:
            assert time.monotonic() < limit, "the load did not begin"
            time.sleep(0.01)
        acked = acks.stat().st_size // ENTRY.size
        mounted.cut(volume.FLUSH_NOTHING)
        broker.kill()
        publishing.wait(CUT_WITHIN_SECONDS * 2)
    finally:
        publishing.kill()
        publishing.wait()
    return acked


def judge(address: str, acks: Path, acked: int) -> Verdict:
    """Read the stream and check each of the first `acked` acked records."""
    ticket = json.dumps({"stream": "durable", "partition": 0, "start": 0, "columns": ["offset", "value"]})
    found: dict[int, int] = {}
    with flight.FlightClient(f"grpc://{address}") as client:
        for chunk in client.do_get(flight.Ticket(ticket.encode())):
            batch = chunk.data
            for offset, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True):
                if len(value) == VALUE_BYTES and value[8:] == b"x" * (VALUE_BYTES - 8):
                    found[offset] = int.from_bytes(value[:8], "little")
    entries = list(ENTRY.iter_unpack(acks.read_bytes()[: acked * ENTRY.size]))
    return Verdict(len(entries), sum(found.get(offset) != number for number, offset in entries))


def measure(scale: Scale) -> tuple[Measured, Verdict]:
    """Run all turns and the cut, and check the records afterwards.

    Raises:
        SkippedError: the machine cannot mount the image, or has no cargo.
    """
    volume.require("ext4")
    driver, seconds, measured = build_driver(), SECONDS[scale], Measured()
    with volume.volume("ext4", MIB[scale]) as mounted, tempfile.TemporaryDirectory(prefix="bascule-acks-") as own:
        result = json.loads(subprocess.check_output([str(driver), "sync", f"dir={mounted.path}"], text=True))
        measured.sync_us = result["seconds"] / result["count"] * 1e6
        Path(own, "data").symlink_to(mounted.path)
        acks = {name: Path(own, f"{name}.acks") for name in STREAMS}
        with testing.broker(durability="disk", directory=Path(own)) as broker:
            with broker.connect() as client:
                client.create_stream("durable", options=StreamOptions(durability="disk"))
                client.create_stream("unsynced", options=StreamOptions(durability="memory"))
            load = Load(driver, broker.address)
            for _ in range(TURNS[scale]):
                for name, path in acks.items():
                    load.turn(name, seconds, path, measured)
                    measured.load.append(os.getloadavg()[0])
            before = cut_under_load(load, mounted, broker, acks["durable"])
            mounted.remount()
            broker.start()
            verdict = judge(broker.address, acks["durable"], before)
    return measured, verdict


def run(scale: Scale) -> Result:
    """At short scale only acked records are checked, because times need an idle machine."""
    measured, verdict = measure(scale)
    rate = measured.rate("durable")
    share, p99 = rate / measured.rate("unsynced"), statistics.median(measured.p99_ms["durable"])
    quick = rate >= LEAST_RATE and share >= LEAST_SHARE and p99 <= MOST_P99_MS
    times_judged, load = scale is Scale.FULL, statistics.median(measured.load)
    return Result(
        row=ROW,
        title=f"durable acks, {IN_FLIGHT} in flight, 1 KiB, ext4 on a loop device, then a power cut under load",
        figure=(
            f"{rate:,.0f} acks/s, {share:.0%} of the unsynced rate, p99 {p99:.1f} ms,"
            f" mean sync {measured.sync_us:.0f} µs, at a load of {load:.1f};"
            f" {verdict.lost} of {verdict.acked:,} acked lost"
        ),
        bar=f"≥ {LEAST_RATE:,}, ≥ {LEAST_SHARE:.0%}, ≤ {MOST_P99_MS:g} ms; 0 lost" if times_judged else "0 lost",
        passed=verdict.clean and (quick or not times_judged),
        numbers={
            "acks_per_second": round(rate), "unsynced_per_second": round(measured.rate("unsynced")),
            "share": round(share, 3), "p99_ms": round(p99, 2), "sync_us": round(measured.sync_us, 1),
            "load_average": round(load, 1), "acked": verdict.acked, "lost": verdict.lost,
        },
    )  # fmt: skip
