"""An archive as the source of a replay: what is in it, and its records in order of offset."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bascule.lake.archived import ArchivedFile, Pinned, Wanted, corrupt_file_named, read_archived
from bascule.lake.footers import read_metadata
from bascule.lake.options import ArchiveOptions
from bascule.lake.ranges import NO_INCARNATION, POSITION, SOURCE_COLUMNS, Source
from bascule.lake.tables import open_table
from bascule.lake.views import without_views
from bascule.spark.replaying.lanes import Part
from bascule.spark.replaying.preview import Found
from bascule.spark.replaying.results import collected
from bascule.spark.sentences import sentence_first
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from bascule.lake.storage import FileStore

_REMEDY: Final = "restore it, or replay from another copy of the archive"
"""For a file that cannot be read."""
WINDOW: Final = 1_000_000
"""Offsets whose files are opened together: footers and row groups of later ones are not read before."""


@dataclass(frozen=True)
class ArchiveReader:
    """Reads parts of an archive in tasks.

    Attributes:
        archive: the table.
        stream: of which stream.
        files: of one version, which later compactions leave in place until `vacuum`.
        columns: in order.
    """

    archive: ArchiveOptions
    stream: str
    files: tuple[ArchivedFile, ...]
    columns: tuple[str, ...]

    def read(self, part: Part) -> Iterator[Any]:
        """Record batches of a part, in order of offset.

        Raises:
            CorruptionError: a file is missing or cannot be read, or an offset is there twice.
        """
        store = open_table(self.archive, self.stream).storage
        for first in range(part.first, part.end, WINDOW):
            wanted = Wanted(part.source, first, min(first + WINDOW, part.end))
            files = [file for file in self.files if file.may_have(wanted)]
            for batch, _ in read_archived(store, files, wanted, self.columns, _REMEDY):
                yield batch


def opened(archive: ArchiveOptions, stream: str) -> Pinned:
    """The files of the newest version of an archive, and its columns.

    Raises:
        UsageError: there is no such table, or its path has `{stream}` and no stream is named.
        StateError: the table has rows that were deleted or changed by another program.
    """
    if archive.has_table_per_stream and not stream:
        raise usage("the archive's path contains {stream}: name the stream whose table is meant")
    table = open_table(archive, stream)
    if not table.exists():
        raise usage(f"there is no {archive.table_format} table {table.uri}: name the archive, and its format")
    return table.opened()[1]


def contents(spark: Any, archive: ArchiveOptions, stream: str, files: Sequence[ArchivedFile]) -> list[Found]:
    """What the files of an archive have of each partition, by their footers; of a row group that has several
    partitions, by its rows.

    Raises:
        CorruptionError: a file is missing or cannot be read.
    """
    if not files:
        return []
    context = spark.sparkContext
    tasks = context.parallelize(list(files), min(len(files), 4 * context.defaultParallelism))
    return merged([each for found in collected(tasks.map(FileContents(archive, stream))) for each in found])


def merged(found: Sequence[Found]) -> list[Found]:
    """One for each source, in order."""
    by_source: dict[Source, Found] = {}
    for each in found:
        known = by_source.get(each.source)
        by_source[each.source] = each if known is None else known + each
    return [by_source[source] for source in sorted(by_source)]


@dataclass(frozen=True)
class FileContents:
    """What one file has; a function of tasks.

    Attributes:
        archive: the table.
        stream: of which stream.
    """

    archive: ArchiveOptions
    stream: str

    def __call__(self, file: ArchivedFile) -> list[Found]:
        """One for each partition of the file.

        Raises:
            CorruptionError: the file is missing or cannot be read.
        """
        parquet: Any = import_module("pyarrow.parquet")
        store: FileStore = open_table(self.archive, self.stream).storage
        found: list[Found] = []
        named = corrupt_file_named(file, _REMEDY)
        with sentence_first(), named, store.reading(file.name) as raw:
            opened_file = parquet.ParquetFile(raw, metadata=read_metadata(file, raw), page_checksum_verification=True)
            for number in range(opened_file.metadata.num_row_groups):
                found += _group(opened_file, number, dict(file.constants))
        return merged(found)


def _group(file: Any, number: int, constants: dict[str, Any]) -> list[Found]:
    pa: Any = import_module("pyarrow")
    size = file.metadata.row_group(number).total_byte_size
    there = set(file.schema_arrow.names)
    columns = [name for name in POSITION if name in there]
    rows = without_views(file.read_row_group(number, columns=columns))
    for name in POSITION:
        if name not in there:
            value = constants.get(name, NO_INCARNATION if name == "incarnation" else None)
            rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    kind = pa.timestamp("us", "UTC")
    rows = rows.set_column(rows.schema.get_field_index("timestamp"), "timestamp", rows["timestamp"].cast(kind))
    wanted = [("offset", "min"), ("offset", "max"), ("offset", "count"), ("timestamp", "min"), ("timestamp", "max")]
    grouped = rows.group_by(list(SOURCE_COLUMNS)).aggregate(wanted).to_pylist()
    return [_found(each, size, rows.num_rows) for each in grouped]


def _found(row: dict[str, Any], size: int, rows: int) -> Found:
    source = Source(str(row["stream"]), int(row["incarnation"]), int(row["partition"]))
    count = int(row["offset_count"])
    times = (row["timestamp_min"], row["timestamp_max"])
    return Found(source, int(row["offset_min"]), int(row["offset_max"]) + 1, count, size * count // rows, *times)


def chosen(found: Sequence[Found], stream: str | None) -> tuple[str, list[Found]]:
    """The stream that is replayed, and what there is of it.

    Raises:
        UsageError: the archive has several streams and none is named, or it has not the one that is.
    """
    names = sorted({each.source.stream for each in found})
    if stream is None:
        if len(names) != 1:
            what = f"the archive has the streams {', '.join(names)}" if names else "the archive is empty"
            raise usage(f"{what}: name the one to replay by stream")
        return names[0], list(found)
    if stream not in names:
        raise usage(f"the archive has no record of stream {stream}; it has {', '.join(names) or 'none'}")
    return stream, [replace(each) for each in found if each.source.stream == stream]
