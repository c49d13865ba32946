"""Which dead letters a re-drive chooses, and how they become rows of the sink."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bascule.errors import StateError
from bascule.spark.replaying.letters import CUT, REDRIVE_PREFIX, Letters
from bascule.spark.replaying.rows import Shape, in_time

__all__ = ["Filter", "LetterShape", "cut", "first_flaw", "malformed", "was_cut"]


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
        skips_malformed: whether malformed letters are left out; else they are refused.
    """

    shape: Shape
    wanted: Filter
    id: str
    letters: str
    to: str | None
    skips_cut: bool
    skips_malformed: bool

    @property
    def keeps_partition(self) -> bool:
        """Never: the partition of a letter says nothing."""
        return False

    def rows(self, batch: Any, partition: int) -> tuple[Any, Any]:
        """The rows of letters, and the offset of each letter.

        Raises:
            StateError: `record_invalid`: a letter was cut or is malformed, or a header has a name that is not known.
        """
        pa: Any = import_module("pyarrow")
        batch = in_time(batch, self.shape.bounds)
        batch = self._driven(batch.filter(self.wanted.chosen(Letters(batch.column("headers")))), partition)
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

    def _driven(self, batch: Any, partition: int) -> Any:
        """Chosen letters without those that are left out."""
        pc: Any = import_module("pyarrow.compute")
        said = Letters(batch.column("headers"))
        is_malformed, is_cut = said.are_malformed, was_cut(said)
        if not self.skips_malformed and (flaw := first_flaw(batch)) is not None:
            raise malformed(self.letters, partition, *flaw)
        if not self.skips_cut and pc.any(is_cut).as_py():
            first = batch.column("offset").filter(is_cut)[0].as_py()
            raise cut(f"{self.letters}/{partition} offset {first}")
        return batch.filter(pc.invert(pc.or_(is_malformed, is_cut)))


def was_cut(letters: Letters) -> Any:
    """Which letters lack a part of their record: an Arrow array of booleans."""
    pc: Any = import_module("pyarrow.compute")
    found = pc.is_valid(letters.said(CUT[0]))
    for name in CUT[1:]:
        found = pc.or_(found, pc.is_valid(letters.said(name)))
    return found


def first_flaw(batch: Any) -> tuple[int, str] | None:
    """Offset and flaw of the first malformed letter; None = there is none."""
    pc: Any = import_module("pyarrow.compute")
    found: list[tuple[int, str]] = []
    for sentence, mask in Letters(batch.column("headers")).flaws:
        if pc.any(mask).as_py():
            found.append((batch.column("offset").filter(mask)[0].as_py(), sentence))
    return min(found, default=None)


def malformed(letters: str, partition: int, offset: int, flaw: str) -> StateError:
    """The error for a malformed letter."""
    text = (
        f"the dead letter {letters}/{partition} offset {offset} is malformed: {flaw}; set skipMalformed to leave such "
        "letters out"
    )
    return StateError("record_invalid", text, {"stream": letters, "partition": partition, "offset": offset})


def cut(place: str) -> StateError:
    """The error for a letter that was cut."""
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
