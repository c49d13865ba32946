"""Opens tables by their format."""

from bascule.lake.delta import DeltaTarget
from bascule.lake.lake_table import LakeTable
from bascule.lake.layout import table_path
from bascule.lake.options import ArchiveOptions
from bascule.lake.parquet import ParquetTarget


def open_table(options: ArchiveOptions, stream: str) -> LakeTable:
    """The table of a stream, or the only one. Nothing is asked of a service yet."""
    path = table_path(options.path, stream)
    return DeltaTarget(path, options) if options.table_format == "delta" else ParquetTarget(path, options)
