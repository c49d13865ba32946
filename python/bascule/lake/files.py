"""Writes the rows of one task for one table as Parquet files, sorted by partition and offset within each file.

Rows of a stream come in that order, so nothing is sorted as a rule. Rows in another order are sorted within a row
group, and a row group that would break the order of its file begins a new file. Nothing here loops over rows.
"""

import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from bascule.lake.footers import KEY, NO_SUM, ChecksummedFile
from bascule.lake.options import ArchiveOptions, codec_of
from bascule.lake.partitioning import Values
from bascule.lake.plans import FilePlan
from bascule.lake.ranges import SOURCE_COLUMNS

MOST_OPEN: Final = 64
"""Files that one task keeps open for one table; of more, the one used longest ago is closed."""
ORDER: Final = (*SOURCE_COLUMNS, "offset")
"""Columns by which rows are sorted, as far as a table has them."""
OWN_FILE: Final = r"part-[0-9a-f]{32}-[\w.-]+-\d{5}\.parquet"
"""Names of the files that queries write, as a regular expression."""
_DICTIONARY: Final = ("stream", "incarnation", "partition", "subject", "reply")
_DELTA_PACKED: Final = ("offset", "timestamp")


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of one attempt.

    Attributes:
        name: relative to the table, where readers find it after the commit.
        staged: where it is before; the same as `name` in tables whose readers know files by the table's log.
        values: partition values.
        bytes: size.
        rows: number of rows, at least 1.
        statistics: what the table's commit says about it, see `FilePlan`.
    """

    name: str
    staged: str
    values: Values
    bytes: int
    rows: int
    statistics: dict[str, Any] = field(default_factory=dict[str, Any])


def is_own_file(name: str) -> bool:
    """Whether a file has the name of one that a `TableWriter` wrote, which is durable when it is closed."""
    return re.fullmatch(OWN_FILE, name.rpartition("/")[2]) is not None


class TableWriter:
    """The rows of one task for one table. Used by one thread; `close` or `discard` ends it."""

    def __init__(self, plan: FilePlan, options: ArchiveOptions, *, prefix: str) -> None:
        """Begin without files.

        Args:
            plan: of the table.
            options: of the table: sizes and compression.
            prefix: begins the names of all files; unique to this attempt of the task.
        """
        self.plan = plan
        self.options = options
        self._prefix = prefix
        self._open: OrderedDict[Values, _Group] = OrderedDict()
        self._buffered = 0
        self._count = 0
        self.files: list[DataFile] = []

    def write(self, batch: Any) -> None:
        """Add the rows of a record batch."""
        for values, rows in self.plan.split(batch):
            group = self._open.get(values)
            if group is None:
                group = self._open[values] = _Group(self, values)
            self._open.move_to_end(values)
            self._buffered += group.add(rows.select(self.plan.schema.names))
            if group.bytes >= self.options.row_group_bytes:
                self._buffered -= group.flush()
        self._bound()

    def close(self) -> list[DataFile]:
        """Finish all files, and return them."""
        while self._open:
            self._close_oldest()
        self.plan.store.settle([each.staged for each in self.files])
        return self.files

    def discard(self) -> None:
        """Abandon open files and delete closed ones, after an error."""
        for group in self._open.values():
            group.abandon()
        self._open.clear()
        self.plan.store.delete([each.staged for each in self.files])

    def _bound(self) -> None:
        """Write row groups early when many partitions are open, so that memory stays within two row groups."""
        while self._buffered > 2 * self.options.row_group_bytes:
            fullest = max(self._open.values(), key=lambda group: group.bytes)
            self._buffered -= fullest.flush()
        while len(self._open) > MOST_OPEN:
            self._close_oldest()

    def _close_oldest(self) -> None:
        _, group = self._open.popitem(last=False)
        self._buffered -= group.flush()
        group.close()

    def next_name(self, values: Values) -> tuple[str, str]:
        """Names of a new file: after and before the commit."""
        self._count += 1
        folder, staging = self.plan.folder(values), self.plan.staging
        name = f"{folder}{'/' if folder else ''}part-{self._prefix}-crc-{self._count:05d}.parquet"
        return name, name if staging is None else f"{staging}/{name}"


class _Group:
    """The rows of one set of partition values: those of the next row group, and the open file."""

    def __init__(self, writer: TableWriter, values: Values) -> None:
        self._writer = writer
        self._values = values
        self._batches: list[Any] = []
        self._file: _OpenFile | None = None
        self._keys = [name for name in ORDER if name in writer.plan.schema.names]
        self.bytes = 0

    def add(self, rows: Any) -> int:
        """Buffer rows; returns their bytes in memory."""
        size = int(rows.get_total_buffer_size() if rows.num_rows == 0 else rows.nbytes)
        self._batches.append(rows)
        self.bytes += size
        return size

    def flush(self) -> int:
        """Write a row group; returns the bytes that it had in memory."""
        size, self.bytes = self.bytes, 0
        if not self._batches:
            return size
        table = import_module("pyarrow").Table.from_batches(self._batches).cast(self._writer.plan.schema)
        self._batches = []
        table = in_order(table, self._keys)
        first, last = _key_at(table, self._keys, 0), _key_at(table, self._keys, table.num_rows - 1)
        if self._file is not None and self._file.last > first:
            self.close()
        if self._file is None:
            self._file = _OpenFile(self._writer, self._values)
        self._file.append(table, last)
        if self._file.size >= self._writer.options.file_bytes:
            self.close()
        return size

    def close(self) -> None:
        """Finish the open file."""
        if self._file is not None:
            self._writer.files.append(self._file.close())
            self._file = None

    def abandon(self) -> None:
        """Give up the open file."""
        if self._file is not None:
            self._file.abandon()


class _Abandoned(Exception):  # noqa: N818 - never leaves this module
    """Ends an upload without a file."""


class _OpenFile:
    def __init__(self, writer: TableWriter, values: Values) -> None:
        pa: Any = import_module("pyarrow")
        parquet: Any = import_module("pyarrow.parquet")
        self._plan = writer.plan
        self._values = values
        self._name, self._staged = writer.next_name(values)
        self._stack = ExitStack()
        raw = self._stack.enter_context(self._plan.store.writing(self._staged))
        self._file = ChecksummedFile(raw)
        self._sink = pa.PythonFile(self._file, mode="w")
        self._parquet = parquet.ParquetWriter(self._sink, self._plan.schema, **_properties(writer))
        self._rows = 0
        self.last: tuple[Any, ...] = ()

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def append(self, table: Any, last: tuple[Any, ...]) -> None:
        self._parquet.write_table(table, row_group_size=max(table.num_rows, 1))
        self._rows += table.num_rows
        self.last = last

    def close(self) -> DataFile:
        self._parquet.add_key_value_metadata({KEY: NO_SUM})
        self._file.hold()
        self._parquet.close()
        self._file.release()
        size = self.size
        metadata = self._parquet.writer.metadata
        self._stack.close()
        statistics = self._plan.statistics(metadata)
        return DataFile(self._name, self._staged, self._values, size, self._rows, statistics)

    def abandon(self) -> None:
        with suppress(Exception):  # the file is deleted in any case
            self._parquet.close()
        try:
            with self._stack:
                raise _Abandoned  # noqa: TRY301 - the context managers must see an error
        except _Abandoned:
            self._plan.store.delete([self._staged])


def in_order(table: Any, keys: Sequence[str]) -> Any:
    """The table sorted by `keys`; the same one when it is."""
    if not keys or _is_sorted(table, keys):
        return table
    return table.sort_by([(key, "ascending") for key in keys])


def _is_sorted(table: Any, keys: Sequence[str]) -> bool:
    """Whether each row is at or after the one before it, by `keys`."""
    pc: Any = import_module("pyarrow.compute")
    if table.num_rows < 2:
        return True
    equal: Any = None
    for key in keys:
        column = table.column(key)
        before, after = column.slice(0, table.num_rows - 1), column.slice(1)
        wrong = pc.less(after, before)
        if equal is not None:
            wrong = pc.and_(equal, wrong)
        if pc.any(wrong).as_py():
            return False
        same = pc.equal(after, before)
        equal = same if equal is None else pc.and_(equal, same)
    return True


def _key_at(table: Any, keys: Sequence[str], row: int) -> tuple[tuple[bool, Any], ...]:
    """The place of a row in the order of `in_order`, which has null after all values."""
    values = [table.column(key)[row].as_py() for key in keys]
    return tuple((value is None, 0 if value is None else value) for value in values)


def _properties(writer: TableWriter) -> dict[str, Any]:
    """Properties of a Parquet file: codec, dictionaries for repeated values, statistics for what is searched, and
    checksums, without which most damage would be read as other values.
    """
    pa: Any = import_module("pyarrow")
    codec, level = codec_of(writer.options.compression)
    schema = writer.plan.schema
    names = list(_leaves(schema))
    packed = {name: "DELTA_BINARY_PACKED" for name in _DELTA_PACKED if name in names and _is_long(schema, name)}
    dictionary = [name for name in names if name in _DICTIONARY or _is_other_text(schema, name)]
    searched = [each.name for each in schema if not pa.types.is_binary(each.type) and each.name in names]
    return {
        "compression": codec,
        "compression_level": level,
        "use_dictionary": dictionary or False,
        "column_encoding": packed or None,
        "write_statistics": searched or False,
        "write_page_checksum": True,
        "store_schema": False,
    }


def _is_long(schema: Any, name: str) -> bool:
    pa: Any = import_module("pyarrow")
    kind = schema.field(name).type
    return pa.types.is_int64(kind) or pa.types.is_timestamp(kind)


def _is_other_text(schema: Any, name: str) -> bool:
    pa: Any = import_module("pyarrow")
    return name in schema.names and pa.types.is_string(schema.field(name).type)


def _leaves(schema: Any) -> Iterator[str]:
    """Names of the columns that are not nested."""
    pa: Any = import_module("pyarrow")
    for each in schema:
        if not pa.types.is_nested(each.type):
            yield each.name
