"""S11: the last 64 KiB of a log are cut at every byte, zeroed from every byte on, and overwritten sector by sector.

Each recovery must keep exactly the batches before the tear; a second one must find the same and truncate nothing; and
after further appends, nothing after the tear may come back. `bascule-rig torn` does all this in one process.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

from tests.torture.driver import arguments
from tests.torture.result import Result, Scale
from tests.torture.volume import image_home

ROW = "S11"
TAIL = 64 << 10
SHORT_STEP = 48
"""Step in bytes at short scale, from a random start."""
SECONDS = 3600


def tear(seed: int, step: int, home: Path) -> tuple[dict[str, tuple[int, int]], list[str]]:
    """Tears of each kind, (times, exact), and the failures as text."""
    command = arguments("torn", dir=home, bytes=TAIL, seed=seed, step=step)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode != 0:
        return {}, [f"seed {seed}: {done.stderr}"]
    counts: dict[str, tuple[int, int]] = {}
    failures: list[str] = []
    for line in done.stdout.splitlines():
        match line.split():
            case [what, times, exact] if times.isdigit() and exact.isdigit():
                counts[what] = (int(times), int(exact))
            case _:
                failures.append(line)
    return counts, failures


def run(scale: Scale) -> Result:
    """Tear one log at every byte (full), or many logs at some bytes."""
    full = scale is Scale.FULL
    seed, step = (1, 1) if full else (time.time_ns() % 1_000_000, SHORT_STEP)
    with tempfile.TemporaryDirectory(prefix="bascule-torn-", dir=image_home(16)) as home:
        counts, failures = tear(seed, step, Path(home))
    for failure in failures:
        print(failure)
    cuts, exact = counts.get("truncated", (0, 0))
    others = [count for what, count in counts.items() if what != "truncated"]
    other, other_exact = sum(times for times, _ in others), sum(good for _, good in others)
    bar = TAIL if full else TAIL // SHORT_STEP
    return Result(
        row=ROW,
        title="torn tail at every byte of the last 64 KiB",
        figure=f"{exact:,} exact prefixes of {cuts:,} cuts; {other_exact:,} of {other:,} zeroed or overwritten tails",
        bar=f"{bar:,} of {bar:,}; all",
        passed=cuts >= bar and exact == cuts and other_exact == other > 0 and not failures,
        numbers={"cuts": cuts, "exact": exact, "overwritten": other, "overwritten_exact": other_exact},
    )
