"""Write what is generated from specs/errors.toml; with --check only compare and fail on a difference."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / "python/bascule/_error_codes.py"
RUST = ROOT / "crates/wire/src/error_code.rs"
WIDTH = 120
WHERE = """
## Where a client reads the code

Clients decide by the code; texts are for people and may change.

| Call | Place |
|---|---|
| gRPC, except Flight | the trailer `bascule-error-bin`; status code and message are those of Liftbridge |
| `PublishAsync`, one record | field 100 of `PublishAsyncError`, `error` |
| Arrow Flight | `grpc-status-details-bin` ([values by code](../../specs/formats/flight.md#failures)) |
| Spark: source, sink, archive | `[code] sentence` in Spark's message, and in `exception()` of a query |
| Python functions, as `bascule.spark.archive` | the attribute `code` of the exception |
| Commands, as `bascule pipeline run` | in parentheses behind the sentence |

Each of the first three holds the same: a JSON object, in UTF-8, of `code` and the values that the message names. Other
clients ignore it. Servers of Liftbridge do not send it; the SDK decides by status and text there.

| Value | With the codes | Meaning |
|---|---|---|
| `reason` | any | the case, where a code has several; see below |
| `message_bytes`, `limit` | `too_large` | bytes of the request message, and what `limits.message_bytes` allows |
| `in_sync`, `min_isr` | `not_enough_replicas` | replicas in sync, and the number required |
| `start`, `end` | `damaged`, `encryption_key_missing` | offsets that cannot be read, end exclusive |
| `fault` | `damaged` | kind of the damage |

| `reason` | Meaning |
|---|---|
| `deleted` | the records that the reader or the cursor refers to are gone: the stream was deleted or purged |
| `paused` | the partition is paused, and the call did not ask to resume it |
| `empty_range` | nothing can be between the start and the stop of a subscription |
| `not_assigned` | the partition is assigned to another member of the group, or the member was expelled |
| `generation_ahead` | the group has not reached the epoch or generation that the request claims |
| `batch_rejected` | another record of the same producer batch was rejected |
| `invalid_subject` | the subject of a new stream is not valid |
| `group_not_found`, `not_a_member`, `already_member` | the consumer group does not exist, or has other members |
| `not_coordinator`, `stale_coordinator`, `no_coordinator` | the broker does not coordinate the group, or none can |
| `stale_epoch`, `not_watched` | the group changed since, or the membership is ending |
| the others | the rule that a request for a stream breaks, by its name |
"""
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


def _camel(code: str) -> str:
    return "".join(word.capitalize() for word in code.split("_"))


def _rust(table: dict[str, dict[str, object]]) -> str:
    names = {code: _camel(code) for code in table}
    lines = [
        "//! Generated from `specs/errors.toml` by `specs/generate_errors.py`: edit that, then `make fix`.",
        "",
        "/// The code of an error, the same in both planes, in every protocol and in the documentation.",
        "#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]",
        "pub enum ErrorCode {",
    ]
    for code, name in names.items():
        lines += [f"    /// {table[code]['text']}", f"    {name},"]
    lines += [
        "}",
        "",
        "impl ErrorCode {",
        "    /// Every code, in the order of the enumeration.",
        f"    pub const ALL: [Self; {len(names)}] = [",
        *(f"        Self::{name}," for name in names.values()),
        "    ];",
        "",
        "    /// The name in `specs/errors.toml`.",
        "    pub const fn as_str(self) -> &'static str {",
        "        match self {",
        *(f'            Self::{name} => "{code}",' for code, name in names.items()),
        "        }",
        "    }",
        "",
        "    /// The code of this name; `None` for a name that this version does not know.",
        "    pub fn parse(name: &str) -> Option<Self> {",
        "        Self::ALL.into_iter().find(|code| code.as_str() == name)",
        "    }",
        "}",
        "",
        "impl std::fmt::Display for ErrorCode {",
        "    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {",
        "        f.write_str(self.as_str())",
        "    }",
        "}",
    ]
    return "\n".join([*lines, ""])


def _page(table: dict[str, dict[str, object]]) -> str:
    lines = [
        "# Error codes",
        "",
        "Every error has a code that never changes. Its class and its retry rule say how to handle it: `never`,",
        "`backoff` (repeat the same call later) or `refresh` (fetch metadata, then repeat).",
        "Generated from `specs/errors.toml`.",
        "",
        "| Code | Meaning | Python class | Retry | Who can act | gRPC | HTTP | Exit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for code, row in table.items():
        cells = (row[key] for key in ("text", "class", "retry", "fixer", "grpc", "http", "exit"))
        lines.append(f"| `{code}` | " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, ""]) + WHERE


def main() -> int:
    """Write or compare; returns the exit code."""
    with (ROOT / "specs/errors.toml").open("rb") as file:
        table = tomllib.load(file)
    stale = 0
    for path, text in ((PYTHON, _python(table)), (RUST, _rust(table)), (PAGE, _page(table))):
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
