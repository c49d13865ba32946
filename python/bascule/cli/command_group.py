"""Groups of commands with plain-text help: names of options and examples are not cut in a narrow terminal.

The panels of Typer have columns side by side and cut long ones at 80 characters.
"""

import inspect
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["Commands"]

USAGE: Final = 2
"""Exit code of a wrong call."""

F = TypeVar("F", bound=Callable[..., Any])


class Commands(typer.Typer):
    """A group of commands."""

    def __init__(self, **options: Any) -> None:
        """`options`: passed to `typer.Typer`."""
        super().__init__(cls=_Group, rich_markup_mode=None, pretty_exceptions_enable=False, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[F], F]:
        """As `typer.Typer.command`."""
        return super().command(name, cls=_Command, **options)


class _Command(TyperCommand):
    def make_parser(self, ctx: Any) -> Any:
        """Reject an option for one value that is given twice, which would silently use the last one."""
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def once(args: list[str]) -> Any:
            opts, rest, order = parse(args)
            for param in order:
                takes_one = param.param_type_name == "option" and not (param.multiple or param.is_flag or param.count)
                if takes_one and order.count(param) > 1 and not ctx.resilient_parsing:
                    ctx.fail(f"{max(param.opts, key=len)} is given {order.count(param)} times: it takes one value")
            return opts, rest, order

        parser.parse_args = once
        return parser

    def get_short_help_str(self, limit: int = 45) -> str:
        """The complete first sentence of its help."""
        del limit
        return _first_sentence(self.help)

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """The description, then the examples, one per line."""
        del ctx
        about, _, examples = inspect.cleandoc(self.help or "").partition("Examples:")
        with formatter.indentation():
            formatter.write_paragraph()
            formatter.write_text(about.strip())
            formatter.write_paragraph()
            formatter.write_text("Examples:")
        for line in filter(None, map(str.strip, examples.splitlines())):
            formatter.write(f"    {line}\n")


class _Group(TyperGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without arguments: show the help and exit with a usage error."""
        if not args and not ctx.resilient_parsing:
            typer.echo(ctx.get_help())
            raise typer.Exit(USAGE)
        return super().parse_args(ctx, args)

    def get_short_help_str(self, limit: int = 45) -> str:
        """As for a command."""
        del limit
        return _first_sentence(self.help)


def _first_sentence(text: str | None) -> str:
    paragraph = " ".join(inspect.cleandoc(text or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z`])", paragraph)[0]
