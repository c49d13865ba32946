"""S13, idle: memory, processor time and descriptors of a broker with 1,000 idle partitions."""

from __future__ import annotations

import os
import time
from pathlib import Path

from bascule import StreamOptions, testing
from bascule.engine import Client, native_errors

from tests.torture.publishers import publish
from tests.torture.result import Result, Scale

ROW = "S13-idle"
PARTITIONS = 1000
STREAMS = 10
MEMORY_MIB = 300
CPU_PERCENT = 1.0
SETTLE_SECONDS = 12
WATCH_SECONDS = {Scale.SHORT: 5, Scale.FULL: 60}
WINDOWS = 3
"""The least of them counts: what runs beside the broker adds to its processor time and never takes from it."""


def resident_mib(pid: int) -> float:
    """Resident memory of a process, MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def busy_percent(pid: int, seconds: int) -> float:
    """Processor time of a process over `seconds`, percent of one core."""
    before, started = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)  # the measured time
    return 100 * (cpu_seconds(pid) - before) / (time.monotonic() - started)


def run(scale: Scale) -> Result:
    """Create the partitions, publish a record to each, measure, and check that the broker still serves."""
    with testing.broker(durability="disk") as broker:
        with broker.connect() as client:
            for i in range(STREAMS):
                client.create_stream(f"idle-{i}", options=StreamOptions(partitions=PARTITIONS // STREAMS))
        with native_errors():
            core = Client(broker.address, b"{}")
            for i in range(PARTITIONS):
                publish(core, (f"idle-{i % STREAMS}", i // STREAMS), [b"one"], 60_000)
        time.sleep(SETTLE_SECONDS)  # segments are synced within 5 s, then checkpoints written within 5 more
        cpu = min(busy_percent(broker.pid, WATCH_SECONDS[scale]) for _ in range(WINDOWS))
        with native_errors():
            publish(core, ("idle-0", 0), [b"still here"], 60_000)
        memory = resident_mib(broker.pid)
        descriptors = len(list(Path(f"/proc/{broker.pid}/fd").iterdir()))
    return Result(
        row=ROW,
        title="a broker with 1,000 idle partitions",
        figure=f"{memory:.0f} MiB, {cpu:.2f} % of a core, {descriptors:,} descriptors",
        bar=f"≤ {MEMORY_MIB} MiB, ≤ {CPU_PERCENT:g} %",
        passed=memory <= MEMORY_MIB and cpu <= CPU_PERCENT,
        numbers={"memory_mib": memory, "cpu_percent": cpu, "descriptors": descriptors, "partitions": PARTITIONS},
    )
