"""One session of measurements: a working folder on the disk under test, medians of the runs, and bars."""

import json
import mmap
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from processes import Watched

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
Figures = dict[str, Any]
SHOWN = ("p50_us", "p99_us", "bytes_on_disk_each")
"""Figures of a load that are printed with its rate."""
TOUCHED_BYTES = 4 << 30
"""Bytes of memory touched to measure the cost."""
SPARE_BYTES = 1 << 30
"""Bytes left free when the page cache is filled, for the processes of a run."""
CHUNK_BYTES = 4 << 20
PAGE = mmap.PAGESIZE


class Bench:
    """One session: a working folder on the disk under test and the figures so far."""

    def __init__(self, *, quick: bool, profile: str, folder: Path = ROOT) -> None:
        self.quick = quick
        self.runs = 1 if quick else 3
        self.seconds = 2 if quick else 5
        self.count = 200_000 if quick else 1_000_000
        self.profile = profile
        self.folder = Path(tempfile.mkdtemp(prefix="bench-", dir=folder))
        self.hole = self.folder / "hole"
        self.driver = ROOT / "target" / profile / "bascule-bench-driver"
        self.figures: dict[str, Figures] = {}
        self.bars: list[Figures] = []

    def drive(self, command: str, **arguments: object) -> Figures:
        """One run of the load driver."""
        words = [f"{key}={value}" for key, value in arguments.items()]
        done = subprocess.run([self.driver, command, *words], capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{command} {' '.join(words)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def engine(self, name: str) -> list[Figures]:
        """One run of a bench of the log engine without a broker. Returns its output, one JSON object per line."""
        self.fill_page_cache()
        words = f"cargo bench --quiet --locked --profile {self.profile} -p bascule-log --bench {name}"
        where = os.environ | {"BASCULE_BENCH_DIR": str(self.folder)}
        done = subprocess.run(
            words.split(), cwd=ROOT, env=where, capture_output=True, text=True, check=False, timeout=1800
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr.strip()}")
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def measure(self, name: str, watched: Watched | None, run: Callable[[], Figures]) -> None:
        """Repeat, keep the median of each figure, and add the resource use of the server."""
        self.compare(watched, {name: run})

    def compare(self, watched: Watched | None, loads: Mapping[str, Callable[[], Figures]]) -> None:
        """Several loads, alternating, so that disturbances of the machine affect all of them."""
        rows: dict[str, list[Figures]] = {name: [] for name in loads}
        for _ in range(self.runs):
            for name, run in loads.items():
                rows[name].append(self._once(watched, run))
        for name, of_load in rows.items():
            median = {key: statistics.median(row[key] for row in of_load) for key in of_load[0]}
            if watched:
                median["server_peak_mib"] = watched.peak_mib()
            self.figures[name] = median | {"runs": [row["rate"] for row in of_load]}
            extra = "".join(f", {key} {median[key]:.0f}" for key in SHOWN if key in median)
            print(f"{name:50} {median['rate']:14,.0f} /s{extra}", flush=True)

    def _once(self, watched: Watched | None, run: Callable[[], Figures]) -> Figures:
        # Counted from here: deferred work of the previous run is included in the median of all.
        before, on_disk = watched.cpu_seconds() if watched else 0.0, self.disk_bytes()
        self.fill_page_cache()
        row = run()
        if watched:
            count = max(1, row["count"])
            row["server_cpu_seconds"] = watched.cpu_seconds() - before
            row["server_cpu_us_each"] = row["server_cpu_seconds"] * 1e6 / count
            row["bytes_on_disk_each"] = (self.disk_bytes() - on_disk) / count
        return row

    def touch(self) -> float:
        """Touch memory and release it. Returns bytes per second."""
        wanted = TOUCHED_BYTES // 8 if self.quick else TOUCHED_BYTES
        size = max(PAGE, min(wanted, _free_bytes() // 2))
        began = time.perf_counter()
        with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            for position in range(0, size, PAGE):
                memory[position] = 1
        return size / (time.perf_counter() - began)

    def fill_page_cache(self) -> None:
        """Fill the page cache with unneeded data, as on a server that has run for a day.

        A virtual machine may get a page from its host only on first use, and return it once it is free. That can cost
        more than the rest of an append, and differs from run to run. With a full page cache, writes of a run replace
        existing pages.
        """
        left = TOUCHED_BYTES // 8 if self.quick else _free_bytes() - SPARE_BYTES
        chunk = bytearray(CHUNK_BYTES)
        with self.hole.open("ab") as hole:
            begin = hole.seek(0, os.SEEK_END)
            hole.truncate(begin + max(0, left))
        with self.hole.open("rb", buffering=0) as hole:
            hole.seek(begin)
            while hole.readinto(chunk):
                pass

    def disk_bytes(self) -> int:
        """Bytes written to the disk of the working folder since the machine started, by all processes."""
        device = self.folder.stat().st_dev
        path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
        return int(path.read_text().split()[6]) * 512 if path.exists() else 0

    def ratio(self, name: str, one: str, other: str) -> float:
        """The ratio of the rates of `one` and `other`: the median over the turns."""
        pairs = zip(self.figures[one]["runs"], self.figures[other]["runs"], strict=True)
        share = statistics.median(a / b for a, b in pairs)
        self.figures.setdefault(name, {})["ratio"] = share
        return share

    def judge(self, what: str, figure: float, *, least: float | None = None, most: float | None = None) -> None:
        """Store a figure with its bar, and print whether it is met."""
        met = figure >= least if least is not None else most is None or figure <= most
        bar = f">= {least:g}" if least is not None else f"<= {most:g}"
        self.bars.append({"what": what, "figure": figure, "bar": bar, "met": met})
        print(f"  {'met    ' if met else 'NOT MET'} {what}: {figure:,.3g} (bar: {bar})", flush=True)

    def judge_rate(self, name: str, least: float, p99_ms: float | None = None) -> None:
        """Store a load's rate and p99 with their bars."""
        figures = self.figures[name]
        self.judge(f"{name}, /s", round(figures["rate"]), least=least)
        if p99_ms is not None:
            self.judge(f"{name}, p99 ms", figures["p99_us"] / 1000, most=p99_ms)

    def write(self) -> Path:
        """Write the figures to `bench/results/`."""
        machine = _machine(self.profile)
        document = {"machine": machine, "figures": self.figures, "bars": self.bars}
        RESULTS.mkdir(exist_ok=True)
        name = "quick.json" if self.quick else f"{machine['date'][:10]}-{machine['commit']}.json"
        (RESULTS / name).write_text(json.dumps(document, indent=1) + "\n")
        return RESULTS / name

    def clear(self) -> None:
        """Remove the files of a part from the working folder: all parts together need more than 30 GB."""
        for path in self.folder.iterdir():
            if path == self.hole:
                continue
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()

    def close(self) -> None:
        """Remove the working folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_bytes() -> int:
    """Unused memory, without page cache, in bytes."""
    return min(os.sysconf("SC_AVPHYS_PAGES") * PAGE, _left_to_group())


def _left_to_group() -> int:
    """Memory that the container of this process may still use, in bytes; very large if there is no limit."""
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    words = limit.read_text().strip() if limit.exists() and used.exists() else "max"
    return 1 << 62 if words == "max" else max(0, int(words) - int(used.read_text()))


def _machine(profile: str) -> Figures:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        "?",
    )
    return {
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit.stdout.strip(),
        "profile": profile,
        "cores": os.cpu_count(),
        "cpu": model,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
