"""Questions before something is destroyed."""

import sys

import typer

from bascule.errors import UsageError

__all__ = ["ask"]


def ask(question: str) -> None:
    """Go on only after a yes; where nobody can answer, nothing is done.

    Raises:
        UsageError: there is no terminal.
    """
    if not sys.stdin.isatty():
        raise UsageError("invalid_argument", "there is no terminal to ask on: add --yes")
    typer.confirm(question, abort=True, err=True)
