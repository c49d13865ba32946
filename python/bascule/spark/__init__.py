"""Streams as Spark tables: the data source `format("bascule")`, the bulk scan, and a session with the right settings.

Needs pyspark and, on executors, pyarrow; never the engine. Importing this package imports neither.

>>> spark = bascule.spark.session("demo")
>>> spark.read.format("bascule").option("stream", "orders").load()
>>> spark.readStream.format("bascule").option("stream", "orders").load()
>>> bascule.spark.scan(spark, "orders", columns=["key", "value"])
>>> bascule.spark.create_tables(spark, pattern="orders.*")
>>> bascule.spark.archive(spark, stream="orders", to="lake/orders", checkpoint="lake/orders.checkpoint")
>>> bascule.spark.keep_table(spark, stream="prices", to="lake/prices", checkpoint="lake/prices.checkpoint")
>>> bascule.spark.replay(spark, archive="lake/orders", to="orders", id="restore", checkpoint="lake/restore")
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bascule.spark.archiving import archive
    from bascule.spark.bulk import scan
    from bascule.spark.catalog import create_tables
    from bascule.spark.checkpoints import clear_unfinished
    from bascule.spark.keeping import keep_table
    from bascule.spark.machine_checks import doctor
    from bascule.spark.replaying.api import replay, replay_preview
    from bascule.spark.replaying.copies import copy, copy_continuously, copy_preview
    from bascule.spark.replaying.redriving import redrive, redrive_preview
    from bascule.spark.sessions import session
    from bascule.spark.source import BasculeSource

__all__ = [
    "BasculeSource",
    "archive",
    "clear_unfinished",
    "copy",
    "copy_continuously",
    "copy_preview",
    "create_tables",
    "doctor",
    "keep_table",
    "redrive",
    "redrive_preview",
    "replay",
    "replay_preview",
    "scan",
    "session",
]

_HOMES = {
    "BasculeSource": "source",
    "archive": "archiving",
    "clear_unfinished": "checkpoints",
    "create_tables": "catalog",
    "copy": "replaying.copies",
    "copy_continuously": "replaying.copies",
    "copy_preview": "replaying.copies",
    "doctor": "machine_checks",
    "keep_table": "keeping",
    "redrive": "replaying.redriving",
    "redrive_preview": "replaying.redriving",
    "replay": "replaying.api",
    "replay_preview": "replaying.api",
    "scan": "bulk",
    "session": "sessions",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'bascule.spark' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - lazily, see above

    return getattr(import_module(f"bascule.spark.{_HOMES[name]}"), name)
