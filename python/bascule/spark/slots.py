"""The number of tasks that run at once. Reads are split into tasks and packed by it."""

import os
import re
from typing import Any, Final

from bascule.spark.driver import ask

VARIABLE: Final = "PYSPARK_BASCULE_SLOTS"
"""Environment variable with the number that the master URL or the caller of `session` gives, for planners."""
QUESTION: Final = "slots"
_LOCAL: Final = re.compile(r"local\[(\d+)(?:,\s*\d+)?\]")
_ONCE: Final = re.compile(r"local(?:\[[^,\]]*\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


def slots_of_master(master: str) -> int | None:
    """As the master URL says: `local[n]` n, `local[*]` the processors, `local-cluster[n,m,…]` n times m; None = it does
    not, as that of a cluster.
    """
    if master == "local":
        return 1
    if match := _LOCAL.fullmatch(master):
        return int(match[1])
    if match := _LOCAL_CLUSTER.fullmatch(master):
        return int(match[1]) * int(match[2])
    return os.cpu_count() or 2 if master.startswith("local[*") else None


def repeats_tasks(master: str) -> bool:
    """Whether Spark tries a task again that failed, as the master URL says: `local[2]` does not, `local[2,4]` does."""
    return _ONCE.fullmatch(master) is None


def slots_of_cluster(spark: Any) -> int:
    """The tasks that the executors of a session can run at once now; 0 = none has registered yet."""
    context = spark.sparkContext._jsc.sc()  # noqa: SLF001 - the only way to the scheduler
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def current_slots() -> int:
    """The number of a session that `bascule.spark.session` made, in the driver and in planners; the processors of this
    machine if there is no such session.
    """
    answer = ask(QUESTION)
    given = answer if answer.isdigit() and int(answer) else os.environ.get(VARIABLE, "")
    return int(given) if given.isdigit() and int(given) else os.cpu_count() or 2
