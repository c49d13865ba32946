"""Finds the records of a key in the data files of an archive, without a loop over records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bascule.lake.archived import ArchivedFile, corrupt_file_named
from bascule.lake.footers import read_metadata
from bascule.lake.grouping import grouped
from bascule.lake.ranges import NO_INCARNATION, Erased, Source
from bascule.lake.records import INCARNATION
from bascule.lake.views import without_views
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from bascule.lake.storage import FileStore

NEEDED: Final = ("stream", "partition", "offset", "key")
"""Columns of tables in which a record can be found by its key."""
_BATCH_ROWS: Final = 65_536
_REMEDY: Final = "restore it: its records cannot be searched"
NOT_MERGED: Final = "restore it: a compaction would give its records new checksums, or none"


@dataclass(frozen=True)
class KeyFilter:
    """The records of one key of a stream.

    Attributes:
        stream: its name.
        key: 1 byte or more.
        subject: only records with this subject; None = with any.
    """

    stream: str
    key: bytes
    subject: str | None = None

    def check_columns(self, table: str, columns: frozenset[str]) -> None:
        """Refuse a table in which these records cannot be found.

        Raises:
            UsageError: the table has not the columns.
        """
        for name in (*NEEDED, *(("subject",) if self.subject is not None else ())):
            if name not in columns:
                there = ", ".join(sorted(columns))
                raise usage(f"{table} has no column {name}, by which records of a key are found; it has {there}")

    def may_be_in(self, file: ArchivedFile) -> bool:
        """Whether such records may be in a file, by what is known without reading it."""
        known = dict(file.constants)
        if known.get("stream", self.stream) != self.stream:
            return False
        if self.subject is not None and known.get("subject", self.subject) != self.subject:
            return False
        streams = next(((low, high) for name, low, high in file.bounds if name == "stream"), (self.stream,) * 2)
        return streams[0] <= self.stream <= streams[1]

    def rows(self, batch: Any, constants: Mapping[str, Any]) -> Any:
        """Which rows of a record batch are such records: a Boolean array without nulls.

        Args:
            batch: with the columns of the file that are `NEEDED`, and `subject`.
            constants: values of columns that the file does not have.
        """
        pa: Any = import_module("pyarrow")
        pc: Any = import_module("pyarrow.compute")
        wanted: dict[str, Any] = {"stream": self.stream, "key": self.key}
        if self.subject is not None:
            wanted["subject"] = self.subject
        found = pa.repeat(pa.scalar(value=True), batch.num_rows)
        for name, value in wanted.items():
            if name not in constants:
                column = batch.column(name)
                is_equal = pc.equal(column, _scalar(value, column.type))
                found = pc.and_(found, pc.fill_null(is_equal, fill_value=False))
            elif constants[name] != value:
                found = pa.repeat(pa.scalar(value=False), batch.num_rows)
        return found


@dataclass(frozen=True)
class Match:
    """The records of a key in one data file: offsets by source, one for each row."""

    file: ArchivedFile
    offsets: Mapping[Source, tuple[int, ...]]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(map(len, self.offsets.values()))


def find(store: "FileStore", file: ArchivedFile, wanted: KeyFilter) -> Match | None:
    """The records of a key in a data file; None = it has none.

    Raises:
        CorruptionError: the file is missing or cannot be read.
    """
    parquet: Any = import_module("pyarrow.parquet")
    if not wanted.may_be_in(file):
        return None
    constants, offsets = dict(file.constants), dict[Source, list[int]]()
    with corrupt_file_named(file, _REMEDY), store.reading(file.name) as raw:
        opened = parquet.ParquetFile(raw, metadata=read_metadata(file, raw), page_checksum_verification=True)
        names = [name for name in (*NEEDED, INCARNATION, "subject") if name in opened.schema_arrow.names]
        for batch in map(without_views, opened.iter_batches(_BATCH_ROWS, columns=names)):
            _collect(batch.filter(wanted.rows(batch, constants)), constants, offsets)
    return Match(file, {source: tuple(each) for source, each in offsets.items()}) if offsets else None


def check_pages(store: "FileStore", file: ArchivedFile, remedy: str = _REMEDY) -> None:
    """Read a whole file before it is written again: its rows would get new checksums, which hide a damaged value.

    Args:
        store: of the table.
        file: of the table.
        remedy: for the error.

    Raises:
        CorruptionError: the file is missing, its footer is damaged, or a page fails its checksum.
    """
    parquet: Any = import_module("pyarrow.parquet")
    with corrupt_file_named(file, remedy), store.reading(file.name) as raw:
        opened = parquet.ParquetFile(raw, metadata=read_metadata(file, raw), page_checksum_verification=True)
        for _ in opened.iter_batches(_BATCH_ROWS):
            pass


def check_footer(store: "FileStore", file: ArchivedFile, remedy: str = _REMEDY) -> None:
    """Check the footer of a file before another library reads it.

    Args:
        store: of the table.
        file: of the table.
        remedy: for the error.

    Raises:
        CorruptionError: the file is missing, or its footer is damaged.
    """
    with corrupt_file_named(file, remedy), store.reading(file.name) as raw:
        read_metadata(file, raw)


def erased_of(matches: Sequence[Match]) -> dict[Source, Erased]:
    """How many rows there are of each source, and where."""
    found: dict[Source, Erased] = {}
    for match in matches:
        for source, offsets in match.offsets.items():
            each = Erased(len(offsets), min(offsets), max(offsets) + 1)
            found[source] = found[source] + each if source in found else each
    return dict(sorted(found.items()))


def _collect(rows: Any, constants: Mapping[str, Any], found: dict[Source, list[int]]) -> None:
    """Add the offsets of rows by source."""
    pa: Any = import_module("pyarrow")
    if not rows.num_rows:
        return
    chosen = ("stream", INCARNATION, "partition")
    default = {INCARNATION: NO_INCARNATION, **constants}
    columns = [
        rows.column(name) if name in rows.schema.names else pa.repeat(pa.scalar(default[name]), rows.num_rows)
        for name in chosen
    ]
    for (stream, incarnation, partition), part in grouped(rows, columns):
        found.setdefault(Source(stream, incarnation, partition), []).extend(part.column("offset").to_pylist())


def _scalar(value: Any, kind: Any) -> Any:
    """A value as one of a column's type; null, which equals nothing, if it cannot be one."""
    pa: Any = import_module("pyarrow")
    if isinstance(value, bytes) and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            value = None
    return pa.scalar(value, kind)
