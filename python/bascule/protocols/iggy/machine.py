"""What this process and its machine use, for `GET_STATS`: a few small files of Linux' `/proc`."""

import os
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Machine", "Usage"]

_US_PER_S = 1_000_000
_BYTES_PER_KIB = 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """Bytes, but for: `cpu`, `total_cpu` (percent of one processor and of all, since the last look), `run_time_us`,
    `started_us` (since 1970).
    """

    cpu: float
    total_cpu: float
    memory: int
    total_memory: int
    available_memory: int
    run_time_us: int
    started_us: int
    read: int
    written: int
    threads: int
    free_disk: int
    total_disk: int


@dataclass(frozen=True, slots=True)
class _Counters:
    """Seconds since the start; ticks of this process, of all processors busy, of all in all."""

    run_time_s: float
    own: int
    busy: int
    total: int


class Machine:
    """Looks at the process. `directory`: on the disk that is meant."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")
        self._lock = threading.Lock()
        self._last = _Counters(0.0, 0, 0, 0)

    def look(self) -> Usage:
        """As of now. Blocks."""
        status, memory = _fields("/proc/self/status"), _fields("/proc/meminfo")
        moved = _fields("/proc/self/io")
        # What follows the name of the program, which may hold anything, begins with the third field.
        stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        own_ticks, start_ticks = int(stat[11]) + int(stat[12]), int(stat[19])
        uptime_s = float(Path("/proc/uptime").read_text().split()[0])
        run_time_us = int((uptime_s - start_ticks / self._ticks_per_s) * _US_PER_S)
        cpu, total_cpu = self._busy(run_time_us / _US_PER_S, own_ticks)
        disk = shutil.disk_usage(self._directory)
        return Usage(
            cpu=cpu,
            total_cpu=total_cpu,
            memory=_kib(status["VmRSS"]),
            total_memory=_kib(memory["MemTotal"]),
            available_memory=_kib(memory["MemAvailable"]),
            run_time_us=run_time_us,
            started_us=time.time_ns() // 1000 - run_time_us,
            read=int(moved["read_bytes"]),
            written=int(moved["write_bytes"]),
            threads=int(status["Threads"]),
            free_disk=disk.free,
            total_disk=disk.total,
        )

    def _busy(self, run_time_s: float, own_ticks: int) -> tuple[float, float]:
        """Percent of a processor that this process took, and of all that anyone did, since the last look."""
        ticks = [int(item) for item in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        # The fourth and fifth are idle.
        now = _Counters(run_time_s, own_ticks, sum(ticks) - ticks[3] - ticks[4], sum(ticks))
        with self._lock:
            before, self._last = self._last, now
        elapsed_s, elapsed = now.run_time_s - before.run_time_s, now.total - before.total
        own = 100 * (now.own - before.own) / self._ticks_per_s / elapsed_s if elapsed_s > 0 else 0.0
        return own, 100 * (now.busy - before.busy) / elapsed if elapsed > 0 else 0.0


def _fields(path: str) -> dict[str, str]:
    lines = (line.partition(":") for line in Path(path).read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}


def _kib(value: str) -> int:
    return int(value.split(maxsplit=1)[0]) * _BYTES_PER_KIB
