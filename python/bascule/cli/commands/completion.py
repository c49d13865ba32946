"""`bascule completion`, and what the shell is offered for arguments."""

import os
from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import (
    completion_init,  # pyright: ignore[reportPrivateImportUsage]
    get_completion_script,  # pyright: ignore[reportPrivateImportUsage]
)

from bascule.cli.connection import choose
from bascule.client import connect
from bascule.errors import BrokerError

__all__ = ["StreamName", "complete_stream", "completion", "register_shells"]

PATIENCE_S = 1.0
"""How long pressing the key may wait for a broker."""


VARIABLE = "_BASCULE_COMPLETE"
"""Set by the script of a shell when it asks for completions."""


def register_shells() -> None:
    """Answer the scripts of the shells. Typer does so by itself only beside an option that edits `~/.bashrc`."""
    if VARIABLE in os.environ:
        completion_init()


class Shell(StrEnum):
    """Shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print the script that makes a shell complete commands, options and names of streams.

    Examples:
        bascule completion bash > ~/.local/share/bash-completion/completions/bascule

        bascule completion fish > ~/.config/fish/completions/bascule.fish
    """
    typer.echo(get_completion_script(prog_name="bascule", complete_var=VARIABLE, shell=shell.value))


def complete_stream(incomplete: str) -> list[str]:
    """Names of streams that begin so; none when no broker answers at once, for a key that was pressed has no room for
    an error.
    """
    try:
        connection = choose(None, None, None, PATIENCE_S)
        with connect(connection.url, timeout=PATIENCE_S, name="bascule-cli") as client:
            names = [stream.name for stream in client.list_streams()]
    except BrokerError:
        return []
    return [name for name in names if name.startswith(incomplete)]


StreamName = Annotated[str, typer.Argument(help="Name of the stream.", autocompletion=complete_stream)]
