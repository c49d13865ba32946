"""Keeps a session quiet: only errors are printed, in sentences, without Spark's notes at start."""

import logging
import os
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bascule.spark.traces import FRAME, HEAD

JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
_FILE_OPTION: Final = "-Dlog4j2.configurationFile="
_QUERY_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
_SECOND_TIME: Final = r"(?s)Caused by: py4j.Py4JException: An exception was raised by the Python Proxy.*"
"""The failure of a function of `foreachBatch` again: the exception before it has the same text."""
_LEFT_OUT: Final = r"(?m)^\t\.\.\. .*\n?"
"""Numbers of Java's frames that are left out."""
_CONFIGURATION: Final = """\
# Only errors, for bascule.spark.session. session(quiet=False) uses Spark's own configuration.
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
# An error has its sentence once; the frames of Spark, Java, PySpark and py4j are left out.
appender.console.layout.alwaysWriteExceptions = false
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n@exception@
# They say that a write failed, without the reason, which other loggers and the exception have.
logger.append.name = org.apache.spark.sql.execution.datasources.v2.AppendDataExec
logger.append.level = off
logger.write.name = org.apache.spark.sql.execution.datasources.v2.WriteToDataSourceV2Exec
logger.write.level = off
logger.task.name = org.apache.spark.sql.execution.datasources.v2.DataWritingSparkTask
logger.task.level = off
# The exception of a task, again where the task is abandoned.
logger.utils.name = org.apache.spark.util.Utils
logger.utils.level = error
logger.utils.filter.abandoned.type = RegexFilter
logger.utils.filter.abandoned.regex = Aborting task
logger.utils.filter.abandoned.onMatch = deny
logger.utils.filter.abandoned.onMismatch = neutral
# Spark takes this level for that of an interactive session, and prints that it changes it if it is another one.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""
_NO_ATTEMPTS: Final = """\
# A task is tried once, so the query ends with this exception.
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = error
logger.executor.filter.failed.type = RegexFilter
logger.executor.filter.failed.regex = Exception in task .*
logger.executor.filter.failed.onMatch = deny
logger.executor.filter.failed.onMismatch = neutral
"""


def quiet_options(given: str, *, repeats: bool) -> str | None:
    """Options of the JVM with a logging configuration that prints only errors; None = the user has one.

    Args:
        given: options of the user, kept.
        repeats: a task that fails is tried again, so each failure of a task is printed.
    """
    folder = os.environ.get("SPARK_CONF_DIR")
    has_own = folder is not None and any(Path(folder).glob("log4j2.*"))
    if has_own or _FILE_OPTION in given:
        return None
    name = "attempts.properties" if repeats else "log4j2.properties"
    return f"{given} {_FILE_OPTION}{(Path(_folder().name) / name).as_uri()}".strip()


def quiet_queries() -> None:
    """Switch off the loggers of PySpark that print an invalid query as JSON with a traceback: the exception says it.

    Another level, which the user has set, is kept.
    """
    loggers: Any = import_module("pyspark.logger").PySparkLogger
    for name in _QUERY_LOGGERS:
        found = loggers.getLogger(name)
        if found.level == logging.WARNING:  # PySpark's own
            found.setLevel(logging.CRITICAL + 1)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """The folder of the configurations; removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="bascule-log4j-")
    shown = "%ex{filters(org.apache,scala,java,jdk,py4j)}"
    for left_out in (FRAME, _SECOND_TIME, HEAD, _LEFT_OUT):
        escaped = left_out.replace("\\", "\\\\")  # the file is one of Java's properties
        shown = f"%replace{{{shown}}}{{{escaped}}}{{}}"
    always = _CONFIGURATION.replace("@exception@", shown)
    (Path(folder.name) / "attempts.properties").write_text(always)
    (Path(folder.name) / "log4j2.properties").write_text(always + _NO_ATTEMPTS)
    return folder
