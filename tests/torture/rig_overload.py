"""S21: ten times the load of the best rate, with 256 MiB of memory: the rate stays, and nothing is killed.

The broker (and its nats-server) run in a memory control group of 256 MiB if the machine has a writable one (v1 or v2),
with the limits of `docs/reference/limits.md` for that size; otherwise its resident memory is compared with the same
limit. Capacity is the rate of acks with so many records in flight that more do not increase it; overload is ten times
the publishers, each with as many in flight, and subscribers that do not read. The short share does not check rates,
only that nothing is killed or rejected, and that the broker serves afterwards.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bascule import testing
from bascule._liftbridge_pb import message

from tests.integration.faults.raw import EARLIEST, Raw, resident_bytes
from tests.torture.result import Result, Scale, SkippedError

ROW = "S21"
STREAM: Final = "overload"
MEMORY: Final = 256 << 20
TIMES: Final = 10
IN_FLIGHT: Final = 512
CAPACITY: Final = (1, 2, 4)
"""Numbers of publishers tried for the best rate: one alone gets too little processor time on a busy machine."""
LEAST_SHARE: Final = 0.8
SECONDS: Final = {Scale.SHORT: 3, Scale.FULL: 20}
ROOT: Final = Path(__file__).resolve().parents[2]
SMALL: Final = {
    "limits.inflight_bytes": "32MiB",
    "limits.queue_bytes": "16MiB",
    "limits.request_bytes": "16MiB",
    "limits.delivery_bytes": "16MiB",
    "limits.nats_pending_bytes": "16MiB",
    "limits.admin_request_bytes": "4MiB",
    "limits.connections": 256,
    "limits.connection_window_bytes": "256KiB",
    "streams.retention_max_bytes": "256MiB",
    "streams.segment_max_bytes": "64MiB",
    "streams.cleaner_interval_ms": 1000,
}
"""Settings of the limits page for 256 MiB, and retention that limits disk usage."""


@dataclass(frozen=True)
class Group:
    """A memory control group."""

    path: Path
    limit: str
    kills: str
    """File with the line `oom_kill N`."""

    def add(self, pid: int) -> None:
        """Move a process into it."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def oom_kills(self) -> int:
        """Number of its processes that the kernel killed for lack of memory."""
        lines = (self.path / self.kills).read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))


def run(scale: Scale) -> Result:
    """Capacity, then overload."""
    driver, seconds = build_driver(), SECONDS[scale]
    with memory_group() as group, broker_within(group) as broker:
        with Raw(broker.address) as raw:
            raw.create_stream(STREAM)
        publish(driver, broker.address, 1, 1)  # allocates the buffers of publishes
        peak = max(publish(driver, broker.address, publishers, seconds) for publishers in CAPACITY)
        watched = Watch(broker.pid)
        with never_reading(broker.address):
            goodput = publish(driver, broker.address, TIMES, seconds)
        resident = watched.end()
        after = publish(driver, broker.address, 1, seconds)
        kills = group.oom_kills() if group else int(resident > MEMORY)
        crashes = broker.log.count("panicked")
    share, full = goodput / peak, scale is Scale.FULL
    passed = (share >= LEAST_SHARE or not full) and kills == 0 and crashes == 0 and min(goodput, after) > 0
    bound = "control group of 256 MiB" if group else "resident memory watched against 256 MiB"
    return Result(
        row=ROW,
        title=f"{TIMES} times the publishers that reach capacity, {bound}",
        figure=(
            f"{goodput:,.0f} of {peak:,.0f} acks/s ({share:.0%}); {kills} killed for memory;"
            f" {resident / (1 << 20):.0f} MiB resident"
        ),
        bar=">= 80 %; 0" if full else "0",
        passed=passed,
        numbers={
            "peak": round(peak), "goodput": round(goodput), "share": round(share, 3), "kills": kills,
            "resident_mib": round(resident / (1 << 20)), "after": round(after), "crashes": crashes,
        },
    )  # fmt: skip


def build_driver() -> Path:
    """The load driver of `make bench`."""
    profile = os.environ.get("PROFILE", "fast")
    command = ["cargo", "build", "--quiet", "--locked", "--profile", profile, "--package", "bascule-bench-driver"]
    try:
        subprocess.run(command, cwd=ROOT, check=True)
    except FileNotFoundError:
        raise SkippedError("cargo is not installed: install a Rust toolchain") from None
    return ROOT / "target" / ("debug" if profile == "dev" else profile) / "bascule-bench-driver"


@contextmanager
def memory_group() -> Generator[Group | None]:
    """A control group with the limit; `None` = none can be created."""
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    name = f"bascule-overload-{os.getpid()}"
    if v1.is_dir():
        group = Group(v1 / name, "memory.limit_in_bytes", "memory.oom_control")
    else:
        group = Group(v2 / name, "memory.max", "memory.events")
    try:
        group.path.mkdir()
        (group.path / group.limit).write_text(str(MEMORY))
    except OSError:
        with contextlib.suppress(OSError):
            group.path.rmdir()
        yield None
        return
    try:
        yield group
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                group.path.rmdir()
                break
            time.sleep(0.1)


@contextmanager
def broker_within(group: Group | None) -> Generator[testing.TestBroker]:
    """A broker started in the group: this process joins it for the start."""
    home = _own_group(group)
    if group:
        group.add(os.getpid())
    try:
        with testing.broker(settings=SMALL) as broker:
            _leave(home)
            yield broker
    finally:
        _leave(home)


def _own_group(group: Group | None) -> Path | None:
    if group is None:
        return None
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    v1 = group.path.parent.name == "memory"
    own = next(line for line in lines if (":memory:" in line if v1 else line.startswith("0::")))
    return group.path.parent / own.rpartition(":")[2].lstrip("/")


def _leave(home: Path | None) -> None:
    if home is not None:
        (home / "cgroup.procs").write_text(str(os.getpid()))


def publish(driver: Path, address: str, times: int, seconds: int) -> float:
    """Acks per second of so many publishers together."""
    # Publishers of a real broker have their own processors.
    command = [
        "nice", "-n", "19", str(driver), "publish-async", f"address={address}", f"stream={STREAM}", "bytes=1024",
        f"in_flight={IN_FLIGHT}", f"seconds={seconds}",
    ]  # fmt: skip
    publishers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(times)]
    rates: list[float] = []
    for publisher in publishers:
        said, _ = publisher.communicate(timeout=seconds * 10 + 300)
        rates.append(float(json.loads(said)["rate"]) if publisher.returncode == 0 else 0.0)
    return sum(rates)


@contextmanager
def never_reading(address: str) -> Generator[None]:
    """Subscribers that never read."""
    body = message("SubscribeRequest")(stream=STREAM, startPosition=EARLIEST).SerializeToString()
    with contextlib.ExitStack() as open_channels:
        for _ in range(20):
            raw = open_channels.enter_context(Raw(address))
            open_channels.callback(raw.subscribe(body, timeout=600).cancel)
        yield


class Watch:
    """Maximum resident memory of a process, sampled twenty times per second."""

    def __init__(self, pid: int) -> None:
        self._pid, self._most, self._ended = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(0.05):
            self._most = max(self._most, resident_bytes(self._pid))

    def end(self) -> int:
        """The maximum, in bytes."""
        self._ended.set()
        self._thread.join()
        return self._most
