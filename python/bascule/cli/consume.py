"""`bascule consume`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import select
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import typer

from bascule._units import parse_duration_ms
from bascule.cli.completion import StreamName
from bascule.cli.connection import Connection, connected
from bascule.cli.options import Partitions
from bascule.cli.pace import Pace
from bascule.cli.positions import parse_start, parse_stop
from bascule.cli.records import RecordFormat, RecordWriter, record_writer
from bascule.client import Client, Record, Start, Subscription
from bascule.errors import UsageError

__all__ = ["consume"]

BATCH: Final = 4096
WAIT_S: Final = 0.5
"""Longest wait for one partition; shorter with several, which take turns."""
TURN_S: Final = 0.05
STANDARD_OUTPUT: Final = 1


StartAt = Annotated[
    str | None,
    typer.Option(help="earliest, latest, new, an offset, a time, or one ago like -15m. [default: new, or latest]"),
]
StopAt = Annotated[
    str | None, typer.Option(help="latest = when caught up; an offset or a time, exclusive; left out = wait.")
]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after so many records.")]
For = Annotated[str | None, typer.Option("--for", help='End after so long, e.g. "30s".')]
Idle = Annotated[str | None, typer.Option("--idle", help='End when nothing came for so long, e.g. "5s".')]
All = Annotated[bool, typer.Option("--all-partitions", "-a", help="Read every partition.")]
Cursor = Annotated[
    str | None, typer.Option(help="Go on behind this cursor, --start where it was never set, and move it.")
]
Commit = Annotated[bool, typer.Option("--commit/--no-commit", help="Whether the cursor is moved.")]
Reverse = Annotated[bool, typer.Option("--reverse", help="From --start back towards the first record.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume a paused partition.")]
FromReplica = Annotated[bool, typer.Option("--from-replica", help="Any in-sync replica may answer.")]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Most records a second.")]
Form = Annotated[
    RecordFormat,
    typer.Option("--output", "-o", help="text, raw, base64 and hex print values only; raw without line ends."),
]
KeySeparator = Annotated[str | None, typer.Option(help="With text, base64 and hex: print KEY, this text, VALUE.")]


@connected()
def consume(
    connection: Connection,
    stream: StreamName,
    *,
    start: StartAt = None,
    stop: StopAt = None,
    count: Count = None,
    run_for: For = None,
    idle: Idle = None,
    partition: Partitions = None,
    all_partitions: All = False,
    cursor: Cursor = None,
    commit: Commit = True,
    reverse: Reverse = False,
    resume: Resume = False,
    from_replica: FromReplica = False,
    rate: Rate = None,
    output: Form = RecordFormat.TEXT,
    key_separator: KeySeparator = None,
) -> None:
    """Print records: of partition 0, of those that are named, or of all. Records of one partition stay in order.

    Examples:
        bascule consume orders --start earliest --stop latest

        bascule consume orders --all-partitions --start -15m --count 10 --output ndjson
    """
    _check(partition, cursor, every=all_partitions, reverse=reverse)
    begin, end = parse_start(start or ("latest" if reverse else "new")), parse_stop(stop)
    limits = Limits(count, _seconds("--for", run_for), _seconds("--idle", idle))
    pace, writer = Pace(rate), record_writer(output, key_separator)
    with ExitStack() as stack:
        client = stack.enter_context(connection.open())
        numbers = _numbers(client, stream, partition, every=all_partitions)
        wish: dict[str, Any] = {
            "start": begin,
            "stop": end,
            "cursor": cursor,
            "batch_records": pace.batch(min(BATCH, count or BATCH)),
        }
        wish |= {"reverse": reverse, "resume": resume, "from_replica": from_replica}
        subscriptions = {
            number: stack.enter_context(client.subscribe(stream, partition=number, **wish)) for number in numbers
        }
        if cursor is None:
            for number, subscription in subscriptions.items():
                _tell_start(f"partition {number} of {stream}", begin, subscription.position, reverse=reverse)
        # what cannot be opened prints nothing, not even an empty list
        stack.enter_context(closing(writer))
        reading = _Reading(client, stream, cursor if commit else None, writer, output, pace)
        reading.run(subscriptions, limits)
        writer.close()
        reading.commit()


@dataclass(frozen=True, slots=True)
class Limits:
    """When to end; `None` = not for this."""

    records: int | None = None
    seconds: float | None = None
    idle_seconds: float | None = None


@dataclass(slots=True)
class _Reading:
    """Takes turns between partitions, prints, and moves the cursor behind what is printed."""

    client: Client
    stream: str
    cursor: str | None
    writer: RecordWriter
    form: RecordFormat
    pace: Pace
    printed: dict[int, int] = field(default_factory=dict[int, int])
    """Offset of the last record by partition, not stored yet."""
    records: int = 0

    def run(self, subscriptions: dict[int, Subscription], limits: Limits) -> None:
        """Until all have ended, or a limit is reached."""
        began = heard = time.monotonic()
        wait_s = WAIT_S if len(subscriptions) == 1 else TURN_S
        while subscriptions:
            for number, subscription in list(subscriptions.items()):
                batch = subscription.next_batch(self._wait_s(wait_s, began, limits))
                if batch is not None:
                    heard = time.monotonic()
                    self._take(number, list(batch), limits)
                elif subscription.ended:
                    del subscriptions[number]
                if self._is_over(began, heard, limits):
                    return
            _check_reader()

    def commit(self) -> None:
        """Store what is printed as the cursor's position."""
        if self.cursor is not None:
            for number, offset in self.printed.items():
                self.client.set_cursor(self.cursor, self.stream, offset, partition=number)
            self.printed.clear()

    def _take(self, number: int, records: Sequence[Record], limits: Limits) -> None:
        left = None if limits.records is None else limits.records - self.records
        records = records[:left]
        self.writer.write(number, records)
        sys.stdout.flush()
        self.records += len(records)
        self.printed[number] = records[-1].offset
        if self.form is not RecordFormat.TABLE:
            # a table is printed at the end
            self.commit()
        self.pace.count(len(records))

    def _wait_s(self, wait_s: float, began: float, limits: Limits) -> float:
        """Not beyond the end of the time."""
        if limits.seconds is None:
            return wait_s if limits.idle_seconds is None else min(wait_s, limits.idle_seconds)
        return max(0.001, min(wait_s, began + limits.seconds - time.monotonic()))

    def _is_over(self, began: float, heard: float, limits: Limits) -> bool:
        now = time.monotonic()
        return (
            (limits.records is not None and self.records >= limits.records)
            or (limits.seconds is not None and now >= began + limits.seconds)
            or (limits.idle_seconds is not None and now >= heard + limits.idle_seconds)
        )


def _check(partition: Sequence[int] | None, cursor: str | None, *, every: bool, reverse: bool) -> None:
    if partition and every:
        raise UsageError("invalid_argument", "--partition and --all-partitions exclude each other")
    if cursor is not None and reverse:
        raise UsageError("invalid_argument", "--cursor and --reverse exclude each other: a cursor moves forward")


def _tell_start(place: str, asked: Start, found: Start, *, reverse: bool) -> None:
    """Say where reading begins, when that is not where it was asked to."""
    if not isinstance(found, int):
        return  # the broker does not tell
    following = f"the {'last' if reverse else 'next'} record, offset {found}"
    if isinstance(asked, int) and found < asked:
        text = f"offset {asked} is beyond the end of {place}: reading begins with {following}"
    elif isinstance(asked, int) and found > asked:
        text = f"offset {asked} of {place} was removed: reading begins at offset {found}"
    elif isinstance(asked, datetime) and asked > datetime.now(UTC):
        text = f"{asked.isoformat()} is still to come: reading of {place} begins with {following}"
    else:
        return
    sys.stderr.write(f"bascule: {text}\n")


def _check_reader() -> None:
    """Raise `BrokenPipeError` when whoever read our output went away: nothing may come for hours that would tell."""
    output = select.poll()
    output.register(STANDARD_OUTPUT, 0)
    if any(found & select.POLLERR for _, found in output.poll(0)):
        raise BrokenPipeError


def _numbers(client: Client, stream: str, chosen: Sequence[int] | None, *, every: bool) -> list[int]:
    if every:
        return [partition.number for partition in client.get_stream(stream).partitions]
    return sorted(set(chosen)) if chosen else [0]


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = int(str(parse_duration_ms(text))) / 1000
    except ValueError as wrong:
        raise UsageError("invalid_argument", f"{option}: {wrong}") from None
    if seconds <= 0:
        raise UsageError("invalid_argument", f'{option} "{text}" is to be more than nothing')
    return seconds
