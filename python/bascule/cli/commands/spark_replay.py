"""`bascule spark replay | copy | redrive`: records of an archive, a stream or dead letters into streams."""

# ruff: noqa: PLR0913, PLR0917 (a command has its options as parameters)
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from bascule._text import counted
from bascule.cli.connection import Connection, connected
from bascule.cli.options import Output, pairs
from bascule.cli.render.output import OutputFormat, render
from bascule.spark.spelling import surface

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bascule.spark.replaying.letter_counts import RedrivePreview
    from bascule.spark.replaying.preview import Preview, Progress

__all__ = ["copy", "redrive", "replay"]

FLAGS: Final = {
    "path": "argument ARCHIVE",
    "tableFormat": "--format",
    "leaveOut": "--leave-out",
    "maxRowsPerSecond": "--max-rows-per-second",
    "repartition": "--repartition",
    "address": "--url",
    "error_class": "--error-class",
    **dict.fromkeys(("fromOffset", "fromTime"), "--from"),
    **dict.fromkeys(("toOffset", "toTime"), "--until"),
    **{name: f"--{name}" for name in ("id", "to", "checkpoint", "job", "stream")},
}
"""How these commands spell options; others are given by `--option`."""
OF_REDRIVE: Final = {name: flag for name, flag in FLAGS.items() if name not in {"leaveOut", "repartition"}}
REFUSED: Final = 1
"""Exit code of a dry run whose replay would be refused."""

To = Annotated[str, typer.Option("--to", help="Stream to write to; it exists.")]
Id = Annotated[str, typer.Option("--id", help="Names the replay at the broker; the same again continues it.")]
Checkpoint = Annotated[
    str, typer.Option("--checkpoint", help="Folder, or s3://bucket/folder, that keeps what is replayed and how far.")
]
From = Annotated[
    str | None, typer.Option("--from", help="First offset of each partition, or first receipt time with a zone.")
]
Until = Annotated[
    str | None, typer.Option("--until", help="Offset of each partition, or receipt time, before which to end.")
]
LeaveOut = Annotated[
    str | None, typer.Option("--leave-out", help="What may be lost: columns, and header_names; separated by commas.")
]
Repartition = Annotated[bool, typer.Option("--repartition", help="Choose partitions by key.")]
Rate = Annotated[int | None, typer.Option("--max-rows-per-second", min=1, help="Rows in a second, at most.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Write nothing: print the counts, what is lost, and what would be refused.")
]
More = Annotated[list[str] | None, typer.Option("--option", help="NAME=VALUE: any other option; repeatable.")]
Master = Annotated[str, typer.Option("--master", help="Spark's master URL.")]


@connected()
@surface(FLAGS)
def replay(
    connection: Connection,
    archive: Annotated[str, typer.Argument(help="Folder of the archive, s3://bucket/folder, or of Iceberg its name.")],
    to: To,
    id: Id,  # noqa: A002 - the word for it
    checkpoint: Checkpoint,
    stream: Annotated[str | None, typer.Option("--stream", help="Stream in the archive, if it has several.")] = None,
    format: Annotated[str, typer.Option("--format", help="delta, iceberg or parquet.")] = "delta",  # noqa: A002
    start: From = None,
    until: Until = None,
    leave_out: LeaveOut = None,
    repartition: Repartition = False,
    rate: Rate = None,
    option: More = None,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    output: Output = OutputFormat.TABLE,
) -> int:
    """Write the records of an archive to a stream with Spark, each exactly once. The same command continues a replay
    that was killed. A terminal shows the progress in one line.

    Examples:
        bascule spark replay lake/orders --to orders --id restore-1 --checkpoint lake/restore-1 --dry-run

        bascule spark replay lake/orders --to orders --id restore-1 --checkpoint lake/restore-1 --leave-out reply,id
    """
    options = chosen(connection, option, start, until, leave_out, rate, repartition=repartition)
    source: dict[str, Any] = {"archive": archive, "to": to, "stream": stream, "format": format}
    from bascule.spark.replaying import api  # noqa: PLC0415 - imports what other commands do not need

    spark = _session(master)
    if dry_run:
        return shown(api.replay_preview(spark, **source, **options), output)
    line = progress_line()
    try:
        outcome = api.replay(spark, **source, id=id, checkpoint=checkpoint, on_progress=line, **options)
    finally:
        line.close()
    render(outcome, output)
    return 0


@connected()
@surface(FLAGS)
def copy(
    connection: Connection,
    stream: Annotated[str, typer.Argument(help="Stream to read.")],
    to: To,
    id: Id,  # noqa: A002 - the word for it
    checkpoint: Checkpoint,
    start: From = None,
    until: Until = None,
    leave_out: LeaveOut = None,
    repartition: Repartition = False,
    rate: Rate = None,
    option: More = None,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    output: Output = OutputFormat.TABLE,
) -> int:
    """Write the records that a stream has now to another one with Spark, each exactly once. The same command continues
    a copy that was killed.

    Examples:
        bascule spark copy orders --to orders-wide --id widen-1 --checkpoint lake/widen-1 --repartition --dry-run

        bascule spark copy orders --to orders-wide --id widen-1 --checkpoint lake/widen-1 --repartition
    """
    options = chosen(connection, option, start, until, leave_out, rate, repartition=repartition)
    from bascule.spark.replaying import copies  # noqa: PLC0415 - imports what other commands do not need

    if dry_run:
        return shown(copies.copy_preview(stream=stream, to=to, **options), output)
    line = progress_line()
    try:
        outcome = copies.copy(
            _session(master), stream=stream, to=to, id=id, checkpoint=checkpoint, on_progress=line, **options
        )
    finally:
        line.close()
    render(outcome, output)
    return 0


@connected()
@surface(OF_REDRIVE)
def redrive(
    connection: Connection,
    letters: Annotated[str, typer.Argument(help="Stream of dead letters.")],
    id: Id,  # noqa: A002 - the word for it
    checkpoint: Checkpoint,
    to: Annotated[str | None, typer.Option("--to", help="Stream for all; else each goes to the one it names.")] = None,
    error_class: Annotated[list[str] | None, typer.Option("--error-class", help="Only these; repeatable.")] = None,
    job: Annotated[list[str] | None, typer.Option("--job", help="Only of these jobs or sinks; repeatable.")] = None,
    stream: Annotated[
        list[str] | None, typer.Option("--stream", help="Only letters that name these streams; repeatable.")
    ] = None,
    start: From = None,
    until: Until = None,
    rate: Rate = None,
    option: More = None,
    dry_run: DryRun = False,
    master: Master = "local[*]",
    output: Output = OutputFormat.TABLE,
) -> int:
    """Write the records of dead letters to their streams again with Spark, each exactly once.

    Examples:
        bascule spark redrive orders-dead --id fix-1 --checkpoint lake/fix-1 --error-class MalformedJson --dry-run

        bascule spark redrive orders-dead --id fix-1 --checkpoint lake/fix-1 --error-class MalformedJson
    """
    options = chosen(connection, option, start, until, None, rate, repartition=False)
    wanted: dict[str, Any] = {
        "error_class": tuple(error_class or ()),
        "job": tuple(job or ()),
        "stream": tuple(stream or ()),
    }
    from bascule.spark.replaying import redriving  # noqa: PLC0415 - imports what other commands do not need

    spark = _session(master)
    if dry_run:
        preview = redriving.redrive_preview(spark, letters=letters, to=to, **wanted, **options)
        render(preview.counts if output is OutputFormat.TABLE else preview, output, preview.why_none)
        if output is OutputFormat.TABLE:
            sys.stdout.writelines(f"{each}\n" for each in not_whole(preview))
        return 0
    line = progress_line()
    try:
        outcome = redriving.redrive(
            spark, letters=letters, to=to, id=id, checkpoint=checkpoint, on_progress=line, **wanted, **options
        )
    finally:
        line.close()
    render(outcome, output)
    return 0


def chosen(
    connection: Connection,
    option: list[str] | None,
    start: str | None,
    until: str | None,
    leave_out: str | None,
    rate: int | None,
    *,
    repartition: bool,
) -> dict[str, Any]:
    """The options by their names in Spark."""
    given: dict[str, Any] = {"address": connection.spark_address, **pairs("--option", option)}
    for name, text in (("from", start), ("to", until)):
        if text is not None:
            given[f"{name}Offset" if text.isdecimal() else f"{name}Time"] = text
    named = {"leaveOut": leave_out, "maxRowsPerSecond": rate, "repartition": True if repartition else None}
    return {**given, **{name: value for name, value in named.items() if value is not None}}


def shown(preview: "Preview", output: OutputFormat) -> int:
    """Print a preview; the exit code of the dry run."""
    if output is not OutputFormat.TABLE:
        render(preview, output)
    else:
        render(preview.partitions, output, "no records")
        lines = [f"{preview.rows:,} rows of stream {preview.stream} to stream {preview.to}"]
        lines += [f"not kept: {each}" for each in preview.lost]
        lines += [f"refused: {each}" for each in preview.refused]
        sys.stdout.writelines(f"{each}\n" for each in lines)
    return REFUSED if preview.refused else 0


def not_whole(preview: "RedrivePreview") -> list[str]:
    """What of the chosen letters cannot be driven again."""
    lines: list[str] = []
    if preview.cut:
        lines.append(f"cut: {counted(preview.cut, 'letter')} with only a part of the record; skipCut leaves them out")
    if preview.malformed:
        lines.append(f"malformed: {counted(preview.malformed, 'letter')}; {preview.malformed_first}")
    return lines


def progress_line() -> Any:
    """What shows the progress: a line on a terminal."""
    from bascule.pipeline.progress import Line, clock  # noqa: PLC0415 - as above

    def text_of(progress: "Progress") -> str:
        share = f"{progress.total_rows:,} of {progress.expected_rows:,} rows"
        left = "" if progress.eta_s is None else f", {clock(progress.eta_s)} left"
        return f"{progress.id}: epoch {progress.epoch}, {share}, {progress.rows_per_second:,.0f} rows/s{left}"

    return Line(text=text_of)


def _session(master: str) -> "SparkSession":
    from bascule.spark.sessions import session  # noqa: PLC0415 - as above

    return session("replay", master=master, config={"spark.ui.enabled": False})
