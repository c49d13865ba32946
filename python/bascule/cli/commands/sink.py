"""`bascule sink list | show | delete | skip | owner | quota`: the exactly-once writers of Spark."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import sys
from dataclasses import dataclass
from typing import Annotated, Final, Self

import typer

from bascule._text import counted
from bascule._units import parse_bytes
from bascule.cli.command_group import Commands
from bascule.cli.commands.completion import StreamName
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output, Yes
from bascule.cli.prompt import ask
from bascule.cli.render.output import OutputFormat, render
from bascule.client import Sink
from bascule.errors import UsageError

__all__ = ["app"]

app: Final = Commands(help="Show sinks, the exactly-once writers of Spark, and repair them.")

MAX_QUOTA: Final = (1 << 63) - 1

Name = Annotated[str, typer.Argument(help="Name of the sink.")]
Namespace = Annotated[str, typer.Option("--namespace", help="Namespace of the sink and its streams.")]


@dataclass(frozen=True, slots=True)
class SinkRow:
    """One sink of `sink list`."""

    sink: str
    kind: str
    lifetime: str
    owner: str
    last_epoch: int | None
    """`None` = its current query has published nothing yet."""
    state: str
    """`finished`, or the number of partitions that are still to be linked and of those that are blocked."""
    staged_bytes: int

    @classmethod
    def of(cls, sink: Sink) -> Self:
        """The row of a sink."""
        return cls(sink.name, sink.kind, sink.lifetime, sink.owner, sink.last_epoch, _state(sink), sink.staged_bytes)


@dataclass(frozen=True, slots=True)
class SinkDeletion:
    """A sink that was deleted or (with `--dry-run`) would be."""

    sink: str
    last_epoch: int | None
    """`None` = its current query has published nothing."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class SinkSkip:
    """Rows that were given up or (with `--dry-run`) would be."""

    sink: str
    stream: str
    partition: int
    rows: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class QuotaChange:
    """A change of a quota, made or (with `--dry-run`) proposed; 0 = the broker's default."""

    sink: str
    before: int
    after: int
    dry_run: bool


@dataclass(frozen=True, slots=True)
class OwnerChange:
    """A change of the owner, made or (with `--dry-run`) proposed; empty = clients without a certificate."""

    sink: str
    before: str
    after: str
    dry_run: bool


@app.command("list")
@connected()
def list_all(connection: Connection, *, namespace: Namespace = "default", output: Output = OutputFormat.TABLE) -> None:
    """List sinks with the last epoch of each.

    Examples:
        bascule sink list

        bascule sink list --output json
    """
    with connection.open() as client:
        found = client.sinks(namespace=namespace)
    render([SinkRow.of(sink) for sink in found], output)


@app.command()
@connected()
def show(
    connection: Connection, name: Name, *, namespace: Namespace = "default", output: Output = OutputFormat.TABLE
) -> None:
    """Show a sink, and where the rows of its last epoch are. `blocked` says why a partition is not linked yet.

    Examples:
        bascule sink show daily-totals

        bascule sink show daily-totals --output yaml
    """
    with connection.open() as client:
        found = client.sink(name, namespace=namespace)
    render(found if output in {OutputFormat.JSON, OutputFormat.YAML, OutputFormat.TABLE} else found.partitions, output)


@app.command()
@connected()
def delete(
    connection: Connection,
    name: Name,
    *,
    namespace: Namespace = "default",
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Forget a sink: a query that runs its last epoch again writes those rows once more. Asks first, unless `--yes`.

    The records stay in their streams. A sink whose last epoch is not linked everywhere is not deleted.

    Examples:
        bascule sink delete daily-totals --dry-run

        bascule sink delete daily-totals --yes
    """
    with connection.open() as client:
        last = client.delete_sink(name, namespace=namespace, dry_run=True)
        if not dry_run:
            question = f"Delete sink {name}? {_consequence(last)} Go ahead?"
            ask(question, name=name, connection=connection, yes=yes)
            last = client.delete_sink(name, namespace=namespace)
    sys.stderr.write(f"bascule: {_consequence(last)}\n")
    render(SinkDeletion(name, last, dry_run), output)


@app.command()
@connected()
def skip(
    connection: Connection,
    name: Name,
    stream: StreamName,
    partition: Annotated[int, typer.Argument(min=0, help="Number of the partition.")],
    *,
    namespace: Namespace = "default",
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Give up the rows of the last epoch for one partition, which are lost. Asks first, unless `--yes`.

    It lets the sink continue if these rows cannot be linked (`blocked` in `bascule sink show`).

    Examples:
        bascule sink skip daily-totals totals 3 --dry-run

        bascule sink skip daily-totals totals 3 --yes
    """
    with connection.open() as client:
        rows = client.skip_sink(name, stream, partition, namespace=namespace, dry_run=True)
        if not dry_run:
            what = f"{counted(rows, 'row')} of sink {name} for partition {partition} of stream {stream}"
            ask(f"Lose {what}?", name=name, connection=connection, yes=yes)
            rows = client.skip_sink(name, stream, partition, namespace=namespace)
    render(SinkSkip(name, stream, partition, rows, dry_run), output)


@app.command()
@connected()
def owner(
    connection: Connection,
    name: Name,
    client_name: Annotated[
        str, typer.Argument(help='Name in the certificate of the client; "" = clients without one.')
    ],
    *,
    namespace: Namespace = "default",
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Give a sink to another client, which alone may write then: after certificates were switched on, or changed names.

    Its epochs stay, so a query that runs its last epoch again writes nothing twice.

    Examples:
        bascule sink owner daily-totals spark --dry-run

        bascule sink owner daily-totals spark
    """
    with connection.open() as client:
        before = client.set_sink_owner(name, client_name, namespace=namespace, dry_run=dry_run)
    render(OwnerChange(name, before, client_name, dry_run), output)


@app.command()
@connected()
def quota(
    connection: Connection,
    name: Name,
    size: Annotated[str, typer.Argument(help='Most bytes that may be staged, e.g. "32GiB"; 0 = the default, 8 GiB.')],
    *,
    namespace: Namespace = "default",
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Bound the bytes that a sink may have staged. An epoch that needs more fails.

    Examples:
        bascule sink quota daily-totals 32GiB

        bascule sink quota daily-totals 0 --dry-run
    """
    after = _parse_quota(size)
    with connection.open() as client:
        before = client.sink(name, namespace=namespace).quota_bytes
        if not dry_run:
            client.set_sink_quota(name, after, namespace=namespace)
    render(QuotaChange(name, before, after, dry_run), output)


def _consequence(last: int | None) -> str:
    """What the deletion of a sink means for the query that runs its last epoch again."""
    if last is None:
        return "It has no epoch of its current query, so no rows can be written twice."
    return f"Its last epoch is {last}: a query that runs epoch {last} again writes its rows once more."


def _state(sink: Sink) -> str:
    waiting = [item for item in sink.partitions if item.phase == "decided"]
    if not waiting:
        return "finished"
    blocked = sum(1 for item in waiting if item.blocked)
    return f"{len(waiting)} to link" + (f", {blocked} blocked" if blocked else "")


def _parse_quota(text: str) -> int:
    """Bytes.

    Raises:
        UsageError: code `invalid_argument`: not a size, or above 2⁶³ − 1.
    """
    try:
        found = int(str(parse_bytes(text)))
    except ValueError as wrong:
        raise UsageError("invalid_argument", f"quota {wrong}") from None
    if found > MAX_QUOTA:
        raise UsageError("invalid_argument", f"quota {text[:80]!r} is above {MAX_QUOTA} bytes")
    return found
