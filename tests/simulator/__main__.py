"""`python -m tests.simulator SEED`: one seed with its trace; `--seeds N [--first F]`: many, without."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulator.native import plant
from tests.simulator.run import run_seed
from tests.simulator.sometimes import missing


def main() -> int:
    """The exit code: 1 if a seed has a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("seed", nargs="?", type=int, help="one seed, with its trace")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="so many seeds")
    parser.add_argument("--first", type=int, default=0, metavar="F", help="the first of them")
    parser.add_argument("--digests", action="store_true", help="print the digest of each seed")
    parser.add_argument("--planted", type=int, default=0, metavar="N", help="with planted bug N alive")
    parser.add_argument("--follower", action="store_true", help="logs also do what a follower does")
    arguments = parser.parse_args()
    plant(arguments.planted)
    if arguments.seed is not None:
        outcome = run_seed(arguments.seed, traced=True, follower=arguments.follower)
        print("\n".join(outcome.trace))
        print(f"seed {outcome.seed}: {outcome.events} events, digest {outcome.digest}")
        return int(bool(outcome.violation))
    started, events, failed = time.monotonic(), 0, 0
    reached: Counter[str] = Counter()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        outcome = run_seed(seed, follower=arguments.follower)
        events += outcome.events + outcome.operations
        reached += outcome.reached
        if arguments.digests:
            print(f"{seed} {outcome.digest}")
        if outcome.violation:
            failed += 1
            print(f"seed {seed}: {outcome.violation}", flush=True)
    seconds = time.monotonic() - started
    print(f"{arguments.seeds} seeds, {events:,} events in {seconds:.1f} s, {failed} with a violation", file=sys.stderr)
    print(f"never met: {missing(reached, follower=arguments.follower)}", file=sys.stderr)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
