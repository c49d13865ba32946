"""PySpark's daemon, with workers that end when Spark closes their socket; for `spark.python.daemon.module`."""

import pyspark.daemon

from bascule.spark.idle import leaving

__all__: list[str] = []

if __name__ == "__main__":
    pyspark.daemon.worker = leaving(pyspark.daemon.worker)
    pyspark.daemon.manager()
