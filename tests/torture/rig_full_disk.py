"""S12, on real disks that become full or read-only (F11, F17).

A small filesystem is filled almost completely; the engine writes until it gets an error, and must still be able to
read. In half of the runs space is freed, and the same process must resume automatically; otherwise the power is cut
while the disk is full, and recovery runs on the full disk and again with space. For F17 the filesystem detects an
injected error and becomes read-only: writes fail permanently, reads continue, and after a remount all acked records
exist.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.torture import ledger, volume
from tests.torture.driver import arguments, driver
from tests.torture.ledger import Kind
from tests.torture.result import Result, Scale

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = "S12-full-disk"
KINDS = {"ext4": 48, "xfs": 340}
"""Filesystems and the MiB of their images."""
FULL_RUNS = 60
"""Number of runs of each of the three faults on each filesystem, at full scale."""
LEFT_BYTES = 3 << 20
"""Free space at the beginning of a run."""
SHAPE = {
    "partitions": 3,
    "segment": 64 << 10,
    "ahead": 64 << 10,
    "in_flight": 16,
    "journal": 1,
    "journal_bytes": 256 << 10,
}
BATCHES = 3000
"""More batches than fit."""
LIMIT_SECONDS = 60


@dataclass
class Count:
    """Number of runs, and their errors."""

    runs: int = 0
    survived: int = 0
    failures: list[str] = field(default_factory=list[str])


class Run:
    """One directory on a volume and one fault."""

    def __init__(self, mounted: volume.Volume, seed: int) -> None:
        self.volume, self.seed = mounted, seed
        self.chance = random.Random(seed)
        # A new name for each run: the removal of the previous directory may be lost with the power.
        self.data, self.balloon = mounted.path / f"data-{time.monotonic_ns()}", mounted.path / "balloon"
        self.ledger = mounted.path.parent / "ledger"
        self.verdict = ledger.Verdict()
        self.judge = ledger.Judge(self.verdict, f"{mounted.kind}, seed {seed}", retains=False)

    def passes(self) -> str | None:
        """The disk is full temporarily."""
        with self._writer() as process:
            if trouble := self._await(process, Kind.REFUSED):
                return trouble
            time.sleep(self.chance.uniform(0, 0.1))
            self.balloon.unlink()
            code = process.wait(LIMIT_SECONDS)
        entries = ledger.read(self.ledger)
        self.judge.follow(entries)
        kinds = {entry.kind for entry in entries}
        if code != 0 or Kind.RESUMED not in kinds or kinds & {Kind.UNCERTAIN, Kind.COMMIT_FAILED}:
            return f"it did not resume when space was free again (exit code {code})"
        return self._recovers() or self._verdict(kinds)

    def cut_while_full(self) -> str | None:
        """A power cut while the disk is full; the first recovery also has no space."""
        with self._writer() as process:
            if trouble := self._await(process, Kind.REFUSED):
                return trouble
            before = ledger.length(self.ledger)
            self.volume.cut(self.chance.choice((volume.FLUSH_JOURNAL, volume.FLUSH_NOTHING)))
            after = ledger.length(self.ledger)
            process.kill()
            process.wait()
        entries = ledger.before_cut(self.ledger, before, after) or []
        self.judge.follow(entries)
        self.volume.remount()
        self.ledger.unlink()
        if trouble := self._read(2, refusal_is_fine=True):
            return trouble
        self.judge.follow(ledger.read(self.ledger), faulted=True)
        self.balloon.unlink()
        return self._recovers() or self._verdict({entry.kind for entry in entries})

    def turns_read_only(self) -> str | None:
        """The filesystem detects an error."""
        trigger = Path("/sys/fs/ext4", Path(self.volume.device).name, "trigger_fs_error")
        with self._writer(crowded=False) as process:
            time.sleep(self.chance.uniform(0.02, 0.2))
            before = ledger.length(self.ledger)
            trigger.write_text("1")
            after = ledger.length(self.ledger)
            try:
                code = process.wait(LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
        entries = ledger.read(self.ledger)
        # Like a power cut: the filesystem's journal is lost, and a running sync may report success.
        surviving = ledger.before_cut(self.ledger, before, after)
        self.volume.remount()
        if surviving is None:
            return None  # nothing had been written yet
        self.judge.follow(surviving)
        kinds = {entry.kind for entry in entries}
        if Kind.READY in kinds and not kinds & {Kind.UNCERTAIN, Kind.COMMIT_FAILED, Kind.READ_WHILE_REFUSED}:
            return f"it did not notice (exit code {code})"
        return self._recovers() or self._verdict(kinds)

    def _verdict(self, kinds: set[int]) -> str | None:
        if Kind.UNREAD in kinds or Kind.WRONG in kinds:
            return "acked records cannot be read while writes are refused"
        return None if self.verdict.clean else "; ".join(self.verdict.details)

    def _writer(self, *, crowded: bool = True) -> subprocess.Popen[bytes]:
        self.ledger.unlink(missing_ok=True)
        for old in self.volume.path.glob("data-*"):
            shutil.rmtree(old)
        self.balloon.unlink(missing_ok=True)
        self.data.mkdir()
        if crowded:
            free = shutil.disk_usage(self.volume.path).free
            with self.balloon.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, max(free - LEFT_BYTES, 1))
        batches = BATCHES if crowded else 0  # 0: it runs until it gets an error, so the fault occurs during writes
        command = arguments("live", dir=self.data, ledger=self.ledger, seed=self.seed, batches=batches, **SHAPE)
        return subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def _await(self, process: subprocess.Popen[bytes], kind: Kind) -> str | None:
        limit = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < limit:
            if any(entry.kind == kind for entry in ledger.read(self.ledger)):
                return None
            if (code := process.poll()) is not None:
                return f"it ended with {code} before {kind.name}"
            time.sleep(0.02)
        process.kill()
        return f"no {kind.name} came"

    def _read(self, run_id: int, *, refusal_is_fine: bool) -> str | None:
        command = arguments("read", dir=self.data, ledger=self.ledger, run_id=run_id, **SHAPE)
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        fine = {0, 1} if refusal_is_fine else {0}
        return None if done.returncode in fine else f"recovery ended with {done.returncode}: {done.stderr}"

    def _recovers(self) -> str | None:
        self.ledger.unlink(missing_ok=True)
        if trouble := self._read(3, refusal_is_fine=False):
            return trouble
        self.judge.follow(ledger.read(self.ledger))
        return None


FAULTS: dict[str, tuple[Callable[[Run], str | None], tuple[str, ...]]] = {
    "full for a while": (Run.passes, ("ext4", "xfs")),
    "power cut while full": (Run.cut_while_full, ("ext4", "xfs")),
    "turns read-only": (Run.turns_read_only, ("ext4",)),
}
"""Each fault and the filesystems that can have it."""


def torment(kind: str, runs: int, seed: int, count: Count) -> None:
    """Run every fault the given number of times on one filesystem."""
    options = "errors=remount-ro" if kind == "ext4" else ""
    with volume.volume(kind, KINDS[kind], options=options) as mounted:
        for number in range(runs):
            for name, (fault, kinds) in FAULTS.items():
                if kind not in kinds:
                    continue
                trouble = fault(Run(mounted, seed + number))
                count.runs += 1
                count.survived += trouble is None
                if trouble:
                    count.failures.append(f"{kind}, {name}, seed {seed + number}: {trouble}")


def run(scale: Scale) -> Result:
    """Fill the disks."""
    for kind in KINDS:
        volume.require(kind)
    driver()
    full = scale is Scale.FULL
    runs, seed = (FULL_RUNS, 1) if full else (1, time.time_ns() % 1_000_000)
    count = Count()
    for kind in KINDS:
        torment(kind, runs, seed, count)
    for failure in count.failures:
        print(failure)
    return Result(
        row=ROW,
        title="full and read-only filesystems, ext4 and xfs, with power cuts while full",
        figure=f"{count.survived} of {count.runs} runs survived",
        bar="all",
        passed=count.survived == count.runs > 0,
        numbers={"runs": count.runs, "survived": count.survived},
    )
