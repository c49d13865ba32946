"""PySpark's daemon, with workers that leave when Spark lets them go: a value for `spark.python.daemon.module`."""

import pyspark.daemon

from bascule.spark.idle import leaving

__all__: list[str] = []

if __name__ == "__main__":
    pyspark.daemon.worker = leaving(pyspark.daemon.worker)
    pyspark.daemon.manager()
