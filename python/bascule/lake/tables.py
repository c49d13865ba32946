"""Opens tables by their format."""

from bascule.lake.commit import LakeTable
from bascule.lake.delta import DeltaTarget
from bascule.lake.layout import table_path
from bascule.lake.options import ArchiveOptions
from bascule.lake.parquet import STAGED, ParquetTarget


def open_table(options: ArchiveOptions, stream: str) -> LakeTable:
    """The table of a stream, or the only one. Nothing is asked of a service yet."""
    path = table_path(options.path, stream)
    return DeltaTarget(path, options) if options.table_format == "delta" else ParquetTarget(path, options)


def staging(options: ArchiveOptions, token: str) -> str | None:
    """The folder for the files of an attempt before the commit; None = they are written where they stay, because
    readers of Delta know files by the table's log.
    """
    return None if options.table_format == "delta" else f"{STAGED}/{token}"
