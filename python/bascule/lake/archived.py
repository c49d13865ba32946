"""Reads records from a table that a query has archived: the files of one version, rows in order of offset.

Rows of one partition of a stream may lie in several files, and a merged file may have several ranges. Row groups are
read in order of their least offset, and rows are held back until no row group that is left can have an earlier one. So
memory is bounded by the row groups that overlap. Nothing here loops over rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import CorruptionError
from bascule.lake.ranges import Covered, Source

if TYPE_CHECKING:
    from bascule.lake.storage import FileStore

BATCH_ROWS: Final = 16_384
"""Rows of a record batch, at most."""
_KEYS: Final = ("stream", "incarnation", "partition")


@dataclass(frozen=True)
class ArchivedFile:
    """A data file of one version of a table.

    Attributes:
        name: in the store of the table.
        constants: values of columns that the file does not have, because they are partition values of the table.
        bounds: least and greatest value by column, both inclusive, for columns that have statistics.
    """

    name: str
    constants: tuple[tuple[str, Any], ...]
    bounds: tuple[tuple[str, Any, Any], ...]

    def may_have(self, wanted: "Wanted") -> bool:
        """Whether rows of a range may be in the file."""
        key = _key(wanted.source)
        for column, low, high in (*self.bounds, *((name, value, value) for name, value in self.constants)):
            if column == "offset" and (high < wanted.first or low >= wanted.end):
                return False
            if column in key and not low <= key[column] <= high:
                return False
        return True


@dataclass(frozen=True)
class Wanted:
    """Offsets `[first, end)` of one partition of a stream, with its incarnation."""

    source: Source
    first: int
    end: int


@dataclass(frozen=True)
class Pinned:
    """One version of a table.

    Attributes:
        columns: names, also of those that are partition values.
        covered: offsets that the version covers, for those of the sources asked for that it has rows of.
        files: its data files.
    """

    columns: frozenset[str]
    covered: Mapping[Source, Covered]
    files: tuple[ArchivedFile, ...]

    def files_of(self, wanted: Wanted) -> tuple[ArchivedFile, ...]:
        """The files in which rows of a range may be."""
        return tuple(file for file in self.files if file.may_have(wanted))


def read_archived(
    store: "FileStore", files: Sequence[ArchivedFile], wanted: Wanted, columns: Sequence[str]
) -> Iterator[tuple[Any, int]]:
    """Record batches of a range in order of offset, each with the offset after its last row.

    Args:
        store: of the table.
        files: see `Pinned.files_of`.
        wanted: the range.
        columns: of the batches, in order; the table has them.

    Raises:
        CorruptionError: a file is missing or cannot be read, or an offset is there twice.
    """
    pa: Any = import_module("pyarrow")
    groups = sorted((each for file in files for each in _groups(store, file, wanted)), key=lambda each: each.least)
    held: Any = None
    written = wanted.first - 1
    for number, group in enumerate(groups):
        rows = group.read(wanted, columns)
        held = rows if held is None else pa.concat_tables([held, rows])
        bound = groups[number + 1].least if number + 1 < len(groups) else wanted.end
        ready, held = _until(held.sort_by("offset"), bound)
        written = _check_ascending(group.file, ready, written)
        for batch in ready.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
            if batch.num_rows:
                yield batch.select(list(columns)), int(batch.column("offset")[-1].as_py()) + 1


@dataclass(frozen=True)
class _Group:
    """A row group that may have rows of the range. Its file is open only while it is read."""

    store: "FileStore"
    file: ArchivedFile
    metadata: Any
    number: int
    least: int

    def read(self, wanted: Wanted, columns: Sequence[str]) -> Any:
        """Its rows of the range, with the column `offset`."""
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        there = set(self.metadata.schema.to_arrow_schema().names)
        names = [name for name in dict.fromkeys([*columns, *_KEYS, "offset"]) if name in there]
        parquet: Any = import_module("pyarrow.parquet")
        with _named(self.file), self.store.reading(self.file.name) as raw:
            rows = parquet.ParquetFile(raw, metadata=self.metadata).read_row_group(self.number, columns=names)
        kept = pc.and_(pc.greater_equal(rows["offset"], wanted.first), pc.less(rows["offset"], wanted.end))
        for name, value in _key(wanted.source).items():
            if name in there:
                kept = pc.and_(kept, pc.equal(rows[name], pa.scalar(value, rows.schema.field(name).type)))
        rows = rows.filter(kept)
        for name, value in self.file.constants:
            if name in columns:
                rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
        return rows


def _groups(store: "FileStore", file: ArchivedFile, wanted: Wanted) -> Iterator[_Group]:
    parquet: Any = import_module("pyarrow.parquet")
    with _named(file), store.reading(file.name) as raw:
        metadata = parquet.read_metadata(raw)
    names = {metadata.schema.column(number).path: number for number in range(len(metadata.schema))}
    for number in range(metadata.num_row_groups):
        bounds = _bounds(metadata.row_group(number), names)
        if ArchivedFile(file.name, file.constants, bounds).may_have(wanted):
            least = next((low for name, low, _ in bounds if name == "offset"), wanted.first)
            yield _Group(store, file, metadata, number, max(least, wanted.first))


def _bounds(group: Any, names: Mapping[str, int]) -> tuple[tuple[str, Any, Any], ...]:
    found: list[tuple[str, Any, Any]] = []
    for name in (*_KEYS, "offset"):
        statistics = group.column(names[name]).statistics if name in names else None
        if statistics is not None and statistics.has_min_max:
            found.append((name, statistics.min, statistics.max))
    return tuple(found)


def _until(rows: Any, bound: int) -> tuple[Any, Any]:
    """Rows in order of offset, cut at an offset."""
    pc: Any = import_module("pyarrow.compute")
    count = int(pc.sum(pc.less(rows["offset"], bound)).as_py() or 0)
    return rows.slice(0, count), rows.slice(count)


def _check_ascending(file: ArchivedFile, rows: Any, written: int) -> int:
    """The last offset of rows that must ascend after `written`."""
    pc: Any = import_module("pyarrow.compute")
    if not rows.num_rows:
        return written
    offsets = rows["offset"].combine_chunks()
    before, after = offsets.slice(0, len(offsets) - 1), offsets.slice(1)
    if offsets[0].as_py() <= written or (len(after) and not pc.all(pc.less(before, after)).as_py()):
        raise CorruptionError(
            "damaged",
            f"an offset near {offsets[0].as_py()} is twice in the archive, in {file.name} or a file beside it: another "
            "program has written to the table",
            {"file": file.name},
        )
    return int(offsets[-1].as_py())


def _key(source: Source) -> dict[str, Any]:
    return {"stream": source.stream, "incarnation": source.incarnation, "partition": source.partition}


class _named:  # noqa: N801 - reads as a function
    """Adds the name of a file to errors about it."""

    def __init__(self, file: ArchivedFile) -> None:
        self._file = file

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, (OSError, ValueError)):  # of pyarrow: ArrowInvalid is a ValueError
            what = "is missing" if isinstance(cause, FileNotFoundError) else f"cannot be read: {cause}"
            message = f"the archive's file {self._file.name} {what}; restore it, or set onDataLoss to skip its records"
            raise CorruptionError("damaged", message, {"file": self._file.name}) from cause
