"""Finding the code in our pages."""

import re
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
            path.relative_to(ROOT).as_posix(), text.count("\n", 0, match.start()) + 1, match.group(1), match.group(2)
        )
        for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    ]
    return [snippet for snippet in found if language in {"", snippet.language}]


def commands(snippet: Snippet) -> list[str]:
    """The command lines of a shell block, without comments."""
    joined = snippet.text.replace("\\\n", " ")
    return [line.split("  #")[0].strip() for line in joined.splitlines() if line.strip() and not line.startswith("#")]
