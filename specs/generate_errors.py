"""Write what is generated from specs/errors.toml; with --check only compare and fail on a difference."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "python/bascule/_error_codes.py"
WIDTH = 120
PAGE = ROOT / "docs/reference/errors.md"


def _python(table: dict[str, dict[str, object]]) -> str:
    lines = [
        '"""Generated from specs/errors.toml by specs/generate_errors.py: change it there."""',
        "",
        "from typing import Final, NamedTuple",
        "",
        "",
        "class ErrorCode(NamedTuple):",
        '    """One row of the table."""',
        "",
        "    text: str",
        "    class_name: str",
        "    retry: str",
        "    fixer: str",
        "    grpc: str",
        "    http: int",
        "    exit: int",
        "",
        "",
        "CODES: Final[dict[str, ErrorCode]] = {",
    ]
    for code, row in table.items():
        values = (row[key] for key in ("text", "class", "retry", "fixer", "grpc", "http", "exit"))
        quoted = [f'"{value}"' if isinstance(value, str) else str(value) for value in values]
        # broken where the formatter would break it
        line = f'    "{code}": ErrorCode({", ".join(quoted)}),'
        if len(line) > WIDTH:
            inner = f"        {', '.join(quoted)}"
            inner = inner if len(inner) <= WIDTH else "\n".join(f"        {value}," for value in quoted)
            line = f'    "{code}": ErrorCode(\n{inner}\n    ),'
        lines.append(line)
    return "\n".join([*lines, "}", ""])


def _page(table: dict[str, dict[str, object]]) -> str:
    lines = [
        "# Error codes",
        "",
        "Every error has a code that never changes. What to do with it is told by its class and its retry rule:",
        "`never`, `backoff` (the same call, later) or `refresh` (fetch metadata, then again).",
        "Generated from `specs/errors.toml`.",
        "",
        "| Code | Meaning | Python class | Retry | Who can act | gRPC | HTTP | Exit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for code, row in table.items():
        cells = (row[key] for key in ("text", "class", "retry", "fixer", "grpc", "http", "exit"))
        lines.append(f"| `{code}` | " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, ""])


def main() -> int:
    """Write or compare; returns the exit code."""
    with (ROOT / "specs/errors.toml").open("rb") as file:
        table = tomllib.load(file)
    stale = 0
    for path, text in ((PYTHON, _python(table)), (PAGE, _page(table))):
        if "--check" in sys.argv:
            if not path.exists() or path.read_text() != text:
                sys.stderr.write(f"{path.relative_to(ROOT)} is not what specs/errors.toml gives: make fix\n")
                stale = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
