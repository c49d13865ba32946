"""`python -m tests.checker FILE...`: judge stored histories; 1 if one has an anomaly or proves nothing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.checker import History, check


def main() -> int:
    """Print one verdict per file."""
    parser = argparse.ArgumentParser(prog="python -m tests.checker", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a history, one JSON object a line")
    failed = False
    for path in parser.parse_args().files:
        verdict = check(History.load(path))
        failed |= not verdict.passed or bool(verdict.vacuous)
        print(f"{path}: {verdict}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
