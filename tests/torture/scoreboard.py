"""Writes `docs/reliability.md` from the results in `docs/reliability/`, which has only rigs that were run.

`python -m tests.torture.scoreboard` writes the page; `--check` fails if the page does not match the results.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
RESULTS = REPOSITORY / "docs" / "reliability"
PAGE = REPOSITORY / "docs" / "reliability.md"
HEAD = """\
# Results of fault injection

This page lists the faults that were injected into the log engine and a single broker, how often, and with which result.
Each row is one rig under `tests/torture`. `make torture ROWS="S3 S11"` runs rigs again and writes their rows. A rig
without a row was not run.

| Row | Fault | Result | Bar | Met | Took | Run on |
|---|---|---|---|---|---|---|
"""


def by_row(path: Path) -> tuple[int, str]:
    """Sort key of rows: S3 before S11, S15 before S15-connections."""
    number = re.match(r"S(\d+)", path.stem)
    return (int(number[1]) if number else sys.maxsize, path.stem)


def duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def page() -> str:
    """The page from the results."""
    lines = [HEAD]
    machines: dict[str, list[str]] = {}
    for path in sorted(RESULTS.glob("*.json"), key=by_row):
        row = json.loads(path.read_text())
        met = "yes" if row["passed"] else "**no**"
        lines.append(
            f"| {row['row']} | {row['title']} | {row['figure']} | {row['bar']} | {met} | {duration(row['seconds'])} "
            f"| {row['date']}, {row['version']} ({row['commit']}) |\n"
        )
        machines.setdefault(row["machine"], []).append(row["row"])
    lines.append("\n")
    for machine, rows in machines.items():
        lines.append(f"{', '.join(rows)}: {machine}.\n")
    lines.append("\nThe same figures, to be read by programs, are in `docs/reliability/<row>.json`.\n")
    return "".join(lines)


def main() -> int:
    """Write or check the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.scoreboard", description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; 1 when the page is out of date")
    if parser.parse_args().check:
        return int(not PAGE.exists() or PAGE.read_text() != page())
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
