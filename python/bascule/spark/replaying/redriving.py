"""`bascule.spark.redrive`: the records of dead letters, as they were, back to their streams or to another one."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import StateError
from bascule.spark.replaying.api import asked_of, new_plan, storage_at, texts
from bascule.spark.replaying.checkpoint import Plan
from bascule.spark.replaying.lanes import Lane, lanes_of
from bascule.spark.replaying.letter_plans import COUNTED, Counted, LetterCheckpoint
from bascule.spark.replaying.letters import CUT, REDRIVE_PREFIX, Letters
from bascule.spark.replaying.options import (
    ARGUMENTS,
    HEADER_NAMES,
    LEAVE_OUT,
    REDRIVE,
    SKIP_CUT,
    Bounds,
    TransferOptions,
    parse_transfer,
)
from bascule.spark.replaying.preview import Outcome
from bascule.spark.replaying.results import collected
from bascule.spark.replaying.rows import Shape, in_time
from bascule.spark.replaying.streams import COLUMNS, StreamReader, contents, source_options
from bascule.spark.replaying.transfer import OnProgress, Transfer
from bascule.spark.replaying.unchosen import LetterCount, why_none
from bascule.spark.spelling import named, surface
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOWN: Final = 5
"""Letters that a preview shows."""
_KEEPING: Final = (
    "partition: it is chosen by the key",
    "kinds of headers: names become text, values become bytes",
    "reply and id of records that a job read: its letters do not have them",
)


@dataclass(frozen=True)
class Filter:
    """Which letters are chosen; an empty tuple chooses all.

    Attributes:
        error_classes: `MalformedJson`, `ExpectationFailed`, …; of the sink's letters the error code.
        jobs: names of jobs, or of sinks.
        streams: that the records were read from, or were to go to.
    """

    error_classes: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    def chosen(self, letters: Letters) -> Any:
        """Which records are letters that are chosen: an Arrow array of booleans."""
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        chosen = letters.are_letters
        for values, names in (
            (self.error_classes, ("error_class",)),
            (self.jobs, ("query_name", "sink")),
            (self.streams, ("stream",)),
        ):
            if values:
                said = pc.coalesce(*(letters.said(name) for name in names))
                chosen = pc.and_(chosen, pc.is_in(said, value_set=pa.array(values, pa.string())))
        return chosen


@dataclass(frozen=True)
class LetterShape:
    """How letters become rows of the sink.

    Attributes:
        shape: of records.
        wanted: the letters that are chosen; others give no rows.
        id: of the re-drive.
        letters: the stream of the letters.
        to: the stream of all records; None = each goes to the stream that its letter names.
        skips_cut: whether letters that the sink has cut are left out; else they are refused.
    """

    shape: Shape
    wanted: Filter
    id: str
    letters: str
    to: str | None
    skips_cut: bool

    @property
    def keeps_partition(self) -> bool:
        """Never: the partition of a letter says nothing."""
        return False

    def rows(self, batch: Any, partition: int) -> tuple[Any, Any]:
        """The rows of letters, and the offset of each letter.

        Raises:
            StateError: a letter was cut, or a header has a name that is not known.
        """
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        chosen = self.wanted.chosen(Letters(batch.column("headers")))
        batch = batch.filter(chosen)
        said = Letters(batch.column("headers"))
        is_cut = was_cut(said)
        if pc.any(is_cut).as_py():
            if not self.skips_cut:
                first = batch.column("offset").filter(is_cut)[0].as_py()
                raise _cut(f"{self.letters}/{partition} offset {first}")
            batch = batch.filter(pc.invert(is_cut))
            said = Letters(batch.column("headers"))
        count = batch.num_rows
        place = {"id": self.id, "stream": self.letters, "partition": str(partition)}
        added = {f"{REDRIVE_PREFIX}{name}": pa.repeat(pa.scalar(text), count) for name, text in place.items()}
        added[f"{REDRIVE_PREFIX}offset"] = batch.column("offset").cast(pa.string())
        columns = {
            "headers": said.records(added),
            "subject": said.said("subject"),
            "reply": said.said("reply"),
            "id": _ids(said.said("id")),
        }
        for name, values in columns.items():
            batch = batch.set_column(batch.schema.get_field_index(name), name, values)
        rows, offsets = self.shape.rows(batch, partition)
        if self.to is None:
            rows = rows.append_column("stream", said.said("stream"))
        return rows, offsets


def was_cut(letters: Letters) -> Any:
    """Which letters lack a part of their record: an Arrow array of booleans."""
    pc: Any = import_module("pyarrow.compute")
    found = pc.is_valid(letters.said(CUT[0]))
    for name in CUT[1:]:
        found = pc.or_(found, pc.is_valid(letters.said(name)))
    return found


def _cut(place: str) -> StateError:
    text = (
        f"the dead letter {place} has only a part of its record, because its stream allowed no larger one: set skipCut "
        "to leave such letters out, and give the stream of dead letters a larger max_record_bytes for later ones"
    )
    return StateError("record_invalid", text)


def _ids(texts_of_ids: Any) -> Any:
    """Message ids from hexadecimal digits; only the letters of the sink have them."""
    pa: Any = import_module("pyarrow")
    if texts_of_ids.null_count == len(texts_of_ids):
        return pa.nulls(len(texts_of_ids), pa.binary())
    return pa.array([None if text is None else bytes.fromhex(text) for text in texts_of_ids.to_pylist()], pa.binary())


@dataclass(frozen=True)
class LetterShown:
    """One of the first letters."""

    partition: int
    offset: int
    error_class: str
    error_message: str
    job: str
    stream: str
    source_offset: str
    value: bytes | None


@dataclass(frozen=True)
class RedrivePreview:
    """What a re-drive would do; nothing was written.

    Attributes:
        rows: letters that are chosen.
        cut: of these, letters that have only a part of their record.
        others: other records of the stream, and letters that are not chosen.
        counts: the chosen ones by error class, job and stream.
        not_chosen: the other letters, in the same way.
        why_none: why no letter is chosen, as a sentence; empty = some are.
        first: some of the chosen ones, in order of partition and offset.
        lost: what the records would not have, in sentences.
    """

    letters: str
    rows: int
    cut: int
    others: int
    counts: list[LetterCount]
    not_chosen: list[LetterCount]
    why_none: str
    first: list[LetterShown]
    lost: list[str]


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
        StateError: a letter was cut and `skipCut` is not set, or id or checkpoint belong to another re-drive.
        BrokerError: an epoch was not written, or that is not known: call again.
    """
    parsed, shape = _parsed(options, letters, id, to, Filter(_several(error_class), _several(job), _several(stream)))
    kept = LetterCheckpoint(storage_at(checkpoint))
    asked = {"letters": letters, **_filter_of(shape), **asked_of(parsed), "to": to}
    plan, counted = kept.plan(asked), kept.counted()
    reader = StreamReader(source_options(letters, parsed), COLUMNS)
    if plan is None or counted is None:
        plan, counted = _planned(spark, kept, asked, parsed, reader, shape, plan)
    parsed = replace(parsed, streams=counted.streams if to is None else ())
    return Transfer(spark, parsed, kept, plan, reader, shape, on_progress).run(_KEEPING)


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
        StateError: a letter was cut and may not be left out.
    """
    if plan is None:
        found = contents(reader.source)
        if not found:
            raise usage(why_none(shape.letters, 0, [], {}, Bounds()), stream=shape.letters)
        plan = new_plan(kept, asked, found, options)
    summary = _summary(spark, reader, shape, plan.lanes)
    _check(summary, shape)
    counted = Counted(tuple(sorted({each.stream for each in summary.counts})))
    return replace(plan, asked={**asked, COUNTED: counted.to_document()}, rows=summary.rows), counted


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
    source = source_options(letters, parsed)
    lanes = lanes_of([(each.source, each.first, each.end) for each in contents(source)], parsed.bounds)
    return _summary(spark, StreamReader(source, COLUMNS), shape, lanes)


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
    skips = REDRIVE.read(given).value(SKIP_CUT)
    records = Shape(
        COLUMNS, keeps_partition=False, may_lose_names=HEADER_NAMES in parsed.leave_out, bounds=parsed.bounds
    )
    return parsed, LetterShape(records, wanted, name, letters, to, skips)


def _filter_of(shape: LetterShape) -> dict[str, Any]:
    wanted = {name: sorted(values) for name, values in vars(shape.wanted).items()}
    return {**wanted, "skipCut": shape.skips_cut}


def _check(summary: RedrivePreview, shape: LetterShape) -> None:
    if summary.cut and not shape.skips_cut:
        raise _cut(f"stream {shape.letters} has {summary.cut} letters of which each")
    if summary.why_none:
        raise usage(summary.why_none, stream=shape.letters)


@dataclass
class _LaneCount:
    """What a lane has.

    Attributes:
        chosen: letters that are chosen, by error class, job and stream.
        others: letters that are not.
        records: letters or not.
        cut: chosen letters that have only a part of their record.
        first: the first ones that are chosen.
    """

    chosen: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    others: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    records: int = 0
    cut: int = 0
    first: list[LetterShown] = field(default_factory=list[LetterShown])


@dataclass(frozen=True)
class _Counting:
    """What the letters of a lane are; a function of tasks."""

    reader: StreamReader
    wanted: Filter
    bounds: Bounds

    def __call__(self, lane: Lane) -> _LaneCount:
        pc: Any = import_module("pyarrow.compute")
        found = _LaneCount()
        for part in lane.parts:
            for whole in self.reader.read(part):
                batch = in_time(whole, self.bounds)
                every = Letters(batch.column("headers"))
                is_chosen = self.wanted.chosen(every)
                chosen = batch.filter(is_chosen)
                others = batch.filter(pc.and_not(every.are_letters, is_chosen))
                letters = Letters(chosen.column("headers"))
                found.records += batch.num_rows
                found.cut += pc.sum(was_cut(letters)).as_py() or 0
                found.chosen.update(_places(letters))
                found.others.update(_places(Letters(others.column("headers"))))
                found.first += _first(chosen.slice(0, SHOWN - len(found.first)), lane.partition)
        return found


def _places(letters: Letters) -> Iterable[tuple[str, str, str]]:
    """Error class, job and stream of each letter."""
    return zip(*(column.to_pylist() for column in _names(letters)), strict=True)


def _names(letters: Letters) -> Iterable[Any]:
    """Error class, job and stream of letters, each an Arrow array without nulls."""
    pc: Any = import_module("pyarrow.compute")
    job = pc.coalesce(letters.said("query_name"), letters.said("sink"))
    return [pc.fill_null(column, "") for column in (letters.said("error_class"), job, letters.said("stream"))]


def _first(batch: Any, partition: int) -> Iterator[LetterShown]:
    letters = Letters(batch.column("headers"))
    said = [letters.said(name).to_pylist() for name in ("error_message", "offset")]
    names = [column.to_pylist() for column in _names(letters)]
    offsets, values = batch.column("offset").to_pylist(), batch.column("value").to_pylist()
    for offset, value, message, source, kind, job, stream in zip(offsets, values, *said, *names, strict=True):
        yield LetterShown(partition, offset, kind, message or "", job, stream, source or "", value)


def _summary(
    spark: "SparkSession", reader: StreamReader, shape: LetterShape, lanes: tuple[Lane, ...]
) -> RedrivePreview:
    context = spark.sparkContext
    counting = _Counting(reader, shape.wanted, shape.shape.bounds)
    found = collected(context.parallelize(list(lanes), max(len(lanes), 1)).map(counting))
    chosen, others = _LaneCount().chosen, _LaneCount().others
    for each in found:
        chosen.update(each.chosen)
        others.update(each.others)
    first = [letter for each in found for letter in each.first][:SHOWN]
    records = sum(each.records for each in found)
    not_chosen = _listed(others)
    wanted = {"error_class": shape.wanted.error_classes, "job": shape.wanted.jobs, "stream": shape.wanted.streams}
    none = "" if chosen else why_none(shape.letters, records, not_chosen, wanted, shape.shape.bounds)
    return RedrivePreview(
        letters=shape.letters,
        rows=chosen.total(),
        cut=sum(each.cut for each in found),
        others=records - chosen.total(),
        counts=_listed(chosen),
        not_chosen=not_chosen,
        why_none=none,
        first=first,
        lost=list(_KEEPING),
    )


def _listed(counts: Mapping[tuple[str, str, str], int]) -> list[LetterCount]:
    return [LetterCount(*names, count) for names, count in sorted(counts.items())]
