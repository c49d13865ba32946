"""S15: hostile clients against one broker with default limits, and their effect on another client.

Each attack of `hostile.py` runs in a separate process while a client here publishes one record after another. Its
latencies are compared with those without an attack, measured before and after it. Memory is the growth of the broker's
process at the peak of an attack, per open connection.

The short share does not check times and figures per connection: the broker must survive, answer the other client, and
grow at most by the allowance of its connections and a fixed amount.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bascule import testing

from tests.integration.faults.raw import Raw, publish_request, resident_bytes
from tests.torture import hostile
from tests.torture.result import Result, Scale

ROW = "S15"
STREAM: Final = "victim"
FILLED: Final = "filled"
MOST_FACTOR: Final = 2.0
NOISE_MS: Final = 2.0
"""Values of p99 below this count as equal, because the scheduler alone causes such differences."""
MOST_KIB: Final = {"silent": 64, "drip": 64, "half_greeting": 64, "greeted": 64}
"""Attacks with unauthenticated connections, and the allowance for each."""
SHORT_MIB: Final = 16
"""Fixed allowance of an attack in the short share: buffers and arenas that stay allocated."""
ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Size:
    """Parameters of a scale."""

    seconds: float
    connections: int
    subscribers: int


SIZES: Final = {Scale.SHORT: Size(0.7, 300, 300), Scale.FULL: Size(10.0, 5_000, 5_000)}


@dataclass(frozen=True)
class Noticed:
    """The result of one attack."""

    name: str
    quiet_ms: float
    attacked_ms: float
    kib_per_connection: float
    grown_mib: float
    connections: int

    @property
    def factor(self) -> float:
        """Ratio of the p99 with and without the attack."""
        return max(self.attacked_ms, NOISE_MS) / max(self.quiet_ms, NOISE_MS)


def run(scale: Scale) -> Result:
    """Every attack, one after another."""
    size = SIZES[scale]
    with testing.broker(settings={"limits.grace_ms": 1000}) as broker:
        with Raw(broker.address) as raw:
            for name in (STREAM, FILLED):
                raw.create_stream(name)
            fill = [publish_request(FILLED, b"x" * 10_000, ackPolicy=1)] * 1000
            assert sum(1 for _ in raw.publish_async(fill, 60)) == len(fill)
        noticed = [attack(broker, name, size) for name in hostile.ATTACKS]
        with Raw(broker.address) as raw:
            raw.publish(STREAM, b"last")
        crashes = broker.log.count("panicked")
    return _result(noticed, crashes, scale)


def attack(broker: testing.TestBroker, name: str, size: Size) -> Noticed:
    """One attack: measured before, during and after it."""
    count = size.subscribers if name == "subscribers" else size.connections
    with Raw(broker.address) as raw:
        quiet = latencies(raw, size.seconds / 2)
        before = resident_bytes(broker.pid)
        command = [sys.executable, "-m", "tests.torture.hostile", name, broker.address]
        process = subprocess.Popen(
            [*command, str(size.seconds + 1), str(count), FILLED],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        height = _first_line(process)
        peak = _Peak(broker.pid)
        attacked = latencies(raw, size.seconds)
        grown = peak.end() - before
        _, said = process.communicate(timeout=300)
        if process.returncode:
            raise AssertionError(f"the hostile client failed: {said[-600:]}")
        quiet += latencies(raw, size.seconds / 2)
    return Noticed(
        name, p99(quiet), p99(attacked), grown / 1024 / max(height["open"], 1), grown / (1 << 20), height["open"]
    )


class _Peak:
    """Maximum resident memory of a process, sampled fifty times per second."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most, self._ended = pid, resident_bytes(pid), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            self._most = max(self._most, resident_bytes(self._pid))

    def end(self) -> int:
        """The maximum."""
        self._ended.set()
        self._thread.join()
        return self._most


def _first_line(process: subprocess.Popen[str]) -> dict[str, int]:
    assert process.stdout is not None
    line = process.stdout.readline()
    return json.loads(line) if line else {"open": 0}


def latencies(raw: Raw, seconds: float) -> list[float]:
    """Publish one record after another for the given time, at least two. Returns the latencies in ms."""
    body, taken = publish_request(STREAM, b"x" * 100, ackPolicy=1), list[float]()
    end = time.monotonic() + seconds
    while (begun := time.monotonic()) < end or len(taken) < 2:
        raw.unary("Publish", body)
        taken.append((time.monotonic() - begun) * 1000)
    return taken


def p99(taken: list[float]) -> float:
    """The p99 of at least two values."""
    return statistics.quantiles(taken, n=100)[98]


def _result(noticed: list[Noticed], crashes: int, scale: Scale) -> Result:
    for one in noticed:
        print(
            f"{one.name}: p99 {one.quiet_ms:.1f} -> {one.attacked_ms:.1f} ms; {one.connections} connections,"
            f" {one.kib_per_connection:.1f} KiB each, {one.grown_mib:.0f} MiB in all",
            flush=True,
        )
    worst = max(noticed, key=lambda one: one.factor)
    unauthenticated = [one for one in noticed if one.name in MOST_KIB]
    heaviest = max(unauthenticated, key=lambda one: one.kib_per_connection)
    if scale is Scale.FULL:
        bar = "<= 64 KiB; <= 2 x; 0"
        within = worst.factor <= MOST_FACTOR and all(
            one.kib_per_connection <= MOST_KIB[one.name] for one in unauthenticated
        )
    else:
        bar = f"<= 64 KiB and {SHORT_MIB} MiB in all; 0"
        within = all(
            one.grown_mib <= SHORT_MIB + one.connections * MOST_KIB[one.name] / 1024 for one in unauthenticated
        )
    passed = crashes == 0 and within
    numbers: dict[str, float] = {"crashes": crashes}
    for one in noticed:
        numbers[f"{one.name}.p99_factor"] = round(one.factor, 2)
        numbers[f"{one.name}.grown_mib"] = round(one.grown_mib, 1)
        numbers[f"{one.name}.connections"] = one.connections
    for one in unauthenticated:
        numbers[f"{one.name}.kib_per_connection"] = round(one.kib_per_connection, 1)
    return Result(
        row=ROW,
        title=f"{len(noticed)} kinds of hostile clients",
        figure=(
            f"{heaviest.kib_per_connection:.0f} KiB a connection ({heaviest.name}); p99 of others"
            f" {worst.factor:.1f} x ({worst.name}); crashes {crashes}"
        ),
        bar=bar,
        passed=passed,
        numbers=numbers,
    )
