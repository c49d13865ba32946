"""Options shared by several commands; those of a connection are in `connection`."""

from pathlib import Path
from typing import Annotated

import typer

from bascule._paths import parse_path
from bascule.cli.render.output import OutputFormat
from bascule.errors import UsageError

__all__ = ["ConfigFile", "DryRun", "DryRunHere", "Output", "Partition", "Partitions", "Yes", "as_path", "pairs"]


def as_path(text: str) -> Path:
    """Parse a path: `~` is expanded, empty text is rejected."""
    try:
        found = parse_path(text)
    except ValueError as failure:
        raise typer.BadParameter(f"{failure}") from None
    assert isinstance(found, Path)
    return found


def pairs(option: str, given: list[str] | None) -> dict[str, str]:
    """The values of a repeatable option NAME=VALUE, by name.

    Raises:
        UsageError: a value has another form, or a name is there twice.
    """
    found: dict[str, str] = {}
    for text in given or []:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise UsageError("invalid_argument", f"{option} {text!r}: it must be NAME=VALUE")
        if name in found:
            raise UsageError("invalid_argument", f"{option} gives {name} twice")
        found[name] = value
    return found


Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="How to print the result.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask the broker and show what would happen; change nothing.")]
DryRunHere = Annotated[bool, typer.Option("--dry-run", help="Show what would happen; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Partition = Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition number, from 0.")]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", "-p", min=0, help="Partition number, from 0; repeatable.")
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", "-c", parser=as_path, metavar="PATH", help="YAML file with settings.")
]
