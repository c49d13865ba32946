"""`bascule hold release`: ends what a query that is gone keeps from retention."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

from dataclasses import dataclass
from typing import Annotated, Final

import typer

from bascule._text import counted
from bascule.cli.command_group import Commands
from bascule.cli.commands.completion import StreamName
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output, Yes
from bascule.cli.prompt import ask
from bascule.cli.render.output import OutputFormat, render

__all__ = ["app"]

app: Final = Commands(help="End what queries keep from retention. `bascule lag` shows them, with `hold_seconds`.")


@dataclass(frozen=True, slots=True)
class HoldRelease:
    """A hold that was released or (with `--dry-run`) would be."""

    query: str
    stream: str
    partitions: dict[int, int]
    """Offsets by partition: the records from there on were held."""
    hold_seconds: float
    """How long the hold would have lasted."""
    dry_run: bool


@app.command()
@connected()
def release(
    connection: Connection,
    query: Annotated[str, typer.Argument(help="Name of the query, its consumerGroup.")],
    stream: StreamName,
    *,
    namespace: Annotated[str, typer.Option("--namespace", help="Namespace of the stream.")] = "default",
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """End the hold of a query that is gone, in one stream: retention stops waiting. Asks first, unless `--yes`.

    Where the query stood there is forgotten. A query that reported within the last minute and has not ended is refused:
    stop it first. One that is started again holds again, and may have lost records meanwhile.

    Examples:
        bascule hold release totals orders --dry-run

        bascule hold release totals orders --yes
    """
    with connection.open() as client:
        found = client.release_hold(query, stream, namespace=namespace, dry_run=True)
        if not dry_run:
            what = (
                f"Records of {counted(len(found.positions), 'partition')} of stream {stream} that query {query} has not"
            )
            ask(f"{what} processed may be removed. Go ahead?", name=query, connection=connection, yes=yes)
            found = client.release_hold(query, stream, namespace=namespace)
    render(HoldRelease(query, stream, found.positions, found.left.total_seconds(), dry_run), output)
