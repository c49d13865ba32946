"""`bascule group list | show | members | reset | delete`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Final

import typer

from bascule._text import counted
from bascule.cli.command_group import Commands
from bascule.cli.commands.group_positions import Move, move, planned
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output, Partitions, Yes
from bascule.cli.prompt import ask
from bascule.cli.records.positions import parse_start
from bascule.cli.render.output import OutputFormat, render
from bascule.client import Client, CursorEntry, GroupDetails, group_cursor
from bascule.errors import StateError, UsageError

__all__ = ["app"]

app: Final = Commands(help="Show consumer groups and change their positions.")

PREFIX: Final = "__group:"

Group = Annotated[str, typer.Argument(help="Id of the group.")]


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group."""

    group: str
    state: str
    """`active` = it has members; `empty` = it has only stored positions."""
    members: int
    partitions: int
    """Streams in which it has a position."""
    coordinator: str
    epoch: int | None


@dataclass(frozen=True, slots=True)
class PositionRow:
    """The position of a group in a partition; `None` = there is none, or the partition is not open."""

    stream: str
    partition: int
    member: str | None
    next_offset: int | None
    high_watermark: int | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class GroupView:
    """The result of `group show`."""

    group: str
    state: str
    coordinator: str
    epoch: int | None
    members: int
    lag: int
    """Number of records after the group's positions, in total."""
    positions: tuple[PositionRow, ...]


@dataclass(frozen=True, slots=True)
class DeletedPosition:
    """A position that `group delete` removed or (with `--dry-run`) would remove."""

    group: str
    stream: str
    partition: int
    next_offset: int
    """Offset of the next record that the group would have read."""
    dry_run: bool


@dataclass(frozen=True, slots=True)
class MemberRow:
    """One member."""

    member: str
    streams: tuple[str, ...]
    """Streams that it subscribed to."""
    reads: tuple[str, ...]
    """Partitions that it reads, as stream/partition."""


@app.command("list")
@connected()
def list_all(connection: Connection, output: Output = OutputFormat.TABLE) -> None:
    """List consumer groups that have members or stored positions.

    Examples:
        bascule group list

        bascule group list --output json
    """
    with connection.open() as client:
        active = {group.id: group for group in client.describe_groups()}
        positions = _positions(client)
    names = {*active, *(entry.cursor.removeprefix(PREFIX) for entry in positions)}
    render([_row(name, active.get(name), positions) for name in sorted(names)], output)


@app.command()
@connected()
def show(connection: Connection, group: Group, output: Output = OutputFormat.TABLE) -> None:
    """Show the position and lag of a group in each partition.

    Examples:
        bascule group show billing

        bascule group show billing --output yaml
    """
    with connection.open() as client:
        details, positions = _find(client, group)
        rows = _position_rows(client, details, positions)
    row = _row(group, details, positions)
    lag = sum(item.lag or 0 for item in rows)
    view = GroupView(group, row.state, row.coordinator, row.epoch, row.members, lag, tuple(rows))
    render(view if output in {OutputFormat.JSON, OutputFormat.YAML, OutputFormat.TABLE} else view.positions, output)


@app.command()
@connected()
def members(connection: Connection, group: Group, output: Output = OutputFormat.TABLE) -> None:
    """List the members of a group and the partitions of each. Exits with 3 if it has none.

    Examples:
        bascule group members billing

        bascule group members billing --output json
    """
    group_cursor(group)  # rejects an invalid id
    with connection.open() as client:
        found = client.describe_groups([group])
    if not found:
        text = f'consumer group "{group}" has no members: see bascule group list'
        raise StateError("not_found", text, {"group": group})
    rows = [
        MemberRow(
            member.id,
            member.streams,
            tuple(f"{stream}/{number}" for stream, numbers in member.assignments.items() for number in numbers),
        )
        for member in found[0].members
    ]
    render(rows, output)


@app.command()
@connected()
def reset(
    connection: Connection,
    group: Group,
    *,
    to: Annotated[str, typer.Option(help="earliest, latest, an offset, a time, or one ago like -2h.")],
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", help="Only this stream; repeatable. [default: streams with a position]"),
    ] = None,
    partition: Partitions = None,
    force: Annotated[
        bool, typer.Option("--force", help="Even if it has members, which may store their own positions afterwards.")
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Move the positions of a group, or store its first ones with `--stream`. Fails if it has members. Asks first,
    unless `--yes`.

    Examples:
        bascule group reset billing --to earliest --dry-run

        bascule group reset billing --to 2026-01-31T12:00:00Z --stream orders --yes
    """
    target = parse_start(to)
    if target == "new":
        raise UsageError("invalid_argument", '--to "new" is not a position: latest is the end of the stream')
    with connection.open() as client:
        active = client.describe_groups([group])
        if active and not force:
            count = len(active[0].members)
            members = counted(count, "member")
            text = f'consumer group "{group}" has {members}, which store their own positions: stop them first'
            raise StateError("failed_precondition", text, {"group": group, "members": count})
        positions = _stored(client, group)
        streams = stream or sorted({entry.stream for entry in positions})
        if not streams:
            text = f'consumer group "{group}" has no positions: name its streams with --stream'
            raise StateError("not_found", text, {"group": group})
        steps = planned(client, group, streams, partition or (), target)
        moves = [step for step in steps if step.before != step.after]
        is_new = not active and not positions
        if moves and not dry_run:
            what = f"{counted(len(moves), 'position')} of {'the new ' if is_new else ''}group {group}"
            ask(f"Move {what}?", name=group, connection=connection, yes=yes)
            for step in moves:
                move(client, step)
    if is_new:
        _report(f"consumer group {group} had neither members nor positions so far; see bascule group list")
    _report_removed(steps)
    render([replace(step, dry_run=dry_run) for step in steps], output)


@app.command()
@connected()
def delete(
    connection: Connection,
    group: Group,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Delete all positions of a group. Fails if it has members. Asks first, unless `--yes`.

    Examples:
        bascule group delete billing --dry-run

        bascule group delete billing --yes
    """
    with connection.open() as client:
        details, positions = _find(client, group)
        if details is not None:
            count = len(details.members)
            text = f'consumer group "{group}" has {counted(count, "member")}: stop them first'
            raise StateError("failed_precondition", text, {"group": group, "members": count})
        if not dry_run:
            what = counted(len(positions), "position")
            ask(f"Delete group {group} with {what}?", name=group, connection=connection, yes=yes)
            for entry in positions:
                client.set_cursor(entry.cursor, entry.stream, None, partition=entry.partition)
    render(
        [DeletedPosition(group, item.stream, item.partition, item.offset + 1, dry_run) for item in positions], output
    )


def _report_removed(steps: Sequence[Move]) -> None:
    for step in steps:
        if step.after is None:
            place = f"partition {step.partition} of {step.stream}"
            change = "still has no" if step.before is None else "keeps no"
            _report(
                f"a position before offset 0 cannot be stored, so the group {change} position in {place}: "
                "its members begin there as configured"
            )


def _report(sentence: str) -> None:
    sys.stderr.write(f"bascule: {sentence}\n")


def _positions(client: Client, group: str | None = None) -> list[CursorEntry]:
    """Stored positions of a group, or of all groups; none if the broker keeps no cursors."""
    try:
        return _stored(client, group)
    except StateError as failure:
        if failure.code != "failed_precondition":
            raise
        return []


def _stored(client: Client, group: str | None) -> list[CursorEntry]:
    """Stored positions of a group, or of all groups.

    Raises:
        StateError: code `failed_precondition`: the broker keeps no cursors.
    """
    wanted = None if group is None else group_cursor(group)
    return [entry for entry in client.list_cursors(prefix=wanted or PREFIX) if wanted in {None, entry.cursor}]


def _find(client: Client, group: str) -> tuple[GroupDetails | None, list[CursorEntry]]:
    """The members and the positions of a group.

    Raises:
        StateError: code `not_found`: it has neither.
    """
    active, positions = client.describe_groups([group]), _positions(client, group)
    if not active and not positions:
        text = f'consumer group "{group}" does not exist: it has neither members nor positions; see bascule group list'
        raise StateError("not_found", text, {"group": group})
    return (active[0] if active else None), positions


def _row(name: str, details: GroupDetails | None, positions: Sequence[CursorEntry]) -> GroupRow:
    count = sum(1 for entry in positions if entry.cursor == group_cursor(name))
    if details is None:
        return GroupRow(name, "empty", 0, count, "", None)
    return GroupRow(name, "active", len(details.members), count, details.coordinator, details.epoch)


def _position_rows(client: Client, details: GroupDetails | None, positions: Sequence[CursorEntry]) -> list[PositionRow]:
    readers = {
        (stream, number): member.id
        for member in (details.members if details is not None else ())
        for stream, numbers in member.assignments.items()
        for number in numbers
    }
    stored = {(entry.stream, entry.partition): entry.offset + 1 for entry in positions}
    ends = {
        (stream.name, partition.number): None if partition.paused else partition.high_watermark
        for stream in client.list_streams()
        for partition in stream.partitions
    }
    rows: list[PositionRow] = []
    for place in sorted({*readers, *stored}):
        following, end = stored.get(place), ends.get(place)
        lag = None if following is None or end is None else max(0, end - following)
        rows.append(PositionRow(*place, readers.get(place), following, end, lag))
    return rows
