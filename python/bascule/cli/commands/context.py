"""`bascule context add | list | show | use | remove`: named connections."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from bascule.cli.command_group import Commands
from bascule.cli.contexts import Context, Contexts, path
from bascule.cli.options import DryRunHere, Output
from bascule.cli.render.output import OutputFormat, render

__all__ = ["app", "complete_context"]

app: Final = Commands(help="Name the brokers that commands talk to.")


def complete_context(incomplete: str) -> list[str]:
    """Names that begin with `incomplete`, for the shell."""
    return sorted(name for name in Contexts.load().contexts if name.startswith(incomplete))


Name = Annotated[str, typer.Argument(help="Name of the context.", autocompletion=complete_context)]


@dataclass(frozen=True, slots=True)
class ContextRow:
    """One context."""

    name: str
    current: bool
    url: str
    timeout: float | None
    protected: bool

    @classmethod
    def of(cls, name: str, contexts: Contexts) -> "ContextRow":
        """The row of a context."""
        chosen = contexts.find(name)
        return cls(name, name == contexts.current, chosen.url, chosen.timeout, chosen.protected)


@dataclass(frozen=True, slots=True)
class ContextChange:
    """A change of a context, made or (with `--dry-run`) proposed."""

    action: str
    name: str
    current: bool
    file: str
    dry_run: bool


@app.command()
def add(
    name: Annotated[str, typer.Argument(help="Name of the context; an existing one is replaced.")],
    url: Annotated[str, typer.Argument(help="Broker: liftbridge://host:port[,host:port…].")],
    *,
    timeout: Annotated[float | None, typer.Option(min=0.001, help="Seconds for a call.")] = None,
    protected: Annotated[
        bool, typer.Option("--protected", help="Destructive commands ask for the name of the object.")
    ] = False,
    use: Annotated[bool, typer.Option("--use", help="Also make it the current one.")] = False,
    dry_run: DryRunHere = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Store a broker under a name.

    Examples:
        bascule context add local liftbridge://127.0.0.1:9292 --use

        bascule context add production liftbridge://10.0.0.5:9292,10.0.0.6:9292 --protected
    """
    contexts = Contexts.load().with_(name, Context(url, timeout, protected), current=use)
    _finish("add", name, contexts, dry_run=dry_run, output=output)


@app.command("list")
def list_all(output: Output = OutputFormat.TABLE) -> None:
    """List the contexts.

    Examples:
        bascule context list

        bascule context list --output json
    """
    contexts = Contexts.load()
    render([ContextRow.of(name, contexts) for name in sorted(contexts.contexts)], output)


@app.command()
def show(name: Name, output: Output = OutputFormat.TABLE) -> None:
    """Show one context.

    Examples:
        bascule context show production

        bascule context show production --output yaml
    """
    render(ContextRow.of(name, Contexts.load()), output)


@app.command()
def use(name: Name, *, dry_run: DryRunHere = False, output: Output = OutputFormat.TABLE) -> None:
    """Make a context the current one: commands talk to its broker from now on.

    Examples:
        bascule context use production

        bascule context use local --output json
    """
    contexts = Contexts.load()
    chosen = Contexts(name, contexts.contexts)
    chosen.find(name)
    _finish("use", name, chosen, dry_run=dry_run, output=output)


@app.command()
def remove(name: Name, *, dry_run: DryRunHere = False, output: Output = OutputFormat.TABLE) -> None:
    """Remove a context. The broker is not contacted.

    Examples:
        bascule context remove staging --dry-run

        bascule context remove staging
    """
    _finish("remove", name, Contexts.load().without(name), dry_run=dry_run, output=output)


def _finish(action: str, name: str, contexts: Contexts, *, dry_run: bool, output: OutputFormat) -> None:
    if not dry_run:
        contexts.save()
    render(ContextChange(action, name, contexts.current == name, str(path()), dry_run), output)
