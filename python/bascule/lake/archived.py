"""Reads records from a table that a query has archived: the files of one version, rows in order of offset.

Rows of one partition of a stream may lie in several files, and a merged file may have several ranges. Row groups are
read in order of their least offset, and rows are held back until no row group that is left can have an earlier one. So
memory is bounded by the row groups that overlap. Nothing here loops over rows.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import CorruptionError, StateError
from bascule.lake.footers import EXACT, bounds_of, has_checksum, read_metadata
from bascule.lake.ranges import SOURCE_COLUMNS, Covered, Erased, Source
from bascule.lake.views import without_views

if TYPE_CHECKING:
    from bascule.lake.storage import FileStore

BATCH_ROWS: Final = 16_384
"""Rows of a record batch, at most."""
NOT_READ: Final = "restore it, or set onDataLoss to skip its records"
"""The remedy for readers."""


@dataclass(frozen=True)
class ArchivedFile:
    """A data file of one version of a table.

    Attributes:
        name: in the store of the table.
        constants: values of columns that the file does not have, because they are partition values of the table.
        bounds: least and greatest value by column, both inclusive, for columns that have statistics.
        latest_us: no record was received after it, in us since 1970; None = not known.
        bytes: size; None = not known.
        rows: number of rows; None = not known.
    """

    name: str
    constants: tuple[tuple[str, Any], ...]
    bounds: tuple[tuple[str, Any, Any], ...]
    latest_us: int | None = None
    bytes: int | None = None
    rows: int | None = None

    def values_of(self, column: str) -> tuple[Any, ...]:
        """Known values of a column: the one of all rows, or the least and the greatest one; empty = none is known."""
        constant = dict(self.constants)
        if column in constant:
            return (constant[column],)
        return next(((low, high) for name, low, high in self.bounds if name == column), ())

    def single_values(self) -> dict[str, Any]:
        """The value by column, of columns with the same known value in all rows."""
        return {**{name: low for name, low, high in self.bounds if low == high}, **dict(self.constants)}

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
        sources: all that the table records as covered, also earlier incarnations; empty of a Delta table, which cannot
            list them.
        erased: rows that were erased by key, for those of the sources asked for that have such rows. Their offsets are
            covered.
    """

    columns: frozenset[str]
    covered: Mapping[Source, Covered]
    files: tuple[ArchivedFile, ...]
    sources: frozenset[Source] = frozenset()
    erased: Mapping[Source, Erased] = field(default_factory=dict[Source, Erased])

    def files_of(self, wanted: Wanted) -> tuple[ArchivedFile, ...]:
        """The files in which rows of a range may be."""
        return tuple(file for file in self.files if file.may_have(wanted))

    def incarnations(self, stream: str, partitions: Collection[int] | None = None) -> frozenset[int]:
        """Incarnations of a stream's partitions, as far as the table shows them without its rows.

        These are the recorded ones, and the least and the greatest one of each file that has rows of this stream alone.

        Args:
            stream: its name.
            partitions: only of these, from files that have rows of one of them alone; None = of all partitions.
        """
        found = {
            each.incarnation
            for each in self.sources
            if each.stream == stream and (partitions is None or each.partition in partitions)
        }
        for file in self.files:
            single = file.single_values()
            if single.get("stream") == stream and (partitions is None or single.get("partition") in partitions):
                found.update(file.values_of("incarnation"))
        return frozenset(found)


def read_archived(
    store: "FileStore",
    files: Sequence[ArchivedFile],
    wanted: Wanted,
    columns: Sequence[str],
    remedy: str = NOT_READ,
) -> Iterator[tuple[Any, int]]:
    """Record batches of a range in order of offset, each with the offset after its last row.

    Args:
        store: of the table.
        files: see `Pinned.files_of`.
        wanted: the range.
        columns: of the batches, in order; the table has them.
        remedy: for a file that cannot be read, as the caller has it.

    Raises:
        CorruptionError: a file is missing or cannot be read, or an offset is there twice.
        StateError: a file has not one of the columns, because the table got it later.
    """
    pa: Any = import_module("pyarrow")
    found = (each for file in files for each in row_groups(store, file, wanted, remedy))
    groups = sorted(found, key=lambda each: each.least)
    held: Any = None
    written = wanted.first - 1
    for number, group in enumerate(groups):
        rows = group.read(wanted, columns)
        # In files that deltalake's compaction wrote every column may be null.
        held = rows if held is None else pa.concat_tables([held, rows], promote_options="default")
        bound = groups[number + 1].least if number + 1 < len(groups) else wanted.end
        ready, held = _until(_in_order(held), bound)
        written = _check_ascending(group.file, ready, written)
        for batch in ready.combine_chunks().to_batches(max_chunksize=BATCH_ROWS):
            if batch.num_rows:
                yield batch.select(list(columns)), int(batch.column("offset")[-1].as_py()) + 1


@dataclass(frozen=True)
class RowGroup:
    """A row group that may have rows of the range. Its file is open only while it is read."""

    store: "FileStore"
    file: ArchivedFile
    metadata: Any
    number: int
    least: int
    remedy: str

    def read(self, wanted: Wanted, columns: Sequence[str]) -> Any:
        """Its rows of the range, with the column `offset`.

        Raises:
            StateError: the file has not one of the columns.
        """
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        there = set(self.metadata.schema.to_arrow_schema().names)
        constants = dict(self.file.constants)
        if lacking := [name for name in columns if name not in there and name not in constants]:
            raise StateError(
                "failed_precondition",
                f"the archive's file {self.file.name} has no column {lacking[0]}, which was added to the table later: "
                "read without it, or only records that were archived since",
                {"file": self.file.name, "column": lacking[0]},
            )
        names = [name for name in dict.fromkeys([*columns, *SOURCE_COLUMNS, "offset"]) if name in there]
        parquet: Any = import_module("pyarrow.parquet")
        with corrupt_file_named(self.file, self.remedy), self.store.reading(self.file.name) as raw:
            file = parquet.ParquetFile(raw, metadata=self.metadata, page_checksum_verification=True)
            rows = file.read_row_group(self.number, columns=names)
        rows = without_views(rows)
        kept = pc.and_(pc.greater_equal(rows["offset"], wanted.first), pc.less(rows["offset"], wanted.end))
        for name, value in _key(wanted.source).items():
            if name in there:
                kept = pc.and_(kept, pc.equal(rows[name], pa.scalar(value, rows.schema.field(name).type)))
        if not pc.all(kept).as_py():
            rows = rows.filter(kept)
        for name, value in constants.items():
            if name in columns:
                rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
        return rows


def row_groups(store: "FileStore", file: ArchivedFile, wanted: Wanted, remedy: str = NOT_READ) -> Iterator[RowGroup]:
    """The row groups of a file that may have rows of a range, in their order.

    Raises:
        CorruptionError: the file is missing or cannot be read.
    """
    # Texts have no bounds in the commits of some formats, with which a footer without a checksum could be compared.
    searched = (*SOURCE_COLUMNS, "offset") if has_checksum(file.name) else EXACT
    with corrupt_file_named(file, remedy), store.reading(file.name) as raw:
        metadata = read_metadata(file, raw)
        groups = [bounds_of(metadata.row_group(number), searched) for number in range(metadata.num_row_groups)]
    for number, bounds in enumerate(groups):
        if ArchivedFile(file.name, file.constants, bounds).may_have(wanted):
            least = next((low for name, low, _ in bounds if name == "offset"), wanted.first)
            yield RowGroup(store, file, metadata, number, max(least, wanted.first), remedy)


def _in_order(rows: Any) -> Any:
    """Rows in order of offset; those that are in order already, which an archive writes, are not copied."""
    pc: Any = import_module("pyarrow.compute")
    offsets = rows["offset"]
    is_sorted = pc.all(pc.less_equal(offsets[:-1], offsets[1:])).as_py() if len(offsets) > 1 else True
    return rows if is_sorted else rows.sort_by("offset")


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


class corrupt_file_named:  # noqa: N801 - reads as a function
    """Adds the name of a file to errors about it."""

    def __init__(self, file: ArchivedFile, remedy: str = NOT_READ) -> None:
        self._file = file
        self._remedy = remedy

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, (OSError, ValueError, import_module("pyarrow").ArrowException)):
            what = "is missing" if isinstance(cause, FileNotFoundError) else f"cannot be read: {cause}"
            message = f"the archive's file {self._file.name} {what}; {self._remedy}"
            raise CorruptionError("damaged", message, {"file": self._file.name}) from cause
