"""Write docs/reference/cli.md from the commands of `bascule` themselves.

Run `python specs/generate_cli_page.py` after changing a command; `make fix` does. A test compares the page with a new
one.
"""

import inspect
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from bascule.cli.app import app

TARGET = Path(__file__).resolve().parent.parent / "docs" / "reference" / "cli.md"

HEAD = """# The command line

This page lists every command of `bascule` with its options. `specs/generate_cli_page.py` generates it from the
commands.

## Common behaviour

Results go to standard output, everything else to standard error. A failure is one line with the cause, the value, the
limit or the remedy, and the [error code](errors.md).

| Exit code | Meaning |
|---|---|
| 0 | success |
| 1 | failure; also when the reader of the output closed it |
| 2 | wrong call |
| 3 | not found |
| 4 | denied |
| 5 | no broker answered |
| 6 | not allowed in this state |
| 7 | unknown outcome: the request was sent and not answered |
| 130 | interrupted, by Ctrl-C or SIGTERM |

`--output` prints a result as `table`, `json`, `ndjson`, `yaml` or `csv`. Tables leave out nested details. `ndjson`
and `csv` are rows; for `stream show`, `group show` and `sink show` one for each partition. `json` and `yaml` have
everything.

Commands find the broker by the first of these that is set: `--url`, `--context`, the environment variable
`BASCULE_URL`, `BASCULE_CONTEXT`, the current context (`bascule context use`), `liftbridge://127.0.0.1:9292`. Contexts
are stored in `~/.config/bascule/contexts.yaml` (`BASCULE_CONTEXTS` names another file). In a context that was added
with `--protected`, a command that destroys something asks you to type its name, also with `--yes`.

Jobs name their broker in the file, as `source.address`. A job file without it is refused where `BASCULE_URL` or a
context names another broker than 127.0.0.1:9292.

`--dry-run` shows what a command would do and changes nothing. A command that cannot be undone asks first, unless
`--yes` is given. Without a terminal to ask on, it is refused.
"""


def page() -> str:
    """The page."""
    command: Any = typer.main.get_command(app)
    return HEAD + "".join(_section(path, found) for path, found in _walk("bascule", command))


def _walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, found in command.commands.items():
        yield from _walk(f"{path} {name}", found)


def _section(path: str, command: Any) -> str:
    text = inspect.cleandoc(command.callback.__doc__)
    about, _, examples = text.partition("Examples:")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    arguments = " ".join(_argument(item) for item in command.params if item.param_type_name == "argument")
    usage = " ".join(part for part in (path, "[options]", arguments) if part)
    rows = [_row(item) for item in command.params if item.name != "help"]
    table = "\n".join(["| Option | Default | Meaning |", "|---|---|---|", *rows])
    shell = "\n".join(lines)
    return f"\n## {path}\n\n    {usage}\n\n{about.strip()}\n\n{table}\n\n```sh\n{shell}\n```\n"


def _argument(item: Any) -> str:
    shown = item.name.upper() + ("…" if item.nargs == -1 else "")
    return shown if item.required else f"[{shown}]"


def _row(item: Any) -> str:
    if item.param_type_name == "argument":
        names = f"`{item.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in [*item.opts, *item.secondary_opts])
    default = item.default
    if default is None or default is False:
        default = ""
    meaning = (item.help or "").rstrip()
    kind = item.type_descriptor.annotation
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        meaning += f" One of {', '.join(kind)}."
    shown = "" if default == "" else f"`{getattr(default, 'value', default)}`"
    return f"| {names} | {shown} | {re.sub(r'[|]', chr(92) + '|', meaning)} |"


if __name__ == "__main__":
    TARGET.write_text(page())
