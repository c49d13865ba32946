"""Confirmation of destructive commands."""

import sys

import typer

from bascule.cli.connection import Connection
from bascule.errors import UsageError

__all__ = ["ask"]


def ask(question: str, *, name: str, connection: Connection, yes: bool) -> None:
    """Return only if the user confirms; without a terminal raise an error.

    Args:
        question: names the object to destroy and its size.
        name: name of the object; in a protected context the user must type it.
        connection: the broker of the object.
        yes: whether `--yes` was given. In a protected context it is ignored.

    Raises:
        UsageError: there is no terminal; the user typed another name.
        typer.Abort: the answer was no.
    """
    if yes and not connection.protected:
        return
    if not sys.stdin.isatty():
        if connection.protected:
            text = f"context {connection.context} is protected and there is no terminal to type the name on"
            raise UsageError("invalid_argument", f"{text}: run it on one, or name the broker with --url")
        raise UsageError("invalid_argument", "there is no terminal to ask on: add --yes")
    if not connection.protected:
        typer.confirm(question, abort=True, err=True)
        return
    typed: str = typer.prompt(f"{question}\nContext {connection.context} is protected; type {name}", err=True)
    if typed != name:
        raise UsageError("invalid_argument", f'"{typed}" is not "{name}": nothing was done')
