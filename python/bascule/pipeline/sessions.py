"""The Spark session of a job: one of its own, or that of `spark-submit`."""

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bascule.errors import StateError, UsageError
from bascule.pipeline.model.job import Job
from bascule.spark.sessions import SUBMITTED, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_packages", "is_submitted", "session_of"]


def is_submitted() -> bool:
    """Whether this process was started by `spark-submit`."""
    return SUBMITTED in os.environ


def session_of(job: Job) -> "SparkSession":
    """The session of a job.

    Raises:
        UsageError: code `configuration_invalid`: the job chooses a master or settings, and so does `spark-submit`.
        StateError: code `failed_precondition`: a package is missing.
    """
    check_packages()
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy

    if is_submitted():
        if job.spark.master is not None or job.spark.config:
            message = "the section spark is not allowed with spark-submit: give --master and --conf there"
            raise UsageError("configuration_invalid", message)
        return SparkSession.builder.appName(job.name).getOrCreate()
    quiet: dict[str, str | int | bool] = {"spark.ui.enabled": False}
    return session(job.name, master=job.spark.master, config={**quiet, **job.spark.config})


def check_packages() -> None:
    """Refuse to run jobs without the packages that they need.

    Raises:
        StateError: code `failed_precondition`: a package is missing.
    """
    for package in ("pyspark", "pyarrow"):
        if find_spec(package) is None:
            message = f"jobs need the package {package}: pip install 'bascule[pipeline,lake]'"
            raise StateError("failed_precondition", message, {"package": package})
