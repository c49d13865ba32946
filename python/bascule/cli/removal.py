"""`bascule stream trim | purge`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

from typing import Annotated, Final

import typer

from bascule.cli.options import DEFAULT_URL, DryRun, Output, Timeout, Url, Yes
from bascule.cli.output import OutputFormat, render
from bascule.cli.prompt import ask
from bascule.cli.results import PartitionTrim, StreamChange, StreamRow
from bascule.client import connect

__all__ = ["purge", "trim"]

TIMEOUT: Final = 10.0

Name = Annotated[str, typer.Argument(help="Name of the stream.")]


def trim(
    name: Name,
    partition: Annotated[int, typer.Argument(min=0, help="Number of the partition.")],
    *,
    before: Annotated[int, typer.Option(min=0, help="First offset that stays.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = TIMEOUT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Remove the records of a partition below an offset. Asks first, unless `--yes`.

    Examples:
        bascule stream trim orders 0 --before 1000 --dry-run

        bascule stream trim orders 0 --before 1000 --yes
    """
    with connect(url, timeout=timeout, name="bascule-cli") as client:
        was, now = client.trim_partition(name, partition, before, dry_run=True)
        if not dry_run:
            if not yes:
                ask(f"Remove offsets {was:,} to {now:,} (exclusive) of partition {partition} of stream {name}?")
            was, now = client.trim_partition(name, partition, before)
    render(PartitionTrim(name, partition, was, now, dry_run), output)


def purge(
    name: Name,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = TIMEOUT,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Remove all records of a stream; it stays, and begins again at offset 0. Asks first, unless `--yes`.

    Examples:
        bascule stream purge orders --dry-run

        bascule stream purge orders --yes
    """
    with connect(url, timeout=timeout, name="bascule-cli") as client:
        row = StreamRow.of(client.get_stream(name))
        records = client.purge_stream(name, dry_run=True)
        if not dry_run:
            if not yes:
                ask(f"Remove all {records:,} records of stream {name}?")
            records = client.purge_stream(name)
    render(StreamChange("purge", name, row.subject, row.partitions, records, dry_run), output)
