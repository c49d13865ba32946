"""S3: thousands of power cuts of the engine during writes, on ext4 and xfs.

One filesystem per kind stays in use; a directory has many runs, so that a returning batch of an earlier run is
detected. Each run recovers, writes its findings to the ledger, and appends to several logs, with or without the
journal, until the cut: in half of the cases a random subset of dirty pages is first written back in random order; then
the filesystem is shut down with its journal flushed or not; the process is killed; the filesystem is mounted again.
Some cuts happen during recovery.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

from tests.torture import ledger, volume
from tests.torture.driver import arguments, driver
from tests.torture.result import Result, Scale

if TYPE_CHECKING:
    from pathlib import Path

ROW = "S3"
KINDS = ("ext4", "xfs")
CUTS = 5_000
"""Cuts at full scale, over both filesystems."""
SHORT_SECONDS = 50
LIVES = 25
"""Runs on one directory."""
IMAGE_MIB = 340
"""mkfs.xfs refuses less than 300."""
FIRST_SEED = 1


class Directory:
    """A directory of logs on a volume, and its runs."""

    def __init__(self, mounted: volume.Volume, seed: int, verdict: ledger.Verdict, scratch: Path) -> None:
        self.volume = mounted
        self.chance = random.Random(seed)
        self.path = mounted.path / f"logs-{seed}"
        self.path.mkdir()
        self.ledger = scratch / f"ledger-{seed}"
        self.shape = {
            "dir": self.path,
            "ledger": self.ledger,
            "seed": seed,
            "partitions": self.chance.choice((1, 2, 3, 8)),
            "in_flight": self.chance.choice((1, 4, 64, 512)),
            "segment": self.chance.choice((8 << 10, 64 << 10, 256 << 10)),
            "ahead": self.chance.choice((0, 64 << 10, 1 << 20)),
            "journal": self.chance.choice((0, 1, 2)),
            "journal_bytes": self.chance.choice((16 << 10, 256 << 10)),
            "journal_files": self.chance.choice((2, 4)),
            "retain": self.chance.choice((0, 0, 300 << 10)),
        }
        self.judge = ledger.Judge(verdict, f"{mounted.kind}, seed {seed}", retains=bool(self.shape["retain"]))

    def live(self, number: int) -> bool:
        """One run: recover, append, power cut. `False` = it cannot be checked, and the directory is not used again."""
        command = self._command("live", number)
        if self.chance.random() < 0.1:
            command += [f"batches={self.chance.randint(1, 60)}", "close=1"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            lengths = self._cut(process)
        entries = ledger.before_cut(self.ledger, *lengths)
        self.volume.remount()
        if entries is not None:
            self.judge.follow(entries)
        return entries is not None

    def end(self, number: int) -> None:
        """A last recovery without faults; then everything is removed."""
        done = subprocess.run(self._command("read", number), capture_output=True, text=True, timeout=60, check=False)
        entries = ledger.read(self.ledger)
        if not self.judge.follow(entries) or done.returncode != 0:
            self.judge.verdict.blame("lost", 1, f"{self.judge.name}: recovery ended with {done.stderr}")
        self.remove()

    def remove(self) -> None:
        """Free space on the volume."""
        shutil.rmtree(self.path)
        self.ledger.unlink(missing_ok=True)

    def _command(self, command: str, number: int) -> list[str]:
        self.ledger.unlink(missing_ok=True)
        self.judge.name = f"{self.volume.kind}, seed {self.shape['seed']}, run {number}"
        return arguments(command, run_id=number, **self.shape)

    def _cut(self, process: subprocess.Popen[bytes]) -> tuple[int, int]:
        """Cut the power at a random time. Returns the sizes of the ledger just before and after."""
        chance = self.chance
        time.sleep(chance.uniform(0, 0.008) if chance.random() < 0.2 else chance.uniform(0.006, 0.04))
        if chance.random() < 0.5:
            self.volume.write_back(chance, f"{self.path.name}/**/*")
        before = ledger.length(self.ledger)
        self.volume.cut(chance.choice((volume.FLUSH_JOURNAL, volume.FLUSH_NOTHING)))
        after = ledger.length(self.ledger)
        process.kill()
        process.wait()
        return before, after


def cut_often(kind: str, cuts: int, seconds: float, verdict: ledger.Verdict, seed: int) -> int:
    """Cut until the number of cuts or the time is reached. Returns the number of cuts."""
    done, stop = 0, time.monotonic() + seconds
    with volume.volume(kind, IMAGE_MIB) as mounted:
        while done < cuts and time.monotonic() < stop and len(verdict.details) < 10:
            directory, judged = Directory(mounted, seed, verdict, mounted.path.parent), True
            for life in range(1, LIVES + 1):
                judged = directory.live(life)
                done += judged
                if not judged or done >= cuts or time.monotonic() >= stop:
                    break
            if judged:
                directory.end(LIVES + 1)
            else:
                directory.remove()
            seed += 1
    return done


def run(scale: Scale) -> Result:
    """Cut the power of both filesystems."""
    for kind in KINDS:
        volume.require(kind)
    driver()
    verdict = ledger.Verdict()
    full = scale is Scale.FULL
    cuts = 0
    for kind in KINDS:
        limit = CUTS // len(KINDS) if full else CUTS
        seconds = 24 * 3600 if full else SHORT_SECONDS / len(KINDS)
        seed = FIRST_SEED if full else time.time_ns() % 1_000_000
        cuts += cut_often(kind, limit, seconds, verdict, seed)
    for detail in verdict.details:
        print(detail)
    bar = CUTS if full else 200
    return Result(
        row=ROW,
        title="engine power cuts with random write-back, ext4 and xfs",
        figure=f"lost {verdict.lost}, wrong {verdict.wrong}, resurfaced {verdict.resurfaced} in {cuts:,} cuts "
        f"({verdict.acked:,} records acked)",
        bar=f"0, 0, 0 in {bar:,} cuts",
        passed=verdict.clean and cuts >= bar and verdict.acked > cuts,
        numbers={
            "cuts": cuts,
            "acked": verdict.acked,
            "recoveries": verdict.recoveries,
            "lost": verdict.lost,
            "wrong": verdict.wrong,
            "resurfaced": verdict.resurfaced,
        },
    )
