"""S4: the engine dies at each of its failpoints, pauses there while it is killed, or is refused there by the disk.

The points are those of `specs/failpoints.toml`; the driver is built with them. A directory has many lives, each under
one point; after half of them the power is cut as well, where filesystems can be mounted. Points of recovery come after
a life that was killed while the journal held what the segments had not got, and a power cut: only then is there
something to take over. The judge is that of S3; it knows what compaction may take.
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
"""How often each point has to fire."""
SHORT_SECONDS = 20
FULL_SECONDS = 1200
"""Not more than so long, at full scale; less when all points have fired often enough before."""
LIVES = 20
"""Lives on one directory."""
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
"""What is different in a life that is killed so that the next one has something to take over.

The journal is large enough not to be full, so that segments are not synced for 5 s."""
OF_RECOVERY = {"journal.replay.half", "recovery.cut_not_synced"}
"""Points that are passed only when a log is opened that has lost something."""
ERRORS = ("EIO", "ENOSPC", "EMFILE", "EROFS")
LIFE_SECONDS = 60


def points() -> list[str]:
    """Every point there is."""
    tables = tomllib.loads((REPOSITORY / "specs" / "failpoints.toml").read_text())
    return sorted(name for table in tables.values() for name in table)


@dataclass
class Count:
    """What happened."""

    killed: Counter[str] = field(default_factory=Counter[str])
    """Deaths at each point."""
    lives: int = 0
    verdict: ledger.Verdict = field(default_factory=ledger.Verdict)


class Directory:
    """A directory of logs and its lives; on a volume, or without one on the machine's own disk."""

    def __init__(self, home: Path, mounted: volume.Volume | None, seed: int, count: Count) -> None:
        self.volume, self.count = mounted, count
        self.chance = random.Random(seed)
        self.path = (mounted.path if mounted else home) / f"logs-{seed}"
        self.path.mkdir()
        self.ledger = home / f"ledger-{seed}"
        self.shape = SHAPE | {"dir": self.path, "ledger": self.ledger, "seed": seed}
        self.judge = ledger.Judge(count.verdict, f"seed {seed}")

    def leave_behind(self, number: int) -> None:
        """One life that is killed at work; then the power goes."""
        self.ledger.unlink(missing_ok=True)
        self.judge.name = f"seed {self.shape['seed']}, life {number}, killed"
        command = [str(driver("failpoints")), "live", *words(life=number, **self.shape | LEFT_BEHIND)]
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
        """One life that may end at the point."""
        self.ledger.unlink(missing_ok=True)
        self.judge.name = f"seed {self.shape['seed']}, life {number}, {point}"
        action = self._action()
        environment = os.environ | {"FAILPOINTS": f"{point}={action}"}
        command = [str(driver("failpoints")), "live", *words(life=number, **self.shape)]
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            if action.endswith("pause"):
                time.sleep(self.chance.uniform(0.01, 0.15))
                process.kill()
            try:
                _, told = process.communicate(timeout=LIFE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                _, told = process.communicate()
                self.count.verdict.blame("wrong", 1, f"{self.judge.name}: {action} hangs")
        self.count.lives += 1
        self.count.killed[point] += f"failpoint {point}: abort" in told
        if "panicked" in told:
            self.count.verdict.blame("wrong", 1, f"{self.judge.name}: {told[-300:]}")
        self.judge.follow(ledger.read(self.ledger), faulted="return(E" in action)
        if self.volume and self.chance.random() < 0.5:
            self.volume.cut(self.chance.choice((volume.FLUSH_JOURNAL, volume.FLUSH_NOTHING)))
            self.volume.remount()

    def _action(self) -> str:
        """Mostly death, at some passage or other."""
        share = self.chance.choice((100, 100, 30, 10))
        what = self.chance.random()
        if what < 0.75:
            return f"{share}%return(abort)"
        return f"{share}%1*{'pause' if what < 0.85 else f'return({self.chance.choice(ERRORS)})'}"

    def end(self) -> None:
        """An undisturbed recovery; then everything is removed."""
        self.ledger.unlink(missing_ok=True)
        command = [str(driver("failpoints")), "read", *words(life=LIVES + 1, **self.shape)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIFE_SECONDS, check=False)
        if not self.judge.follow(ledger.read(self.ledger)) or done.returncode != 0:
            self.count.verdict.blame("lost", 1, f"{self.judge.name}: recovery ended with {done.stderr}")
        shutil.rmtree(self.path)


def torment(seed: int, seconds: float) -> Count:
    """Lives under every point in turn, until each has fired often enough or the time is over."""
    count, stop = Count(), time.monotonic() + seconds
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bascule-points-")))
        try:
            mounted = stack.enter_context(volume.volume("ext4", 64))
        except SkippedError:
            mounted = None  # kills alone then; the figure says so
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
    """Die everywhere."""
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
