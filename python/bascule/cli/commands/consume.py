"""`bascule consume`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from typing import Annotated, Any, Final

import typer

from bascule._units import parse_duration_ms
from bascule.cli.commands.completion import StreamName
from bascule.cli.connection import Connection, connected
from bascule.cli.records.consume_loop import GroupLoop, Limits, PartitionLoop, RecordPrinter, report_start
from bascule.cli.records.pace import Pace
from bascule.cli.records.positions import parse_start, parse_stop
from bascule.cli.records.record_writer import RecordFormat, RecordWriter, record_format, record_writer
from bascule.client import Client, OffsetReset, Subscription
from bascule.client.tooling import Many
from bascule.errors import UsageError

__all__ = ["consume"]

BATCH: Final = 4096
GROUP_STARTS: Final = ("earliest", "latest", "new")


StartAt = Annotated[
    str | None,
    typer.Option(
        help="earliest, latest, new, an offset, a time (local without a zone), or one ago like -15m. "
        "[default: new, or latest]"
    ),
]
StopAt = Annotated[
    str | None,
    typer.Option(help="latest = when caught up; an offset or a time, exclusive; default: wait for new records."),
]
Count = Annotated[int | None, typer.Option("--count", "-n", min=1, help="End after this many records.")]
For = Annotated[str | None, typer.Option("--for", help='End after this time, e.g. "30s".')]
Idle = Annotated[str | None, typer.Option("--idle", help='End when no record came for this time, e.g. "5s".')]
Numbers = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", min=0, help="Only this partition, from 0; repeatable. [default: all]"),
]
All = Annotated[bool, typer.Option("--all-partitions", "-a", help="Read all partitions, as without --partition.")]
Subject = Annotated[
    str | None, typer.Option(help="Only records whose subject matches: * for one token, > at the end for more.")
]
Group = Annotated[
    str | None,
    typer.Option(help="Read as a member of this consumer group and store its positions; --start if it has none."),
]
Cursor = Annotated[
    str | None, typer.Option(help="Continue after this cursor and move it; --start if it was never set.")
]
Commit = Annotated[
    bool, typer.Option("--commit/--no-commit", help="Whether to store the position of the cursor or group.")
]
Reset = Annotated[
    str,
    typer.Option(
        "--auto-offset-reset",
        help="Where to begin if a stored position is beyond the end: error, earliest, latest, or new.",
    ),
]
Reverse = Annotated[bool, typer.Option("--reverse", help="From --start back towards the first record.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume a paused partition.")]
FromReplica = Annotated[bool, typer.Option("--from-replica", help="Any in-sync replica may answer.")]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Maximum records per second.")]
Form = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="FORM|TEMPLATE",
        help=f"{', '.join(RecordFormat)}: the first four print values only, raw without line ends. Or a template "
        'like "%p %o %k %v": %p partition, %o offset, %k key, %h headers, %v value, %t time, %s subject.',
    ),
]
KeySeparator = Annotated[str | None, typer.Option(help="With text, base64 and hex: print KEY, this text, VALUE.")]
Null = Annotated[
    str | None, typer.Option(help="Printed for a null value by text and templates [default: null], base64, hex, raw.")
]


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
    partition: Numbers = None,
    all_partitions: All = False,
    subject: Subject = None,
    group: Group = None,
    cursor: Cursor = None,
    commit: Commit = True,
    auto_offset_reset: Reset = "error",
    reverse: Reverse = False,
    resume: Resume = False,
    from_replica: FromReplica = False,
    rate: Rate = None,
    output: Form = RecordFormat.TEXT,
    key_separator: KeySeparator = None,
    null: Null = None,
) -> None:
    """Print records of all partitions, or of the named ones. Records of one partition stay in order.

    Examples:
        bascule consume orders --start earliest --stop latest

        bascule consume orders --start -15m --subject 'orders.eu.>' --idle 2s --output '%p %o %k %v'
    """
    form = record_format(output)
    _check(partition, cursor, group, every=all_partitions, reverse=reverse)
    limits = Limits(count, _seconds("--for", run_for), _seconds("--idle", idle))
    pace, writer = Pace(rate), record_writer(form, key_separator, null)
    shared: dict[str, Any] = {
        "subject": subject,
        "auto_offset_reset": _reset(auto_offset_reset),
        "resume": resume,
        "batch_records": pace.batch(min(BATCH, count or BATCH)),
    }
    printer = RecordPrinter(writer, pace, limits, is_late=form is RecordFormat.TABLE)
    if group is not None:
        shared["start"] = _group_start(start, stop, from_replica=from_replica)
        with connection.open() as client, closing(writer):
            consumer = client.consumer(group, stream, commit_interval=None, **shared)
            with consumer:
                GroupLoop(consumer, printer, commits=commit).run()
        return
    begin, end = parse_start(start or ("latest" if reverse else "new")), parse_stop(stop)
    shared |= {"start": begin, "stop": end, "cursor": cursor, "reverse": reverse, "from_replica": from_replica}
    with connection.open() as client:
        subscriptions = {
            number: client.subscribe(stream, partition=number, **shared)
            for number in _numbers(client, stream, partition)
        }
        _read_partitions(subscriptions, PartitionLoop(client, stream, cursor if commit else None, printer), writer)


def _read_partitions(subscriptions: Mapping[int, Subscription], loop: PartitionLoop, writer: RecordWriter) -> None:
    with ExitStack() as stack:
        for subscription in subscriptions.values():
            stack.callback(subscription.close)
        many = Many(subscriptions)
        many.open()
        for number, subscription in subscriptions.items():
            options = subscription.reading
            report_start(
                f"partition {number} of {options.stream}", options.start, subscription, reverse=options.reverse
            )
        # if opening fails, nothing is printed, not even an empty list
        stack.enter_context(closing(writer))
        loop.run(many)
        writer.close()
        loop.commit()


def _check(
    partition: Sequence[int] | None, cursor: str | None, group: str | None, *, every: bool, reverse: bool
) -> None:
    if partition and every:
        raise UsageError("invalid_argument", "--partition and --all-partitions cannot be combined")
    if cursor is not None and reverse:
        raise UsageError("invalid_argument", "--cursor and --reverse cannot be combined: a cursor moves forward")
    if group is not None:
        others = {"--partition": bool(partition), "--cursor": cursor is not None, "--reverse": reverse}
        given = [option for option, is_given in others.items() if is_given]
        if given:
            raise UsageError("invalid_argument", f"--group and {given[0]} cannot be combined: the group decides that")


def _group_start(start: str | None, stop: str | None, *, from_replica: bool) -> Any:
    if stop is not None or from_replica:
        option = "--from-replica" if stop is None else "--stop"
        raise UsageError(
            "invalid_argument", f"--group and {option} cannot be combined; --count, --for and --idle end it"
        )
    chosen = start or "new"
    if chosen not in GROUP_STARTS:
        text = f'--start "{chosen}": with --group it is earliest, latest or new'
        raise UsageError("invalid_argument", text)
    return chosen


def _reset(text: str) -> OffsetReset:
    match text:
        case "error" | "earliest" | "latest" | "new":
            return text
        case _:
            raise UsageError(
                "invalid_argument", f'--auto-offset-reset "{text}" is not one of: error, earliest, latest, new'
            )


def _numbers(client: Client, stream: str, chosen: Sequence[int] | None) -> list[int]:
    if chosen:
        return sorted(set(chosen))
    return [partition.number for partition in client.get_stream(stream).partitions]


def _seconds(option: str, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = int(str(parse_duration_ms(text))) / 1000
    except ValueError as wrong:
        raise UsageError("invalid_argument", f"{option}: {wrong}") from None
    if seconds <= 0:
        raise UsageError("invalid_argument", f'{option} "{text}" must be above 0')
    return seconds
