"""What the dead letters of a stream are, before a re-drive: counted in tasks, one for each partition."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bascule.spark.replaying.lanes import Lane
from bascule.spark.replaying.letter_rows import Filter, LetterShape, first_flaw, malformed, was_cut
from bascule.spark.replaying.letters import Letters
from bascule.spark.replaying.options import Bounds
from bascule.spark.replaying.results import collected
from bascule.spark.replaying.rows import in_time
from bascule.spark.replaying.streams import StreamReader
from bascule.spark.replaying.unchosen import LetterCount, why_none

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KEEPING", "LetterShown", "RedrivePreview", "Summary", "summary_of"]

SHOWN: Final = 5
"""Letters that a preview shows."""
KEEPING: Final = (
    "partition: it is chosen by the key",
    "kinds of headers: names become text, values become bytes",
    "reply and id of records that a job read: its letters do not have them",
)


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
        malformed: of these, letters whose headers cannot be read.
        malformed_first: place and flaw of the first malformed one; empty = none is.
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
    malformed: int
    malformed_first: str
    others: int
    counts: list[LetterCount]
    not_chosen: list[LetterCount]
    why_none: str
    first: list[LetterShown]
    lost: list[str]


@dataclass
class _LaneCount:
    """What a lane has.

    Attributes:
        chosen: letters that are chosen, by error class, job and stream.
        others: letters that are not.
        records: letters or not.
        cut: chosen letters that have only a part of their record.
        malformed: chosen letters whose headers cannot be read.
        flaw: partition, offset and flaw of the first of these.
        driven: the others, by stream.
        first: the first ones that are chosen.
    """

    chosen: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    others: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    records: int = 0
    cut: int = 0
    malformed: int = 0
    flaw: tuple[int, int, str] | None = None
    driven: Counter[str] = field(default_factory=Counter[str])
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
                is_cut, is_malformed = was_cut(letters), letters.are_malformed
                found.cut += pc.sum(is_cut).as_py() or 0
                found.malformed += pc.sum(is_malformed).as_py() or 0
                is_driven = pc.invert(pc.or_(is_cut, is_malformed))
                found.driven.update(letters.said("stream").filter(is_driven).to_pylist())
                if found.flaw is None and (flaw := first_flaw(chosen)) is not None:
                    found.flaw = (lane.partition, *flaw)
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


@dataclass(frozen=True)
class Summary:
    """What a re-drive does.

    Attributes:
        preview: for its user.
        driven: letters that are neither cut nor malformed, by stream.
    """

    preview: RedrivePreview
    driven: Counter[str]


def summary_of(spark: "SparkSession", reader: StreamReader, shape: LetterShape, lanes: tuple[Lane, ...]) -> Summary:
    """What the letters of lanes are."""
    context = spark.sparkContext
    counting = _Counting(reader, shape.wanted, shape.shape.bounds)
    return _merged(collected(context.parallelize(list(lanes), max(len(lanes), 1)).map(counting)), shape)


def _merged(found: list[_LaneCount], shape: LetterShape) -> Summary:
    chosen, others, driven = _LaneCount().chosen, _LaneCount().others, _LaneCount().driven
    for each in found:
        chosen.update(each.chosen)
        others.update(each.others)
        driven.update(each.driven)
    first = [letter for each in found for letter in each.first][:SHOWN]
    records = sum(each.records for each in found)
    not_chosen = _listed(others)
    wanted = {"error_class": shape.wanted.error_classes, "job": shape.wanted.jobs, "stream": shape.wanted.streams}
    none = "" if chosen else why_none(shape.letters, records, not_chosen, wanted, shape.shape.bounds)
    flaws = sorted(each.flaw for each in found if each.flaw is not None)
    preview = RedrivePreview(
        letters=shape.letters,
        rows=chosen.total(),
        cut=sum(each.cut for each in found),
        malformed=sum(each.malformed for each in found),
        malformed_first=str(malformed(shape.letters, *flaws[0])) if flaws else "",
        others=records - chosen.total(),
        counts=_listed(chosen),
        not_chosen=not_chosen,
        why_none=none,
        first=first,
        lost=list(KEEPING),
    )
    return Summary(preview, driven)


def _listed(counts: Mapping[tuple[str, str, str], int]) -> list[LetterCount]:
    return [LetterCount(*names, count) for names, count in sorted(counts.items())]
