"""`bascule stream edit | pause | resume | readonly`."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from bascule.cli.commands.completion import StreamName
from bascule.cli.commands.stream_settings import SETTINGS, Given, stored, with_settings
from bascule.cli.connection import Connection, connected
from bascule.cli.options import DryRun, Output, Partitions
from bascule.cli.render.output import OutputFormat, render
from bascule.client import Client
from bascule.client.tooling import no_partition
from bascule.errors import UsageError

__all__ = ["edit", "pause", "readonly", "resume"]

INTERNAL_STREAMS: Final = frozenset({"__activity", "__cursors"})


@dataclass(frozen=True, slots=True)
class SettingChange:
    """A change of a setting, made or (with `--dry-run`) proposed; `None` = as in the broker's configuration."""

    stream: str
    setting: str
    before: Any
    after: Any
    dry_run: bool


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """A change of partitions, made or (with `--dry-run`) proposed."""

    action: str
    name: str
    partition_numbers: tuple[int, ...]
    dry_run: bool


@connected()
@with_settings
def edit(
    settings: Given,
    connection: Connection,
    name: StreamName,
    *,
    reset: Annotated[
        list[str] | None,
        typer.Option("--reset", help="Setting to reset to the broker's configuration; repeatable."),
    ] = None,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Change settings of a stream while it runs. Encryption, partitions and the subject cannot be changed.

    Examples:
        bascule stream edit orders --retention-max-age 30d --dry-run

        bascule stream edit orders --codec zstd --reset retention-max-bytes
    """
    changes = {**stored(settings), **_reset(reset or [], settings)}
    if not changes:
        known = ", ".join("--" + setting.name.replace("_", "-") for setting in SETTINGS)
        raise UsageError("invalid_argument", f"there is nothing to change: use one of {known}, --reset")
    with connection.open() as client:
        before, after = client.edit_stream(name, changes, dry_run=dry_run)
    changed = "nothing would change" if dry_run else "nothing changed"
    render(
        _changes(name, before, after, dry_run=dry_run),
        output,
        f"{changed}: stream {name} already has these settings",
    )


@connected()
def pause(
    connection: Connection,
    name: StreamName,
    *,
    partition: Partitions = None,
    resume_all: Annotated[
        bool, typer.Option("--resume-all", help="A publish to any partition resumes all paused ones.")
    ] = False,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Close partitions: subscriptions end, NATS messages are not stored. A publish resumes a partition.

    Examples:
        bascule stream pause orders

        bascule stream pause orders --partition 0 --partition 2 --dry-run
    """
    with connection.open() as client:
        numbers = _numbers(client, name, partition)
        if not dry_run:
            client.pause_stream(name, partitions=numbers, resume_all=resume_all)
    render(PartitionChange("pause", name, numbers, dry_run), output)


@connected()
def resume(
    connection: Connection,
    name: StreamName,
    *,
    partition: Partitions = None,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Resume paused partitions: all, or the named ones. Shows the resumed ones.

    Examples:
        bascule stream resume orders

        bascule stream resume orders --partition 2 --dry-run
    """
    with connection.open() as client:
        numbers = client.resume_stream(name, partitions=partition or (), dry_run=dry_run)
    render(PartitionChange("resume", name, numbers, dry_run), output)


@connected()
def readonly(
    connection: Connection,
    name: StreamName,
    *,
    off: Annotated[bool, typer.Option("--off", help="Make them writable again.")] = False,
    partition: Partitions = None,
    dry_run: DryRun = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Make partitions read-only; reading one ends at its end. `--off` makes them writable again.

    Internal streams of the broker cannot be read-only: cursors and events could not be stored.

    Examples:
        bascule stream readonly orders

        bascule stream readonly orders --off --partition 0
    """
    if name in INTERNAL_STREAMS and not off:
        text = f"stream {name} is internal and stays writable: the broker could not store cursors or events"
        raise UsageError("invalid_argument", text, {"stream": name})
    with connection.open() as client:
        numbers = _numbers(client, name, partition)
        if not dry_run:
            client.set_readonly(name, not off, partitions=numbers)
    render(PartitionChange("writable" if off else "readonly", name, numbers, dry_run), output)


def _reset(names: Sequence[str], given: Given) -> dict[str, None]:
    known = {setting.name: setting for setting in SETTINGS if setting.choices is None and setting.name != _NEVER_NULL}
    reset: dict[str, None] = {}
    for text in names:
        name = text.removeprefix("--").replace("-", "_")
        if name not in known:
            shown = ", ".join(sorted(key.replace("_", "-") for key in known))
            raise UsageError("invalid_argument", f'--reset "{text}" is not one of {shown}')
        if name in given:
            raise UsageError("invalid_argument", f"--{name.replace('_', '-')} and --reset {text} cannot be combined")
        reset[known[name].stored] = None
    return reset


_NEVER_NULL = "concurrency_control"
"""Settings that are stored with each stream at its creation."""


def _changes(name: str, before: Mapping[str, Any], after: Mapping[str, Any], *, dry_run: bool) -> list[SettingChange]:
    return [
        SettingChange(name, setting, before[setting], after[setting], dry_run)
        for setting in after
        if before[setting] != after[setting]
    ]


def _numbers(client: Client, name: str, chosen: Sequence[int] | None) -> tuple[int, ...]:
    """The chosen partitions, ascending; none chosen = all.

    Raises:
        StateError: codes `stream_not_found`, `partition_not_found`.
    """
    count = len(client.get_stream(name).partitions)
    for number in chosen or ():
        if number >= count:
            raise no_partition(name, number, count)
    return tuple(sorted(set(chosen))) if chosen else tuple(range(count))
