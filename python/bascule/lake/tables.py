"""Opens tables by their format."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bascule.lake.delta import DeltaTarget
from bascule.lake.disk_errors import disk_errors
from bascule.lake.epochs import Epoch, Writer, foreign
from bascule.lake.lake_table import LakeTable
from bascule.lake.layout import table_name, table_path
from bascule.lake.options import STREAM_MARK, ArchiveOptions
from bascule.lake.parquet import ParquetTarget
from bascule.lake.rows import Shape, shape_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def open_table(options: ArchiveOptions, stream: str) -> LakeTable:
    """The table of a stream, or the only one. Nothing is asked of a service yet.

    Raises:
        StateError: the package for its format is not installed.
    """
    if options.table_format == "iceberg":
        from bascule.lake.iceberg.target import IcebergTarget  # noqa: PLC0415 - the package may be missing

        return IcebergTarget(options.path.replace(STREAM_MARK, table_name(stream)), options)
    path = table_path(options.path, stream)
    return DeltaTarget(path, options) if options.table_format == "delta" else ParquetTarget(path, options)


def check_tables(options: ArchiveOptions, schema: "StructType", streams: Sequence[str]) -> None:
    """Refuse tables that are there and cannot take rows, before a query begins: the query would fail at its first
    commit. Creates nothing.

    Args:
        options: of the tables.
        schema: of the rows.
        streams: names of streams, as far as they are known, where each has a table of its own.

    Raises:
        UsageError: rows with this schema cannot be written with these options.
        StateError: a table is another one: of another format, with other rows, columns or partitions, or with records
            that another program wrote.
    """
    shape = shape_of(schema, options)
    for stream in streams if options.has_table_per_stream else ("",):
        table = open_table(options, stream)
        with disk_errors(table.uri):
            table.compare(shape.table)
            check_rows(table, shape, options)


def check_rows(table: LakeTable, shape: Shape, options: ArchiveOptions) -> None:
    """Refuse a table with rows that no query wrote, if the rows of the query are records: some could be there twice.

    Raises:
        StateError: it is such a table.
    """
    if not shape.has_offsets or not table.exists():
        return
    epoch = Epoch(Writer("", options.target), 0, "", "", 0, {})
    if table.snapshot(epoch)[0].is_foreign:
        raise foreign(table.uri, epoch)
