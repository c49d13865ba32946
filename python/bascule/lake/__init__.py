"""Streams as lake tables: Delta, Iceberg and Parquet, written by Spark, each micro-batch exactly once.

Needs pyarrow, obstore and the library of the table's format, deltalake or pyiceberg (`pip install 'bascule[lake]'`);
the functions that write need pyspark.
Importing this package imports none of them.

>>> bascule.spark.archive(spark, stream="orders", to="lake/orders", checkpoint="lake/orders.checkpoint")
>>> bascule.lake.start(frame, bascule.lake.ArchiveOptions(to="lake/orders"), checkpoint="lake/orders.checkpoint")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bascule.lake.erasing import Erasure, erase
    from bascule.lake.maintenance import compact, coverage, expire, vacuum
    from bascule.lake.merge_options import MergeOptions
    from bascule.lake.merging import merge_epoch, start_merge
    from bascule.lake.options import ArchiveOptions, parse_archive_options
    from bascule.lake.ranges import Covered, Source
    from bascule.lake.writing import start, write_epoch

__all__ = [
    "ArchiveOptions",
    "Covered",
    "Erasure",
    "MergeOptions",
    "Source",
    "compact",
    "coverage",
    "erase",
    "expire",
    "merge_epoch",
    "parse_archive_options",
    "start",
    "start_merge",
    "vacuum",
    "write_epoch",
]

_HOMES = {
    "ArchiveOptions": "options",
    "Covered": "ranges",
    "Erasure": "erasing",
    "MergeOptions": "merge_options",
    "Source": "ranges",
    "compact": "maintenance",
    "coverage": "maintenance",
    "erase": "erasing",
    "expire": "maintenance",
    "merge_epoch": "merging",
    "parse_archive_options": "options",
    "start": "writing",
    "start_merge": "merging",
    "vacuum": "maintenance",
    "write_epoch": "writing",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bascule.lake' has no attribute {name!r}")
    return getattr(import_module(f"bascule.lake.{_HOMES[name]}"), name)
