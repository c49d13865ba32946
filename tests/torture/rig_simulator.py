"""S17: the log engine over a simulated disk, one seed one schedule; violations are replayed twice, in new processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from tests.torture.result import Result, Scale, SkippedError

if TYPE_CHECKING:
    from tests.simulator.run import Outcome

ROW = "S17"
REPOSITORY = Path(__file__).resolve().parents[2]
SECONDS = 3_600
"""Wall time at full scale; `SIMULATOR_SECONDS` overrides."""
SHORT_SEEDS = 4_000
"""Number of seeds at short scale, always the same ones."""
CHUNK = 100
"""Number of seeds that a worker runs at a time."""
REPLAYED = 500
"""One seed in so many is replayed although it has no violation."""
FOLLOWED = 4
"""In one seed of so many, logs also do what a follower does."""
ENOUGH = 2_000
"""Number of seeds in which every rare situation must occur."""


@dataclass
class Tally:
    """The result of many seeds."""

    seeds: int = 0
    events: int = 0
    hours: float = 0.0
    violations: list[str] = field(default_factory=list[str])
    replays: dict[int, str] = field(default_factory=dict[int, str])
    """Digests of the seeds to replay."""
    reached: Counter[str] = field(default_factory=Counter[str])

    def add(self, outcome: Outcome) -> None:
        """Count one seed."""
        self.seeds += 1
        self.events += outcome.events + outcome.operations
        self.hours += outcome.simulated_ns / 3.6e12
        self.reached += outcome.reached
        if outcome.violation:
            how = " --follower" if follows(outcome.seed) else ""
            self.violations.append(f"seed {outcome.seed}{how}: {outcome.violation}")
        if outcome.violation or outcome.seed % REPLAYED == 0:
            self.replays[outcome.seed] = outcome.digest


def follows(seed: int) -> bool:
    """Whether the logs of this seed also do what a follower does."""
    return seed % FOLLOWED == FOLLOWED - 1


def chunk(first: int) -> Tally:
    """A worker's share."""
    from tests.simulator.run import run_seed  # noqa: PLC0415 -- missing if the module is not built

    tally = Tally()
    for seed in range(first, first + CHUNK):
        tally.add(run_seed(seed, follower=follows(seed)))
    return tally


def merge(whole: Tally, part: Tally) -> None:
    """Add a worker's share."""
    whole.seeds += part.seeds
    whole.events += part.events
    whole.hours += part.hours
    whole.violations += part.violations
    whole.replays |= part.replays
    whole.reached += part.reached


def replay(seed: int) -> str:
    """The digest of a seed in a new process."""
    command = [sys.executable, "-m", "tests.simulator", "--seeds", "1", "--first", str(seed), "--digests"]
    command += ["--follower"] if follows(seed) else []
    done = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    return done.stdout.split("\n", 1)[0].removeprefix(f"{seed} ")


def run(scale: Scale) -> Result:
    """Run as many seeds as fit into the time; the first ones are always the same."""
    try:
        from tests.simulator.sometimes import missing  # noqa: PLC0415 -- missing if the module is not built

        chunk(0)
    except ImportError as absent:
        raise SkippedError(str(absent)) from absent
    deadline = time.monotonic() + float(os.environ.get("SIMULATOR_SECONDS", SECONDS))
    whole, first = Tally(), 0
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        while time.monotonic() < deadline if scale is Scale.FULL else first < SHORT_SEEDS:
            for part in pool.map(chunk, range(first, first + workers * CHUNK, CHUNK)):
                merge(whole, part)
            first += workers * CHUNK
    same = sum(replay(seed) == replay(seed) == digest for seed, digest in whole.replays.items())
    never = missing(whole.reached, follower=True) if whole.seeds >= ENOUGH else []
    for line in [*whole.violations[:20], *(f"never met: {situation}" for situation in never)]:
        print(line)
    least = 100_000 if scale is Scale.FULL else 100
    passed = not whole.violations and not never and same == len(whole.replays)
    return Result(
        row=ROW,
        title="log engine over a simulated disk: seeds",
        figure=(
            f"{whole.seeds:,} seeds, {whole.events:,} events, {whole.hours:,.0f} simulated hours; "
            f"{len(whole.violations)} violations; {same} of {len(whole.replays)} replays identical; "
            f"{len(never)} situations never met"
        ),
        bar=f"at least {least:,} seeds; 0 violations; all replays identical; all situations met",
        passed=passed and whole.seeds >= least,
        numbers={
            "seeds": whole.seeds,
            "events": whole.events,
            "simulated_hours": round(whole.hours, 1),
            "violations": len(whole.violations),
            "replays": len(whole.replays),
            "identical": same,
            "never_met": len(never),
        },
    )
