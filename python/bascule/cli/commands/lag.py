"""`bascule lag`: how far consumer groups and queries are behind."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Self

import typer

from bascule._text import counted
from bascule.cli.connection import Connection, connected
from bascule.cli.options import Output
from bascule.cli.render.output import OutputFormat, render
from bascule.client import ReaderLag
from bascule.errors import UsageError

__all__ = ["lag"]

CLEAR: Final = "\x1b[H\x1b[2J"


@dataclass(frozen=True, slots=True)
class LagRow:
    """The position and lag of a reader in one partition."""

    kind: str
    """`group` or `query`."""
    reader: str
    stream: str
    partition: int
    next_offset: int
    records: int | None
    """Offsets that it has not processed; `None` = the partition is paused, was created again, or is not open."""
    bytes: int | None
    seconds: float | None
    """Age of the oldest of these records."""
    state: str
    """`reporting`; `silent` = nothing was reported for a minute; `ended`; `stored` = a group."""
    reported_seconds: float | None
    """Time since the last report; `None` = a group."""
    hold_seconds: float | None
    """How long its records are still held, without another report; 0 = not any more; `None` = it holds none."""
    owner: str
    """Client that reports, by its certificate."""

    @classmethod
    def of(cls, found: ReaderLag) -> Self:
        """The row of a lag."""
        return cls(
            found.kind,
            found.reader,
            found.stream,
            found.partition,
            found.next_offset,
            found.records,
            found.bytes,
            None if found.age is None else found.age.total_seconds(),
            found.state,
            None if found.reported is None else found.reported.total_seconds(),
            None if found.hold_left is None else found.hold_left.total_seconds(),
            found.owner,
        )


@connected()
def lag(
    connection: Connection,
    *,
    reader: Annotated[str, typer.Argument(help="Only this group or query.")] = "",
    stream: Annotated[
        str, typer.Option("--stream", "-s", help="Only this stream; namespace/name outside default.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="The same as --output json.")] = False,
    watch: Annotated[
        float, typer.Option("--watch", "-w", min=0, help="Show it again every so many seconds, until Ctrl-C; 0 = once.")
    ] = 0,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show how far consumer groups and queries are behind, by partition, in records, bytes and seconds.

    Queries are those that report their positions, for example Spark queries with the option consumerGroup. A query that
    has reported nothing for a minute is named on standard error.

    Examples:
        bascule lag

        bascule lag billing --stream orders --watch 2
    """
    if json and output not in {OutputFormat.TABLE, OutputFormat.JSON}:
        raise UsageError("invalid_argument", f"--json and --output {output.value} contradict each other: give one")
    form = OutputFormat.JSON if json else output
    with connection.open() as client:
        while True:
            found = client.lags(reader=reader, stream=stream)
            if watch and form is OutputFormat.TABLE and sys.stdout.isatty():
                sys.stdout.write(CLEAR)
            render([LagRow.of(item) for item in found], form, empty="no group and no query has a position there")
            sys.stdout.flush()
            _warn(found)
            if not watch:
                return
            time.sleep(watch)


def _warn(found: Sequence[ReaderLag]) -> None:
    silent = sorted({item.reader for item in found if item.state == "silent"})
    if silent:
        names = ", ".join(silent[:5]) + (" and others" if len(silent) > 5 else "")
        what = f"{counted(len(silent), 'reader')} reported nothing for a minute, so their lag may be older"
        sys.stderr.write(f"bascule: {what}: {names}\n")
