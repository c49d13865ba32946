"""Count words that docs, messages and comments must not use (CONTRIBUTING.md, "Words") and compare with `words.json`.

The counts of a folder may only shrink: more of a word than `words.json` allows fails, with the lines. `--update`
(`make fix`) lowers the allowed counts to what is there, and never raises one.
"""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BASELINE: Final = ROOT / "deploy" / "words.json"
WORDS: Final = {
    "told": (r"told|tells", "reported, returned, notified, logged"),
    "mend": (r"mend(?:s|ed|ing)?", "repair, fix"),
    "goes on": (r"go(?:es)? on", "continue"),
    "anew": (r"anew", "again"),
    "sound": (r"sound", "valid, intact"),
    "is no": (r"(?<!there )(?:is|are) no (?!longer\b|more\b)\w+", "is not a valid …"),
    "wish": (r"wish(?:es|ed)?", "request"),
    "looked": (r"looked(?! up\b)", "scanned, checked"),
    "let go": (r"lets? go", "release, close"),
    "set aside": (r"sets? aside", "quarantine"),
    "does not check": (r"do(?:es)? not check(?= *[,.;:)]|$)", "fails its checksum"),
    "signs of life": (r"signs? of life", "heartbeat"),
}
"""Name to pattern (whole words, any case, `_` counts as a blank) and the terms to use instead."""
_PATTERNS: Final = {
    name: re.compile(rf"(?<![^\W_])(?:{pattern.replace(' ', '[ _]')})(?![^\W_])", re.IGNORECASE)
    for name, (pattern, _) in WORDS.items()
}
EXEMPT: Final = (
    "docs/spec/", "docs/reliability.", "docs/reliability/", "specs/vectors/", "fuzz/corpus/", "bench/results/",
    "deploy/words.", "tests/unit/deploy/test_words.py",
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "uv.lock", "Cargo.lock",
)  # fmt: skip
"""Specifications and history keep their language, CONTRIBUTING.md has the list; the others are data or made of it."""

Counts = dict[str, dict[str, int]]


def folder(path: str) -> str:
    """The first two parts of a file's folder: what may move within it needs no new counts."""
    return "/".join(PurePosixPath(path).parent.parts[:2]) or "."


def scan(root: Path, paths: list[str]) -> tuple[Counts, dict[tuple[str, str], list[str]]]:
    """Count by folder and word, and list the lines as `path:line: text`."""
    counts: Counts = defaultdict(lambda: defaultdict(int))
    lines: dict[tuple[str, str], list[str]] = defaultdict(list)
    for path in sorted(path for path in paths if not path.startswith(EXEMPT)):
        try:
            text = (root / path).read_text()
        except (UnicodeDecodeError, FileNotFoundError):  # not text; or deleted and not committed yet
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for name, pattern in _PATTERNS.items():
                if found := len(pattern.findall(line)):
                    counts[folder(path)][name] += found
                    lines[folder(path), name].append(f"{path}:{number}: {line.strip()}")
    return counts, lines


def lowered(allowed: Counts, counts: Counts) -> Counts:
    """The allowed counts, none above what is there; zeros are left out."""
    smaller = {
        place: {
            word: least for word, count in words.items() if (least := min(count, counts.get(place, {}).get(word, 0)))
        }
        for place, words in allowed.items()
    }
    return {place: words for place, words in sorted(smaller.items()) if words}


def main(arguments: list[str]) -> int:
    """The exit code: 1 where a folder has more of a word than allowed."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    counts, lines = scan(ROOT, [path for path in tracked.stdout.split("\0") if path])
    allowed: Counts = json.loads(BASELINE.read_text())
    if "--update" in arguments:
        BASELINE.write_text(json.dumps(lowered(allowed, counts), indent=1, sort_keys=True) + "\n")
    worse = 0
    for (place, word), where in sorted(lines.items()):
        if counts[place][word] > (limit := allowed.get(place, {}).get(word, 0)):
            worse = 1
            print(f"{place}: “{word}” {counts[place][word]} times, {limit} allowed; write: {WORDS[word][1]}")
            print("\n".join(f"  {line}" for line in where[: 20 if limit else None]))
    return worse


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
