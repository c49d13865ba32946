"""`bascule stream trim | purge`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import sys
from typing import Annotated

import typer

from bascule._text import counted
from bascule.cli.commands.completion import StreamName
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output, Yes
from bascule.cli.prompt import ask
from bascule.cli.render.output import OutputFormat, render
from bascule.cli.render.results import PartitionTrim, StreamPurge

__all__ = ["purge", "trim"]

Now = Annotated[bool, typer.Option("--now", help="Free the disk space at once instead of after limits.grace_ms.")]


@connected()
def trim(
    connection: Connection,
    name: StreamName,
    partition: Annotated[int, typer.Argument(min=0, help="Number of the partition.")],
    *,
    before: Annotated[int, typer.Option(min=0, help="First offset that is kept.")],
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
    now: Now = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Remove all records of a stream, which begins again at offset 0. Asks first, unless `--yes`.

    The files are kept for limits.grace_ms, unless `--now` is given or the broker's disk is full.

    Examples:
        bascule stream purge orders --dry-run

        bascule stream purge orders --yes
    """
    with connection.open() as client:
        stream = client.get_stream(name)
        purged = client.purge_stream(name, now=now, dry_run=True)
        if not dry_run:
            question = f"Remove all records of stream {name}, {counted(purged.records, 'record')}"
            question += ", and their files at once?" if purged.at_once else "?"
            ask(question, name=name, connection=connection, yes=yes)
            purged = client.purge_stream(name, now=now)
    if purged.at_once and not now:
        removed = "would be" if dry_run else "are"
        sys.stderr.write(
            f"bascule: the broker's disk is full: the files {removed} removed at once and cannot be restored\n"
        )
    partitions = len(stream.partitions)
    render(StreamPurge("purge", name, stream.subject, partitions, purged.records, dry_run, purged.at_once), output)
