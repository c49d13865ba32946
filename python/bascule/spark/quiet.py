"""Keeps the JVM of a session quiet: only errors are printed, without Spark's notes at start."""

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
_FILE_OPTION: Final = "-Dlog4j2.configurationFile="
_NAME: Final = "log4j2.properties"
_CONFIGURATION: Final = """\
# Only errors, for bascule.spark.session. session(quiet=False) uses Spark's own configuration.
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
# Spark takes this level for that of an interactive session, and prints that it changes it if it is another one.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
"""


def quiet_options(given: str) -> str | None:
    """Options of the JVM with a logging configuration that prints only errors; None = the user has one.

    Args:
        given: options of the user, kept.
    """
    folder = os.environ.get("SPARK_CONF_DIR")
    has_own = folder is not None and any(Path(folder).glob("log4j2.*"))
    if has_own or _FILE_OPTION in given:
        return None
    return f"{given} {_FILE_OPTION}{(Path(_folder().name) / _NAME).as_uri()}".strip()


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """The folder of the configuration; removed when the process ends."""
    folder = tempfile.TemporaryDirectory(prefix="bascule-log4j-")
    (Path(folder.name) / _NAME).write_text(_CONFIGURATION)
    return folder
