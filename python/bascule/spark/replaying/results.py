"""Results of Spark's tasks, or one error with one sentence."""

from typing import Any

__all__ = ["collected"]


def collected(tasks: Any) -> list[Any]:
    """What tasks return, in order.

    Args:
        tasks: an RDD.

    Raises:
        BrokerError: of a task, with its class and sentence; what else Spark ended with, as `internal`.
    """
    from py4j.protocol import Py4JError  # noqa: PLC0415 - heavy
    from pyspark.errors import PySparkException  # noqa: PLC0415 - heavy

    from bascule.pipeline.failures import failure_of  # noqa: PLC0415 - it needs more than tasks that succeed

    try:
        return list(tasks.collect())
    except (Py4JError, PySparkException) as failure:
        raise failure_of(failure) from None
