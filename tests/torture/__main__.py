"""`python -m tests.torture ROW... [--full]`: run rigs by the ids of their rows and store their results."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import importlib.metadata
import json
import os
import pkgutil
import platform
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tests.torture
from tests.torture.result import Result, Scale, SkippedError

if TYPE_CHECKING:
    from collections.abc import Callable

    Rig = Callable[[Scale], Result]

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "docs" / "reliability"


def rigs() -> dict[str, Rig]:
    """All rigs by row: the modules of this package named `rig_*` with `ROW` and `run(scale)`."""
    found: dict[str, Rig] = {}
    for module in pkgutil.iter_modules(tests.torture.__path__):
        if module.name.startswith("rig_"):
            rig = importlib.import_module(f"tests.torture.{module.name}")
            found[rig.ROW] = rig.run
    return dict(sorted(found.items()))


def keep(result: Result) -> None:
    """Write the result with its date, version, commit and machine."""
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=REPOSITORY, text=True)
    document = asdict(result) | {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "version": importlib.metadata.version("bascule"),
        "commit": commit.strip(),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release()}",
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{result.row}.json").write_text(json.dumps(document, indent=2) + "\n")


def main() -> int:
    """Run the given rows (all by default). Exit code 1 if one of them does not meet its bar."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows of the scoreboard; all by default")
    parser.add_argument("--full", action="store_true", help="as long as the scoreboard asks, and keep the result")
    arguments = parser.parse_args()
    known = rigs()
    if unknown := sorted(set(arguments.rows) - set(known)):
        parser.error(f"no rig for {', '.join(unknown)}; there are {', '.join(known)}")
    scale = Scale.FULL if arguments.full else Scale.SHORT
    failed = False
    for row in arguments.rows or known:
        started = time.monotonic()
        try:
            result = replace(known[row](scale), seconds=round(time.monotonic() - started, 1))
        except SkippedError as reason:
            print(f"{row}: SKIPPED: {reason}", flush=True)
            continue
        failed |= not result.passed
        print(
            f"{row}: {'pass' if result.passed else 'FAIL'}: {result.figure} (bar: {result.bar}; {result.seconds} s)",
            flush=True,
        )
        if arguments.full:
            keep(result)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
