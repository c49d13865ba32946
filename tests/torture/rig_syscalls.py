"""S12: every system call of a real process is made to fail once, with every error it can have.

A preloaded library counts the calls of a kind on the data path and fails the n-th one, once or permanently. Each run
appends to three logs with rolls, the journal, retention, checkpoints and a clean end. A run passes if the process
neither crashes nor hangs; a failed sync is reported before anything else, and nothing is acked after a reported
failure; a temporary lack of space or descriptors is survived; acked records can be read while writes fail; and a run
without faults finds all acked records, and otherwise only a prefix of the sent ones.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.torture import ledger
from tests.torture.driver import arguments, driver, shim
from tests.torture.ledger import Entry, Kind
from tests.torture.result import Result, Scale
from tests.torture.volume import image_home

ROW = "S12"
SHORT_SECONDS = 30
HANG_SECONDS = 60
SHAPE = {
    "partitions": 3,
    "segment": 12 << 10,
    "ahead": 16 << 10,
    "retain": 60 << 10,
    "in_flight": 4,
    "journal": 1,
    "journal_bytes": 16 << 10,
    "journal_files": 2,
}
"""A small journal, so that it becomes full and is reused; while it is full, rounds sync directly."""
BATCHES = 50
PASSING = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE}
"""Transient errors, except for a sync."""
ERRORS = {
    "open": (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.ENFILE),
    "write": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    "sync": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS),
    "rename": (errno.EIO, errno.ENOSPC, errno.EROFS),
    "unlink": (errno.EIO, errno.EROFS),
    "truncate": (errno.EIO, errno.EROFS),
    "mkdir": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS),
}


class Site(NamedTuple):
    """One call that fails in a new run."""

    stage: str
    """`create`: the logs are new; `reopen`: an earlier run was killed."""
    kind: str
    number: int
    """Which call of that kind, from 1."""
    error: int
    for_good: bool
    """Whether all later ones also fail."""

    def __str__(self) -> str:
        """As text: `reopen: sync 17 EIO once`."""
        return (
            f"{self.stage}: {self.kind} {self.number} {errno.errorcode[self.error]} "
            f"{'for good' if self.for_good else 'once'}"
        )


@dataclass
class Count:
    """The results of the sites."""

    sites: int = 0
    survived: int = 0
    fired: int = 0
    acks_after_failure: int = 0
    failures: list[str] = field(default_factory=list[str])


class Bench:
    """A directory for runs, with the calls of a run without faults."""

    def __init__(self, home: Path, stage: str, seed: int) -> None:
        self.home, self.stage, self.seed = home, stage, seed
        self.data = home / "data"
        self.template = home / f"template-{stage}"
        self.ledger = home / "ledger"
        self.entries: list[Entry] = []
        """The ledger of the earlier run."""
        self.template.mkdir()
        self.run_id = 1
        if stage == "reopen":
            self._fresh()
            self._run("live", 1, {}, batches=BATCHES)
            self.entries = ledger.read(self.ledger)
            self.template.rmdir()
            shutil.copytree(self.data, self.template)
            self.run_id = 2

    def calls(self) -> dict[str, int]:
        """Number of calls of each kind in a run without faults."""
        self._fresh()
        counts = self.home / "counts"
        counts.unlink(missing_ok=True)
        self._run("live", self.run_id, {"SHIM_COUNTS": str(counts)}, batches=BATCHES, close=1)
        lines = (line.split() for line in counts.read_text().splitlines())
        return {kind: int(number) for kind, number in lines}

    def attempt(self, site: Site, *, half: bool) -> tuple[str | None, list[Entry]]:
        """Run with the failing site, then recover without faults. Returns the error, and the ledger of the run."""
        self._fresh()
        times = 0 if site.for_good else 1
        faults = {"SHIM_FAIL": f"{site.kind}:{site.number}:{site.error}:{times}", "SHIM_HALF": "1" if half else "0"}
        patience = {"patience_ms": 60} if site.for_good else {}
        trouble = self._run("live", self.run_id, faults, batches=BATCHES, close=1, **patience)
        entries = ledger.read(self.ledger)
        if trouble is None:
            trouble = disobeyed(site, entries)
        self.ledger.unlink(missing_ok=True)
        broken = self._run("read", self.run_id + 1, {})
        verdict = ledger.Verdict()
        judge = ledger.Judge(verdict, str(site))
        judge.follow(self.entries)
        judge.follow(entries, faulted=True)
        ready = judge.follow(ledger.read(self.ledger))
        if trouble is None and (broken or not ready):
            trouble = f"not recovered after healing: {broken}"
        if trouble is None and not verdict.clean:
            trouble = "; ".join(verdict.details)
        return trouble, entries

    def _fresh(self) -> None:
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(self.template, self.data)
        self.ledger.unlink(missing_ok=True)

    def _run(self, command: str, run_id: int, faults: dict[str, str], **shape: int) -> str | None:
        """One run with the shim. Returns what is wrong with its end."""
        line = arguments(command, dir=self.data, ledger=self.ledger, run_id=run_id, seed=self.seed, **SHAPE, **shape)
        environment = os.environ | {
            "LD_PRELOAD": str(shim()),
            "SHIM_PATH": f"{self.data}/",
            "SHIM_LEDGER": str(self.ledger),
            **faults,
        }
        try:
            done = subprocess.run(
                line, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return "it hangs"
        refused = done.returncode == 1 and faults
        if done.returncode != 0 and not refused:
            return f"it ends with {done.returncode}: {done.stderr.strip()[-300:]}"
        if "panicked" in done.stderr or "have no answer" in done.stderr:
            return done.stderr.strip()[-300:]
        return None


def disobeyed(site: Site, entries: list[Entry]) -> str | None:
    """The violations of a run after a call had failed."""
    at = next((i for i, entry in enumerate(entries) if entry.kind == Kind.FAULT), None)
    if at is None:
        return None
    after = entries[at + 1 :]
    if late := late_acks(site, entries[at], after):
        return f"{late} acks after the directory had failed"
    if site.kind == "sync" and (trouble := unreported(entries[at], entries)):
        return trouble
    unread = {Kind.WRONG} if site.kind == "open" else {Kind.WRONG, Kind.UNREAD}
    if any(entry.kind in unread for entry in entries):
        return "acked records cannot be read"
    ended = any(entry.kind == Kind.ENDED for entry in after)
    failed = any(entry.kind in {Kind.UNCERTAIN, Kind.COMMIT_FAILED} for entry in after)
    passes = site.error in PASSING and site.kind != "sync" and not site.for_good
    recovering = not any(entry.kind == Kind.READY for entry in entries[:at])
    if passes and not recovering and (failed or not ended):
        return "it did not resume after a temporary lack"
    return None


def late_acks(site: Site, fault: Entry, after: list[Entry]) -> int:
    """Forbidden acks: all after a failed sync of the acking thread, and all after a reported failure.

    Between the return of a failed call and the next instruction of its thread, another thread may do anything. So a
    thread must report the failure before anything else (see `unreported`); from then on nothing is acked, whichever
    call failed the directory.
    """
    kinds = [entry.kind for entry in after]
    if site.kind != "sync" or fault.run_id != 1:
        kinds = kinds[kinds.index(Kind.FAILED) :] if Kind.FAILED in kinds else []
    return kinds.count(Kind.ACKED)


def unreported(fault: Entry, entries: list[Entry]) -> str | None:
    """Why a failed sync was not reported by its thread before anything else."""
    failed = next((i for i, entry in enumerate(entries) if entry.kind == Kind.FAILED), None)
    if failed is None:
        # Failures before there is a coordinator are returned to the caller.
        refused = any(entry.kind == Kind.RECOVERY_FAILED for entry in entries)
        return None if refused else "a failed sync was not reported"
    before = entries[:failed]
    if any(entry.kind == Kind.WENT_ON and entry.extra == fault.extra for entry in before):
        return "a thread went on after its failed sync before it was made known"
    return None


def sites(stage: str, calls: dict[str, int]) -> list[Site]:
    """Every call of a run with every error."""
    return [
        Site(stage, kind, number, error, for_good)
        for kind, errors in ERRORS.items()
        for number in range(1, calls[kind] + 1)
        for error in errors
        for for_good in (False, True)
    ]


def torment(seed: int, seconds: float | None) -> Count:
    """Fail every site once, or as many random ones as fit the time."""
    count, stop = Count(), time.monotonic() + (seconds or 1e9)
    with tempfile.TemporaryDirectory(prefix="bascule-sites-", dir=image_home(64)) as home:
        benches = {stage: Bench(Path(home), stage, seed) for stage in ("create", "reopen")}
        chosen = [site for stage, bench in benches.items() for site in sites(stage, bench.calls())]
        if seconds is not None:
            random.Random(seed).shuffle(chosen)
        for number, site in enumerate(chosen):
            if time.monotonic() > stop:
                break
            trouble, entries = benches[site.stage].attempt(site, half=number % 2 == 1)
            count.sites += 1
            fault = next((i for i, entry in enumerate(entries) if entry.kind == Kind.FAULT), None)
            if fault is not None:
                count.fired += 1
                count.acks_after_failure += late_acks(site, entries[fault], entries[fault + 1 :])
            if trouble is None:
                count.survived += 1
            elif len(count.failures) < 50:
                count.failures.append(f"{site} (seed {seed}): {trouble}")
    return count


def run(scale: Scale) -> Result:
    """Fail every call."""
    driver()
    shim()
    full = scale is Scale.FULL
    seed = 1 if full else time.time_ns() % 1_000_000
    count = torment(seed, None if full else SHORT_SECONDS)
    for failure in count.failures:
        print(failure)
    return Result(
        row=ROW,
        title="errors at every write, sync, open, rename, unlink, truncate and mkdir",
        figure=f"{count.survived:,} of {count.sites:,} sites survived ({count.fired:,} fired); "
        f"{count.acks_after_failure} acks after a failure",
        bar="100 %; 0",
        passed=count.survived == count.sites and count.acks_after_failure == 0 and count.fired > 0.9 * count.sites,
        numbers={
            "sites": count.sites,
            "survived": count.survived,
            "fired": count.fired,
            "acks_after_failure": count.acks_after_failure,
        },
    )
