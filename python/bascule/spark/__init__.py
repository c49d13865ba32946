"""Streams as Spark tables: the data source `format("bascule")`, the bulk scan, and a session with the right settings.

Needs pyspark and, on executors, pyarrow; never the engine. Importing this package imports neither.

>>> spark = bascule.spark.session("demo")
>>> spark.read.format("bascule").option("stream", "orders").load()
>>> spark.readStream.format("bascule").option("stream", "orders").load()
>>> bascule.spark.scan(spark, "orders", columns=["key", "value"])
>>> bascule.spark.create_tables(spark, pattern="orders.*")
>>> bascule.spark.archive(spark, stream="orders", to="lake/orders", checkpoint="lake/orders.checkpoint")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bascule.spark.archiving import archive
    from bascule.spark.bulk import scan
    from bascule.spark.catalog import create_tables
    from bascule.spark.machine_checks import doctor
    from bascule.spark.sessions import session
    from bascule.spark.source import BasculeSource

__all__ = ["BasculeSource", "archive", "create_tables", "doctor", "scan", "session"]

_HOMES = {
    "BasculeSource": "source",
    "archive": "archiving",
    "create_tables": "catalog",
    "doctor": "machine_checks",
    "scan": "bulk",
    "session": "sessions",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bascule.spark' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - lazily, see above

    return getattr(import_module(f"bascule.spark.{_HOMES[name]}"), name)
