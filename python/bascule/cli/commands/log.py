"""`bascule log verify | inspect | repair`: the data directory of a stopped broker."""

# ruff: noqa: PLR0913 (a command has its options as parameters)

import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self, cast

import typer

from bascule import engine
from bascule.cli.command_group import Commands
from bascule.cli.commands.backup import check_backup
from bascule.cli.options import Output, as_path
from bascule.cli.render.output import OutputFormat, render
from bascule.errors import UsageError

__all__ = ["app"]

DAMAGED: Final = 1

app: Final = Commands(help="Check, inspect and repair the logs of a data directory while no broker uses it.")

Where = Annotated[
    Path,
    typer.Argument(
        parser=as_path,
        metavar="PATH",
        help="A data directory, or one log of it: <data>/partitions/<incarnation>, <data>/metadata/log.",
    ),
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem that was found."""

    kind: str
    path: str
    position: int
    start: int
    """First lost offset; `end` is exclusive."""
    end: int
    what: str
    effect: str
    next: str
    """The command that repairs it; empty if nothing has to be done."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """A row of a document."""
        return cls(**{name: document[name] for name in cls.__dataclass_fields__})


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of `log verify`."""

    path: str
    damaged: bool
    segments: int
    batches: int
    records: int
    bytes: int
    seconds: float
    journal: str | None
    """Directory of the journal that was checked; `None` = none: the log is not in a data directory."""
    journal_frames: int
    """Number of complete frames in it, including those that are already in segments."""
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Action:
    """One step of `log repair`, made or (with `--dry-run`) proposed."""

    what: str
    path: str
    detail: str


@dataclass(frozen=True, slots=True)
class Repaired:
    """The result of `log repair`."""

    path: str
    dry_run: bool
    damaged: bool
    """Whether no record is lost."""
    actions: tuple[Action, ...]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Log:
    """One row of `log inspect`."""

    namespace: str | None
    stream: str | None
    """`None` = the metadata log, or not known; standard error and JSON (`unnamed`) have the reason."""
    partition: int
    incarnation: int
    """Name of the directory."""
    segments: int
    bytes: int
    batches: int
    records: int
    start: int
    end: int
    in_journal: int
    """Number of records after `end` that are in the journal: the next start replays them."""
    durable: int | None
    clean: bool | None
    epochs: int
    damaged_ranges: int


@app.command()
def verify(path: Where, output: Output = OutputFormat.TABLE) -> int:
    """Read and check every batch, every checksum, every derived file, and the journal. Changes nothing.

    For a single log, the part of its data directory's journal that belongs to it is checked too. Exits with 0 if no
    record is lost and 1 if some are. Files that a broker rebuilds automatically are listed as well.

    Examples:
        bascule log verify bascule-data

        bascule log verify bascule-data --output json
    """
    document = engine.verify_log(str(path))
    totals = ("segments", "batches", "records", "bytes")
    journal = document["journal"]
    if journal is None:
        sys.stderr.write("bascule: no journal was checked: this log has none, or is not in a data directory\n")
    result = Verified(
        path=document["path"],
        damaged=document["damaged"],
        **{name: document[name] for name in totals},
        seconds=round(document["seconds"], 3),
        journal=None if journal is None else journal["path"],
        journal_frames=0 if journal is None else journal["frames"],
        findings=tuple(_findings([document, *document["logs"]])),
    )
    render(result, output)
    return DAMAGED if result.damaged else 0


@app.command()
def inspect(
    path: Where,
    *,
    stream: Annotated[
        str | None, typer.Option("--stream", "-s", help="In a data directory: the logs of this stream.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="With --stream: the log of this partition.")
    ] = None,
    start: Annotated[int, typer.Option("--from", min=0, help="List batches of a single log from this offset on.")] = 0,
    limit: Annotated[int, typer.Option(min=0, help="Maximum number of batches.")] = 20,
    batches: Annotated[bool, typer.Option("--batches", help="For a single log: its batches.")] = False,
    segments: Annotated[bool, typer.Option("--segments", help="For a single log: its segments.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the content of logs: segments, batches, epochs, producers, checkpoint, quarantine, journal.

    Names come from the metadata of the data directory; a log that is not in it is shown by its incarnation.
    JSON and YAML contain everything.

    Examples:
        bascule log inspect bascule-data

        bascule log inspect bascule-data --stream orders --partition 0 --batches
    """
    if partition is not None and stream is None:
        raise UsageError("invalid_argument", f"--partition {partition} needs --stream: name the stream")
    if stream is not None and path.is_dir() and not (path / "partitions").is_dir():
        raise UsageError(
            "invalid_argument", f"--stream selects from a data directory, which {path} is not: leave it out"
        )
    document = _inspect(path, stream, partition, start, limit)
    if (batches or segments) and stream is not None and len(document["logs"]) > 1:
        text = f"stream {stream} has {len(document['logs'])} partitions here: name one with --partition"
        raise UsageError("invalid_argument", text)
    if output in (OutputFormat.JSON, OutputFormat.YAML):
        render(document, output)
    elif batches:
        _report_journal(document)
        render(_column(document, "batches"), output)
    elif segments:
        _report_journal(document)
        rows = [dict(row) for row in _column(document, "segments")]
        for row in rows:
            row["damages"] = len(row["damages"])
        render(rows, output)
    else:
        render([_log(log) for log in document["logs"]], output)
        _report_unnamed(document)


@app.command()
def repair(
    path: Where,
    *,
    backup: Annotated[
        Path | None,
        typer.Option(
            "--from",
            parser=as_path,
            metavar="PATH",
            help="A copy of the same directory, from which damaged sealed segments are restored.",
        ),
    ] = None,
    cut_at: Annotated[
        int | None,
        typer.Option(min=0, help="For a single log: move the batch that begins here and all later ones to aside/."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")] = False,
    output: Output = OutputFormat.TABLE,
) -> int:
    """Repair damage where possible. Nothing is deleted: removed files are moved to `aside/` in the log's directory.

    Exits with 0 if no record is lost afterwards and 1 if some are; readers of those offsets get an error.

    Examples:
        bascule log repair bascule-data --dry-run

        bascule log repair bascule-data --from backup/bascule-data --dry-run
    """
    taken = None if backup is None or not path.exists() else str(check_backup(path, backup))
    request = {"dry_run": dry_run, "from": taken, "cut_at": cut_at}
    document = engine.repair_log(str(path), request, time.time_ns())
    actions = [Action(**action) for log in document["logs"] for action in log.get("actions", ())]
    result = Repaired(
        document["path"], dry_run, document["damaged"], tuple(actions), tuple(_findings([document, *document["logs"]]))
    )
    render(result, output)
    return DAMAGED if result.damaged else 0


def _findings(documents: Iterable[Mapping[str, Any]]) -> Iterable[Finding]:
    for document in documents:
        yield from (Finding.of(found) for found in document["findings"])


def _inspect(path: Path, stream: str | None, partition: int | None, start: int, limit: int) -> dict[str, Any]:
    """The engine's document; each log has `namespace`, `stream` and `unnamed` (why it has no name)."""
    from bascule.cli.commands.log_names import read_names  # noqa: PLC0415 (replays metadata: other commands start without it)

    document: dict[str, Any]
    if stream is None:
        document = engine.inspect_log(str(path), start, limit)
        names = read_names(str(path))
    else:
        names = read_names(str(path))
        places = [path / "partitions" / str(incarnation) for incarnation in names.select(stream, partition)]
        found = [engine.inspect_log(str(place), start, limit) for place in places]
        logs = [log for one in found for log in one["logs"]]
        document = {"path": str(path), "logs": logs}
    for log in document["logs"]:
        name = names.names.get(log["incarnation"])
        log["namespace"], log["stream"] = (name.namespace, name.stream) if name else (None, None)
        log["unnamed"] = names.why_unnamed(log["incarnation"])
    return document


def _report_unnamed(document: Mapping[str, Any]) -> None:
    """Report on standard error which logs have no name, and why."""
    by_reason: dict[str, list[str]] = {}
    for log in document["logs"]:
        if log["unnamed"] is not None:
            by_reason.setdefault(log["unnamed"], []).append(str(log["incarnation"]))
    for reason, incarnations in by_reason.items():
        sys.stderr.write(f"bascule: no stream name for {', '.join(incarnations)}: {reason}\n")


def _column(document: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    return [row for log in document["logs"] for row in cast("list[dict[str, Any]]", log[name])]


def _frames(log: Mapping[str, Any]) -> list[dict[str, int]]:
    return log["journal"]["frames"] if log["journal"] else []


def _report_journal(document: Mapping[str, Any]) -> None:
    """Report on standard error which records are only in the journal."""
    for log in document["logs"]:
        frames = _frames(log)
        if frames:
            text = f"the journal has offsets {frames[0]['start']} to {frames[-1]['end'] - 1} of {log['directory']}"
            sys.stderr.write(f"bascule: {text}, which the next start replays\n")


def _log(log: Mapping[str, Any]) -> Log:
    segments = cast("list[dict[str, Any]]", log["segments"])
    checkpoint = cast("dict[str, Any]", log["checkpoint"] or {})
    return Log(
        namespace=log["namespace"],
        stream=log["stream"],
        partition=log["partition"],
        incarnation=log["incarnation"],
        segments=len(segments),
        bytes=sum(row["bytes"] for row in segments),
        batches=sum(row["batches"] for row in segments),
        records=sum(row["records"] for row in segments),
        start=checkpoint.get("log_start", segments[0]["base_offset"] if segments else 0),
        end=segments[-1]["next_offset"] if segments else 0,
        in_journal=sum(frame["end"] - frame["start"] for frame in _frames(log)),
        durable=checkpoint.get("durable"),
        clean=checkpoint.get("clean"),
        epochs=len(log["epochs"]),
        damaged_ranges=sum(len(row["damages"]) for row in segments),
    )
