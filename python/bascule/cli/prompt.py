"""Questions before something is destroyed."""

import sys

import typer

from bascule.cli.connection import Connection
from bascule.errors import UsageError

__all__ = ["ask"]


def ask(question: str, *, name: str, connection: Connection, yes: bool) -> None:
    """Go on only after a yes; where nobody can answer, nothing is done.

    Args:
        question: with what is destroyed and how much of it.
        name: of the thing; in a protected context it has to be typed.
        connection: where it is.
        yes: whether `--yes` was given. It does not suffice in a protected context.

    Raises:
        UsageError: there is no terminal; the name that was typed is another one.
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
