"""`bascule cursor get | list | set | forget`: stored positions of single readers."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import sys
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from bascule.cli.command_group import Commands
from bascule.cli.commands.completion import StreamName
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output, Partition, Yes
from bascule.cli.prompt import ask
from bascule.cli.render.output import OutputFormat, render
from bascule.client import Client
from bascule.client.tooling import no_partition
from bascule.errors import StateError

__all__ = ["app"]

app: Final = Commands(help="Show and change stored positions of readers.")

Cursor = Annotated[str, typer.Argument(help="Id of the cursor.")]


@dataclass(frozen=True, slots=True)
class CursorRow:
    """One position."""

    cursor: str
    stream: str
    partition: int
    offset: int | None
    """Offset of the last processed record; `None` = no position."""


@dataclass(frozen=True, slots=True)
class CursorChange:
    """A change of a position, made or (with `--dry-run`) proposed; `None` = no position."""

    action: str
    cursor: str
    stream: str
    partition: int
    before: int | None
    after: int | None
    dry_run: bool


@app.command()
@connected()
def get(
    connection: Connection,
    cursor: Cursor,
    stream: StreamName,
    *,
    partition: Partition = 0,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the position of a reader: the offset of the last processed record. Exits with 3 if there is none.

    Examples:
        bascule cursor get billing orders

        bascule cursor get billing orders --partition 2 --output json
    """
    with connection.open() as client:
        _check_partition(client, stream, partition)
        offset = client.fetch_cursor(cursor, stream, partition=partition)
    if offset is None:
        text = (
            f'cursor "{cursor}" has no position in partition {partition} of stream "{stream}": see bascule cursor list'
        )
        raise StateError("not_found", text, {"cursor": cursor, "stream": stream, "partition": partition})
    render(CursorRow(cursor, stream, partition, offset), output)


@app.command("list")
@connected()
def list_all(
    connection: Connection,
    prefix: Annotated[str, typer.Argument(help="Only ids with this prefix.")] = "",
    *,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List all stored positions, also of consumer groups (`__group:<id>`). Reads the whole stream of cursors.

    Examples:
        bascule cursor list

        bascule cursor list __group: --output json
    """
    with connection.open() as client:
        found = client.list_cursors(prefix=prefix)
    render([CursorRow(item.cursor, item.stream, item.partition, item.offset) for item in found], output)


@app.command("set")
@connected()
def set_position(
    connection: Connection,
    cursor: Cursor,
    stream: StreamName,
    offset: Annotated[int, typer.Argument(min=0, help="Offset of the last processed record.")],
    *,
    partition: Partition = 0,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Store a position. The reader continues after it.

    Examples:
        bascule cursor set billing orders 4711

        bascule cursor set billing orders 4711 --partition 2 --dry-run
    """
    with connection.open() as client:
        end = _check_partition(client, stream, partition)
        before = client.fetch_cursor(cursor, stream, partition=partition)
        if not dry_run:
            client.set_cursor(cursor, stream, offset, partition=partition)
        if end is not None and offset >= end:
            text = (
                f"offset {offset} is beyond the last record of partition {partition} of {stream}, which ends at {end}"
            )
            sys.stderr.write(f"bascule: {text}: until that offset exists, a reader begins with the next record\n")
    render(CursorChange("set", cursor, stream, partition, before, offset, dry_run), output)


@app.command()
@connected()
def forget(
    connection: Connection,
    cursor: Cursor,
    stream: StreamName,
    *,
    partition: Partition = 0,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Remove a position: the reader begins as without one. Asks first, unless `--yes`.

    Examples:
        bascule cursor forget billing orders --dry-run

        bascule cursor forget billing orders --partition 2 --yes
    """
    with connection.open() as client:
        _check_partition(client, stream, partition)
        before = client.fetch_cursor(cursor, stream, partition=partition)
        if not dry_run and before is not None:
            question = f"Forget that {cursor} has read partition {partition} of {stream} up to offset {before:,}?"
            ask(question, name=cursor, connection=connection, yes=yes)
            client.set_cursor(cursor, stream, None, partition=partition)
    render(CursorChange("forget", cursor, stream, partition, before, None, dry_run), output)


def _check_partition(client: Client, stream: str, partition: int) -> int | None:
    """Reject a partition that does not exist, because the broker would store its position. Returns the end of the
    partition; `None` = it is paused.
    """
    partitions = client.get_stream(stream).partitions
    count = len(partitions)
    if partition >= count:
        raise no_partition(stream, partition, count)
    chosen = partitions[partition]
    return None if chosen.paused else chosen.high_watermark
