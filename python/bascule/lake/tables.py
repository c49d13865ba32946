"""Opens tables by their format."""

from bascule.lake.delta import DeltaTarget
from bascule.lake.lake_table import LakeTable
from bascule.lake.layout import table_name, table_path
from bascule.lake.options import STREAM_MARK, ArchiveOptions
from bascule.lake.parquet import ParquetTarget


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
