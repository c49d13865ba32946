"""S18: planted bugs are found, each by the simulator or by a test; without them nothing is found."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

from tests.torture.result import Result, Scale, SkippedError

ROW = "S18"
REPOSITORY = Path(__file__).resolve().parents[2]
PLANTED = REPOSITORY / "target" / "sim-planted"
SIMULATED = {
    1: "ack before sync",
    2: "sync result ignored",
    3: "sync retried after an error",
    4: "directory not synced after a roll",
    5: "tail not cut",
    6: "chain not checked",
    7: "fields used although the header's checksum does not match",
    8: "damage treated as a torn tail",
    9: "index trusted over the log",
    10: "high watermark of the checkpoint trusted over the log",
    26: "files taken and deleted for another incarnation",
}
"""Bugs found by the simulator."""
MOST = {Scale.SHORT: 1_500, Scale.FULL: 2_000}
"""Number of seeds after which a bug counts as missed."""
STARTS = {Scale.SHORT: (0,), Scale.FULL: (0, 10_000, 20_000, 30_000, 40_000)}
"""First seeds of independent searches."""
BOMB_MIB = 512
BOMB_ALLOWED_MIB = 64
ACK_TEST = "acks_are_withheld_from_other_inboxes_when_a_prefix_is_set"

SEARCH = """
import sys
from tests.simulator.native import plant
from tests.simulator.run import run_seed
plant(int(sys.argv[1]))
first, most = int(sys.argv[2]), int(sys.argv[3])
print(next((seed - first + 1 for seed in range(first, first + most) if run_seed(seed).violation), 0))
"""
BOMB = """
import sys
from pathlib import Path
from tests.simulator.native import plant, read_bomb

def peak_kib():  # of this program; the resource usage of a process begins with its parent's
    return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmHWM"))

plant(int(sys.argv[1]))
before = peak_kib()
read_bomb(int(sys.argv[2]))
print((peak_kib() - before) // 1024)
"""


def python(code: str, *arguments: object) -> int:
    """The number printed by a new process with the planted build."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = os.environ | {"BASCULE_SIM": str(PLANTED)}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, check=True, capture_output=True, text=True)
    return int(done.stdout)


def ack_test_passes(bug: int) -> bool:
    """Whether the broker's test of ack subjects passes with this bug active."""
    command = ["cargo", "test", "--quiet", "--locked", "--profile", "fast", "-p", "bascule-broker"]
    command += ["--features", "planted", "--test", "nats_acks", ACK_TEST]
    environment = os.environ | {"BASCULE_PLANTED": str(bug), "BASCULE_REQUIRE_NATS": "1"}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, check=False, capture_output=True, text=True)
    if "error: could not compile" in done.stderr:
        raise SkippedError(f"the broker does not build with planted bugs: {done.stderr[-500:]}")
    return done.returncode == 0


def run(scale: Scale) -> Result:
    """Every bug of a single node; number 28 needs a build of the broker and is left to the full run."""
    if not (PLANTED / "bascule_sim").is_dir():
        raise SkippedError(f"{PLANTED} has no module: run `make sim`")
    seeds = {bug: [python(SEARCH, bug, first, MOST[scale]) for first in STARTS[scale]] for bug in SIMULATED}
    caught = {bug for bug, counts in seeds.items() if all(counts)}
    longest = max((count for counts in seeds.values() for count in counts), default=0)
    false_alarms = sum(python(SEARCH, 0, first, max(longest, 200)) > 0 for first in STARTS[scale])
    if python(BOMB, 27, BOMB_MIB) > BOMB_ALLOWED_MIB >= python(BOMB, 0, BOMB_MIB):
        caught.add(27)
    planted = len(SIMULATED) + 1
    if scale is Scale.FULL:
        planted += 1
        if ack_test_passes(0) and not ack_test_passes(28):
            caught.add(28)
    medians = {bug: statistics.median(counts) for bug, counts in seeds.items() if bug in caught}
    for bug in sorted(set(SIMULATED) - caught):
        print(f"bug {bug} ({SIMULATED[bug]}) was not found in {MOST[scale]} seeds")
    slowest = max(medians.values(), default=0)
    middle = statistics.median(medians.values()) if medians else 0
    return Result(
        row=ROW,
        title="planted bugs of one node",
        figure=(
            f"{len(caught)} of {planted} caught; median {middle:g} seeds, slowest {slowest:g}; "
            f"{false_alarms} alarms without a bug"
        ),
        bar=f"{planted} of {planted} caught; median at most 2,000 seeds; 0 alarms without a bug",
        passed=len(caught) == planted and middle <= 2_000 and not false_alarms,
        numbers={"planted": planted, "caught": len(caught), "median_seeds": middle, "slowest_seeds": slowest}
        | {f"seeds_of_bug_{bug}": median for bug, median in medians.items()},
    )
