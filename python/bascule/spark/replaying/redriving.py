"""`bascule.spark.redrive`: the records of dead letters, as they were, back to their streams or to another one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bascule._text import counted as quantity
from bascule.errors import StateError
from bascule.spark.reaching import check_reached
from bascule.spark.replaying.api import asked_of, new_plan, storage_at, texts
from bascule.spark.replaying.checkpoint import Plan
from bascule.spark.replaying.lanes import lanes_of
from bascule.spark.replaying.letter_counts import KEEPING, RedrivePreview, Summary, summary_of
from bascule.spark.replaying.letter_plans import COUNTED, Counted, LetterCheckpoint
from bascule.spark.replaying.letter_rows import Filter, LetterShape, cut
from bascule.spark.replaying.options import (
    ARGUMENTS,
    HEADER_NAMES,
    LEAVE_OUT,
    REDRIVE,
    SKIP_CUT,
    SKIP_MALFORMED,
    Bounds,
    TransferOptions,
    parse_transfer,
)
from bascule.spark.replaying.preview import Outcome
from bascule.spark.replaying.rows import Shape
from bascule.spark.replaying.streams import COLUMNS, StreamReader, contents, source_options
from bascule.spark.replaying.transfer import OnProgress, Transfer
from bascule.spark.replaying.unchosen import why_none
from bascule.spark.spelling import named, surface
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@surface(ARGUMENTS)
def redrive(  # noqa: PLR0913 - all by name
    spark: "SparkSession",
    *,
    letters: str,
    id: str,  # noqa: A002 - the word for it
    checkpoint: str,
    to: str | None = None,
    error_class: str | Sequence[str] = (),
    job: str | Sequence[str] = (),
    stream: str | Sequence[str] = (),
    on_progress: OnProgress | None = None,
    **options: str | float | bool,
) -> Outcome:
    """Write the records of dead letters to streams again, each exactly once.

    A record gets its key, value, headers, subject and time as they were, and behind its headers
    `bascule.redrive.id`, `.stream`, `.partition` and `.offset`: of this call, and of the letter. The letters stay where
    they are. A second run with the same id writes none of them again, also of those that came later, and needs none of
    those that earlier runs have written.

    Args:
        spark: the session.
        letters: the stream of dead letters of a job or of the sink.
        id: names the re-drive: 1 to 64 letters, digits, `_`, `.` or `-`.
        checkpoint: folder of this re-drive; it belongs to the id.
        to: the stream for all records; None = each goes to the stream that its letter names: that which a job read it
            from, or to which the sink was to write it.
        error_class: only letters with this class or one of these; of the sink's letters, error codes.
        job: only letters of these jobs or sinks.
        stream: only letters that name one of these streams.
        on_progress: called after each epoch.
        **options: see [the options](../reference/spark-options.md#re-drive); `fromTime` and `toTime` are those at which
            the letters were stored.

    Returns:
        What all runs have written.

    Raises:
        UsageError: an option is wrong, or no letter is chosen.
        StateError: a letter was cut and `skipCut` is not set, or is malformed and `skipMalformed` is not set; or id or
            checkpoint belong to another re-drive.
        BrokerError: an epoch was not written, or that is not known: call again.
    """
    parsed, shape = _parsed(options, letters, id, to, Filter(_several(error_class), _several(job), _several(stream)))
    kept = LetterCheckpoint(storage_at(checkpoint))
    asked = {"letters": letters, **_filter_of(shape), **asked_of(parsed), "to": to}
    plan, counted = kept.plan(asked), kept.counted()
    check_reached(f"re-drive {id}", parsed.sink)
    reader = StreamReader(source_options(letters, parsed), COLUMNS)
    if plan is None or counted is None:
        plan, counted = _planned(spark, kept, asked, parsed, reader, shape, plan)
    parsed = replace(parsed, streams=counted.streams if to is None else ())
    return Transfer(spark, parsed, kept, plan, reader, shape, on_progress).run((*KEEPING, *counted.left_out))


def _planned(  # noqa: PLR0913, PLR0917 - what a re-drive has
    spark: "SparkSession",
    kept: LetterCheckpoint,
    asked: Mapping[str, Any],
    options: TransferOptions,
    reader: StreamReader,
    shape: LetterShape,
    plan: Plan | None,
) -> tuple[Plan, Counted]:
    """The plan of a re-drive, after a look at all letters.

    Raises:
        UsageError: no letter is chosen.
        StateError: a letter was cut or is malformed, and may not be left out.
    """
    if plan is None:
        found = contents(reader.source)
        if not found:
            raise usage(why_none(shape.letters, 0, [], {}, Bounds()), stream=shape.letters)
        plan = new_plan(kept, asked, found, options)
    summary = summary_of(spark, reader, shape, plan.lanes)
    _check(summary, shape)
    preview = summary.preview
    counted = Counted(tuple(sorted(summary.driven)), preview.cut, preview.malformed)
    plan = replace(plan, asked={**asked, COUNTED: counted.to_document()}, rows=summary.driven.total())
    return plan, counted


@surface(ARGUMENTS)
def redrive_preview(  # noqa: PLR0913 - all by name
    spark: "SparkSession",
    *,
    letters: str,
    to: str | None = None,
    error_class: str | Sequence[str] = (),
    job: str | Sequence[str] = (),
    stream: str | Sequence[str] = (),
    **options: str | float | bool,
) -> RedrivePreview:
    """What `redrive` would do with the letters that are there now; nothing is written.

    Args:
        spark: the session.
        letters: as for `redrive`, and so are the others.
        to: the stream for all records.
        error_class: only letters with this class or one of these.
        job: only letters of these jobs or sinks.
        stream: only letters that name one of these streams.
        **options: as for `redrive`.

    Raises:
        UsageError: an option is wrong.
        BrokerError: there is no such stream, or the broker is not reachable.
    """
    parsed, shape = _parsed(
        options, letters, "preview", to, Filter(_several(error_class), _several(job), _several(stream))
    )
    check_reached("the preview", parsed.sink)
    source = source_options(letters, parsed)
    lanes = lanes_of([(each.source, each.first, each.end) for each in contents(source)], parsed.bounds)
    return summary_of(spark, StreamReader(source, COLUMNS), shape, lanes).preview


def _several(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _parsed(
    options: Mapping[str, str | float | bool], letters: str, name: str, to: str | None, wanted: Filter
) -> tuple[TransferOptions, LetterShape]:
    if to == letters:
        raise usage(f"stream {letters} has the dead letters, so their records cannot go there: name another stream")
    given = texts(options)
    parsed = replace(parse_transfer(REDRIVE, given, name=name, to=to or ""), repartition=True)
    for column in parsed.leave_out:
        if column != HEADER_NAMES:
            given = named(LEAVE_OUT.name)
            raise usage(f"{given} names {column!r}: of dead letters it may name {HEADER_NAMES} alone")
    found = REDRIVE.read(given)
    records = Shape(
        COLUMNS, keeps_partition=False, may_lose_names=HEADER_NAMES in parsed.leave_out, bounds=parsed.bounds
    )
    return parsed, LetterShape(records, wanted, name, letters, to, found.value(SKIP_CUT), found.value(SKIP_MALFORMED))


def _filter_of(shape: LetterShape) -> dict[str, Any]:
    wanted = {name: sorted(values) for name, values in vars(shape.wanted).items()}
    return {**wanted, "skipCut": shape.skips_cut, "skipMalformed": shape.skips_malformed}


def _check(summary: Summary, shape: LetterShape) -> None:
    found = summary.preview
    if found.malformed and not shape.skips_malformed:
        more = "" if found.malformed == 1 else f" (it is the first of {found.malformed})"
        raise StateError("record_invalid", f"{found.malformed_first}{more}")
    if found.cut and not shape.skips_cut:
        raise cut(f"stream {shape.letters} has {found.cut} letters of which each")
    if found.why_none:
        raise usage(found.why_none, stream=shape.letters)
    if not summary.driven:
        text = f"of stream {shape.letters} {quantity(found.rows, 'letter')} would be driven again, and each is left out"
        raise usage(f"{text}, because it was cut or is malformed", stream=shape.letters)
