"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Final

import typer

from bascule.cli.output import OutputFormat

__all__ = ["DEFAULT_URL", "ConfigFile", "DryRun", "Output", "Partition", "Timeout", "Url", "Yes"]

DEFAULT_URL: Final = "liftbridge://127.0.0.1:9292"

Url = Annotated[
    str, typer.Option("--url", "-u", envvar="BASCULE_URL", help="Broker: liftbridge://host:port[,host:port…].")
]
Output = Annotated[OutputFormat, typer.Option("--output", "-o", help="How to print the result.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds for the whole call, retries included.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask the broker and show what would happen; change nothing.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Partition = Annotated[int, typer.Option("--partition", "-p", min=0, help="Partition number, from 0.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="YAML file with settings.")]
