"""The `liftbridge` command, and the translation of a Liftbridge configuration into settings of Bascule."""

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (without the program's name; `None` = that of this process). Returns the exit code."""
    from bascule.cli.liftbridge.command import main as run  # noqa: PLC0415 (the modules beside it load without it)

    return run(arguments)
