"""S4: at each failpoint the engine ends, is killed while it pauses, or gets a disk error.

The points are those of `specs/failpoints.toml`; the driver is built with them. A directory has many runs, each with one
point; after half of them the power is cut too, if filesystems can be mounted. Points of recovery are used after a run
that was killed while the journal had data that the segments did not have, and a power cut: only then is there something
to replay. The check is that of S3; it considers compaction.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
import time
import tomllib
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tests.torture import ledger, volume
from tests.torture.driver import REPOSITORY, driver, words
from tests.torture.result import Result, Scale, SkippedError

ROW = "S4"
TIMES = 25
"""Required number of hits of each point."""
SHORT_SECONDS = 20
FULL_SECONDS = 1200
"""Maximum time at full scale; less if all points have fired often enough."""
LIVES = 20
"""Runs on one directory."""
SHAPE = {
    "partitions": 3,
    "segment": 10 << 10,
    "ahead": 4 << 10,
    "retain": 40 << 10,
    "in_flight": 8,
    "journal": 1,
    "journal_bytes": 16 << 10,
    "journal_files": 2,
    "batches": 90,
    "delete": 40,
    "compact": 1,
    "close": 1,
}
LEFT_BEHIND = {"journal_bytes": 512 << 10, "batches": 0, "delete": 0}
"""Settings of a run that is killed so that the next one has something to replay.

The journal is so large that it does not become full, so segments are not synced for 5 s."""
OF_RECOVERY = {"journal.replay.half", "recovery.cut_not_synced"}
"""Points that are reached only if an opened log has lost data."""
ERRORS = ("EIO", "ENOSPC", "EMFILE", "EROFS")
LIFE_SECONDS = 60


def points() -> list[str]:
    """All points of a log; those of staging and links are in the broker, and tests of the engine reach them."""
    tables = tomllib.loads((REPOSITORY / "specs" / "failpoints.toml").read_text())
    return sorted(name for room, table in tables.items() if room not in {"stage", "link"} for name in table)


@dataclass
class Count:
    """Counts of the rig."""

    killed: Counter[str] = field(default_factory=Counter[str])
    """Deaths at each point."""
    lives: int = 0
    verdict: ledger.Verdict = field(default_factory=ledger.Verdict)


class Directory:
    """A directory of logs and its runs, on a volume, or without one on the machine's disk."""

    def __init__(self, home: Path, mounted: volume.Volume | None, seed: int, count: Count) -> None:
        self.volume, self.count = mounted, count
        self.chance = random.Random(seed)
        self.path = (mounted.path if mounted else home) / f"logs-{seed}"
        self.path.mkdir()
        self.ledger = home / f"ledger-{seed}"
        self.shape = SHAPE | {"dir": self.path, "ledger": self.ledger, "seed": seed}
        self.judge = ledger.Judge(count.verdict, f"seed {seed}")

    def leave_behind(self, number: int) -> None:
        """One run that is killed, then a power cut."""
        self.ledger.unlink(missing_ok=True)
        self.judge.name = f"seed {self.shape['seed']}, run {number}, killed"
        command = [str(driver("failpoints")), "live", *words(run_id=number, **self.shape | LEFT_BEHIND)]
        entries, stop = self.chance.randint(100, 400), time.monotonic() + LIFE_SECONDS
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            while ledger.length(self.ledger) < entries * ledger.ENTRY.size and process.poll() is None:
                if time.monotonic() > stop:
                    self.count.verdict.blame("wrong", 1, f"{self.judge.name}: hangs")
                    break
                time.sleep(0.002)
            process.kill()
        self.count.lives += 1
        self.judge.follow(ledger.read(self.ledger))
        if self.volume:
            self.volume.cut(volume.FLUSH_NOTHING)
            self.volume.remount()

    def live(self, number: int, point: str) -> None:
        """One run that may end at the point."""
        self.ledger.unlink(missing_ok=True)
        self.judge.name = f"seed {self.shape['seed']}, run {number}, {point}"
        action = self._action()
        environment = os.environ | {"FAILPOINTS": f"{point}={action}"}
        command = [str(driver("failpoints")), "live", *words(run_id=number, **self.shape)]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            if action.endswith("pause"):
                time.sleep(self.chance.uniform(0.01, 0.15))
                process.kill()
            try:
                _, output = process.communicate(timeout=LIFE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                _, output = process.communicate()
                self.count.verdict.blame("wrong", 1, f"{self.judge.name}: {action} hangs")
        self.count.lives += 1
        self.count.killed[point] += f"failpoint {point}: abort" in output
        if "panicked" in output:
            self.count.verdict.blame("wrong", 1, f"{self.judge.name}: {output[-300:]}")
        self.judge.follow(ledger.read(self.ledger), faulted="return(E" in action)
        if self.volume and self.chance.random() < 0.5:
            self.volume.cut(self.chance.choice((volume.FLUSH_JOURNAL, volume.FLUSH_NOTHING)))
            self.volume.remount()

    def _action(self) -> str:
        """The action: mostly an exit, at a random hit."""
        share = self.chance.choice((100, 100, 30, 10))
        what = self.chance.random()
        if what < 0.75:
            return f"{share}%return(abort)"
        return f"{share}%1*{'pause' if what < 0.85 else f'return({self.chance.choice(ERRORS)})'}"

    def end(self) -> None:
        """A recovery without faults; then everything is removed."""
        self.ledger.unlink(missing_ok=True)
        command = [str(driver("failpoints")), "read", *words(run_id=LIVES + 1, **self.shape)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIFE_SECONDS, check=False)
        if not self.judge.follow(ledger.read(self.ledger)) or done.returncode != 0:
            self.count.verdict.blame("lost", 1, f"{self.judge.name}: recovery ended with {done.stderr}")
        shutil.rmtree(self.path)


def torment(seed: int, seconds: float) -> Count:
    """Runs with every point in turn, until each has fired often enough or the time is over."""
    count, stop = Count(), time.monotonic() + seconds
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bascule-points-")))
        try:
            mounted = stack.enter_context(volume.volume("ext4", 64))
        except SkippedError:
            mounted = None  # then only kills; the figure says so
        while time.monotonic() < stop and len(count.verdict.details) < 10:
            missing = [point for point in points() if count.killed[point] < TIMES]
            if not missing:
                break
            directory = Directory(home, mounted, seed, count)
            for life in range(1, LIVES, 2):
                point = directory.chance.choice(missing)
                if point in OF_RECOVERY:
                    directory.leave_behind(life)
                else:
                    directory.live(life, point)
                directory.live(life + 1, point)
            directory.end()
            seed += 1
    return count


def run(scale: Scale) -> Result:
    """Run all failpoints."""
    driver("failpoints")
    full = scale is Scale.FULL
    seed = 1 if full else time.time_ns() % 1_000_000
    count = torment(seed, FULL_SECONDS if full else SHORT_SECONDS)
    for detail in count.verdict.details:
        print(detail)
    verdict = count.verdict
    violations = verdict.lost + verdict.wrong + verdict.resurfaced
    there = points()
    often = [point for point in there if count.killed[point] >= (TIMES if full else 1)]
    if rare := sorted(set(there) - set(often)):
        print(f"too rarely: {', '.join(f'{point} {count.killed[point]}' for point in rare)}")
    return Result(
        row=ROW,
        title="death, pause and errors at each failpoint, with power cuts behind half of them",
        figure=f"{len(often)} of {len(there)} points fired {TIMES if full else 1} times or more "
        f"({count.killed.total():,} deaths in {count.lives:,} lives); {violations} violations",
        bar="all; 0",
        passed=violations == 0 and verdict.acked > count.lives and (not full or len(often) == len(there)),
        numbers={
            "points": len(there),
            "fired_often": len(often),
            "deaths": count.killed.total(),
            "lives": count.lives,
            "violations": violations,
        },
    )
