"""Find the code blocks in the pages, and run their command lines."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "specs").rglob("*.md")])


class Snippet(NamedTuple):
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str


def snippets(path: Path, language: str = "") -> list[Snippet]:
    """The blocks of a page, in order; of one language when it is given."""
    text = path.read_text()
    found = [
        Snippet(
            path.relative_to(ROOT).as_posix(),
            text.count("\n", 0, match.start()) + 1,
            match[2],
            textwrap.dedent(match[3]),
        )
        for match in re.finditer(r"^( *)```(\w*)\n(.*?)^\1```$", text, re.DOTALL | re.MULTILINE)
    ]
    return [snippet for snippet in found if language in {"", snippet.language}]


def commands(snippet: Snippet) -> list[str]:
    """The command lines of a shell block, without comments."""
    joined = snippet.text.replace("\\\n", " ")
    return [line.split("  #")[0].strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]


def shell(line: str, cwd: Path, variables: Mapping[str, str]) -> str:
    """Run a command line of a page with the programs of this environment, and return its output; it must succeed."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ended = subprocess.run(
        ["bash", "-c", line],
        cwd=cwd,
        env={**os.environ, **variables, "PATH": programs},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert ended.returncode == 0, f"{line}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout
