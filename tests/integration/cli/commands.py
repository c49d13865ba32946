"""Runs commands as separate processes and returns their output and exit code."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """The result of a command."""

    code: int
    out: str
    err: str


def run(
    *arguments: str,
    stdin: str = "",
    module: str = "bascule.cli",
    url: str = "",
    cwd: Path | None = None,
    limit: float = 60,
) -> Ended:
    """Run a command and wait for its end."""
    ended = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit,
        cwd=cwd,
        env=environment(url),
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def environment(url: str = "") -> Mapping[str, str]:
    """The environment of a command: without variables of Bascule except the broker's URL."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("BASCULE_", "LIFTBRIDGE_"))}
    return {
        **kept,
        "COLUMNS": "160",
        "BASCULE_CONTEXTS": "/nowhere/contexts.yaml",
        **({"BASCULE_URL": url} if url else {}),
    }
