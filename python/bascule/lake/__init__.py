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
    from bascule.lake.maintenance import compact, coverage, expire, vacuum
    from bascule.lake.options import ArchiveOptions, parse_archive_options
    from bascule.lake.ranges import Covered, Source
    from bascule.lake.writing import start, write_epoch

__all__ = [
    "ArchiveOptions",
    "Covered",
    "Source",
    "compact",
    "coverage",
    "expire",
    "parse_archive_options",
    "start",
    "vacuum",
    "write_epoch",
]

_HOMES = {
    "ArchiveOptions": "options",
    "Covered": "ranges",
    "Source": "ranges",
    "compact": "maintenance",
    "coverage": "maintenance",
    "expire": "maintenance",
    "parse_archive_options": "options",
    "start": "writing",
    "vacuum": "maintenance",
    "write_epoch": "writing",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bascule.lake' has no attribute {name!r}")
    return getattr(import_module(f"bascule.lake.{_HOMES[name]}"), name)
