"""`bascule completion`, and the completion of stream names."""

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

TIMEOUT_S = 1.0
"""Seconds to wait for a broker."""


VARIABLE = "_BASCULE_COMPLETE"
"""Set by a shell's script when it asks for completions."""


def register_shells() -> None:
    """Answer the scripts of the shells. Typer does so only together with an option that edits `~/.bashrc`."""
    if VARIABLE in os.environ:
        completion_init()


class Shell(StrEnum):
    """Supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print a script with which a shell completes commands, options and names of streams.

    Examples:
        bascule completion bash > ~/.local/share/bash-completion/completions/bascule

        bascule completion fish > ~/.config/fish/completions/bascule.fish
    """
    typer.echo(get_completion_script(prog_name="bascule", complete_var=VARIABLE, shell=shell.value))


def complete_stream(incomplete: str) -> list[str]:
    """Names of streams that begin with `incomplete`; none if no broker answers at once, because a completion cannot
    report an error.
    """
    try:
        connection = choose(None, None, None, TIMEOUT_S)
        with connect(connection.url, timeout=TIMEOUT_S, name="bascule-cli") as client:
            names = [stream.name for stream in client.list_streams()]
    except BrokerError:
        return []
    return [name for name in names if name.startswith(incomplete)]


StreamName = Annotated[str, typer.Argument(help="Name of the stream.", autocompletion=complete_stream)]
