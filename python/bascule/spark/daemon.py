"""PySpark's daemon, with workers that end when Spark closes their socket; for `spark.python.daemon.module`.

The daemon imports what every worker needs before it forks the first one. PySpark leaves that to each worker, which
costs each about half a second of processor time. Only modules that start no thread may be imported here, because a
fork takes no thread along: not pyarrow, pandas or numpy.
"""

from contextlib import suppress
from importlib import import_module
from typing import Final

import pyspark.daemon

from bascule.spark.idle import leaving

__all__ = ["PRELOADED"]

PRELOADED: Final = (
    "pyspark.worker",
    "bascule.spark.source",
    "bascule.spark.batch",
    "bascule.spark.stream",
    "bascule.spark.sink.writers",
    "bascule.lake.sink",
    "bascule.lake.writers",
)
"""Modules that are imported before the first fork."""


def preload() -> None:
    """Import `PRELOADED`. What lacks a package is left out: a worker that needs it reports that."""
    for module in PRELOADED:
        with suppress(ImportError):
            import_module(module)


if __name__ == "__main__":
    preload()
    pyspark.daemon.worker = leaving(pyspark.daemon.worker)
    pyspark.daemon.manager()
