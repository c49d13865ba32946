"""What the scripts that run Spark share: loads that take turns, and the processor time of each kind of process."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

TICK = os.sysconf("SC_CLK_TCK")


def nothing() -> None:
    """No preparation."""


def alternate(
    loads: Mapping[str, Callable[[], int]], *, broker: int, runs: int, prepare: Callable[[], None] = nothing
) -> dict[str, dict[str, Any]]:
    """Run loads in turns, so that disturbances of the machine affect all of them. The first turn is not counted.

    Args:
        loads: by name; each returns its number of rows.
        broker: process id.
        runs: counted turns, at least 1.
        prepare: called before each load, outside the measured time.

    Returns:
        By name: `count`, `rate` (rows/s, median), `runs` (rows/s of each), and `cpu_seconds_per_million` (rows), the
        medians of the processes that `cpu_seconds` distinguishes.
    """
    rates: dict[str, list[float]] = {name: [] for name in loads}
    spent: dict[str, list[dict[str, float]]] = {name: [] for name in loads}
    counts: dict[str, int] = {}
    for turn in range(runs + 1):
        for name, load in loads.items():
            prepare()
            before, begun = cpu_seconds(broker), time.perf_counter()
            counts[name] = load()
            seconds, after = time.perf_counter() - begun, cpu_seconds(broker)
            if turn:
                rates[name].append(counts[name] / seconds)
                spent[name].append({kind: (after[kind] - before[kind]) / counts[name] * 1e6 for kind in after})
    return {
        name: {
            "count": counts[name],
            "rate": statistics.median(of_load),
            "runs": of_load,
            "cpu_seconds_per_million": {
                kind: statistics.median(turn[kind] for turn in spent[name]) for kind in spent[name][0]
            },
        }
        for name, of_load in rates.items()
    }


def cpu_seconds(broker: int) -> dict[str, float]:
    """User and system time so far, in seconds: of the `broker`, of Spark's `jvm`, of all its `python` workers including
    those that have ended, and of this process, the `driver`.
    """
    times = _process_times()
    jvms = [pid for pid in _descendants(times, os.getpid()) if times[pid].command == "java"]
    workers = [pid for jvm in jvms for pid in _descendants(times, jvm)]
    return {
        "broker": times[broker].own,
        "jvm": sum(times[pid].own for pid in jvms),
        "python": sum(times[pid].own for pid in workers) + sum(times[pid].children for pid in (*jvms, *workers)),
        "driver": time.process_time(),
    }


class _Times:
    """A line of `/proc/PID/stat`: parent, command, and seconds of the process and of children that ended."""

    def __init__(self, line: str) -> None:
        head, _, tail = line.rpartition(")")
        fields = tail.split()
        self.command = head.partition("(")[2]
        self.parent = int(fields[1])
        self.own = (int(fields[11]) + int(fields[12])) / TICK
        self.children = (int(fields[13]) + int(fields[14])) / TICK


def _process_times() -> dict[int, _Times]:
    found: dict[int, _Times] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            found[int(path.parent.name)] = _Times(path.read_text())
    return found


def _descendants(times: Mapping[int, _Times], ancestor: int) -> list[int]:
    found: list[int] = []
    level = [ancestor]
    while level:
        level = [pid for pid, each in times.items() if each.parent in level]
        found += level
    return found
