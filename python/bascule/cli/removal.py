"""`bascule stream trim | purge`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

from typing import Annotated

import typer

from bascule._text import counted
from bascule.cli.completion import StreamName
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output, Yes
from bascule.cli.output import OutputFormat, render
from bascule.cli.prompt import ask
from bascule.cli.results import PartitionTrim, StreamChange

__all__ = ["purge", "trim"]


@connected()
def trim(
    connection: Connection,
    name: StreamName,
    partition: Annotated[int, typer.Argument(min=0, help="Number of the partition.")],
    *,
    before: Annotated[int, typer.Option(min=0, help="First offset that stays.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Remove the records of a partition below an offset. Asks first, unless `--yes`.

    Examples:
        bascule stream trim orders 0 --before 1000 --dry-run

        bascule stream trim orders 0 --before 1000 --yes
    """
    with connection.open() as client:
        was, now = client.trim_partition(name, partition, before, dry_run=True)
        if not dry_run:
            question = f"Remove offsets {was:,} to {now:,} (exclusive) of partition {partition} of stream {name}?"
            ask(question, name=name, connection=connection, yes=yes)
            was, now = client.trim_partition(name, partition, before)
    render(PartitionTrim(name, partition, was, now, dry_run), output)


@connected()
def purge(
    connection: Connection,
    name: StreamName,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Remove all records of a stream; it stays, and begins again at offset 0. Asks first, unless `--yes`.

    Examples:
        bascule stream purge orders --dry-run

        bascule stream purge orders --yes
    """
    with connection.open() as client:
        stream = client.get_stream(name)
        records = client.purge_stream(name, dry_run=True)
        if not dry_run:
            question = f"Remove all records of stream {name}, {counted(records, 'record')}?"
            ask(question, name=name, connection=connection, yes=yes)
            records = client.purge_stream(name)
    render(StreamChange("purge", name, stream.subject, len(stream.partitions), records, dry_run), output)
