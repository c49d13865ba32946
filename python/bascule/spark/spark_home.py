"""A SPARK_HOME from which the Python processes of a session start in less than half of the time.

Spark puts `SPARK_HOME/python/lib/pyspark.zip` before the installed package on their path. Modules of an archive are
compiled at each import, which costs a process half a second of processor time, and a query starts several processes.
Modules of the installed package are compiled once.
"""

import os
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

__all__ = ["linked_home", "packaged_home"]

_LEFT_OUT: Final = ("python", "work")
"""The folder of the archive, and the one that workers of `local-cluster` write to."""


def packaged_home() -> Path | None:
    """A folder for SPARK_HOME with the Spark of the PySpark package, removed when the process ends.

    None = Spark is another one: SPARK_HOME is set, or the package has no Spark.
    """
    found = find_spec("pyspark")
    if "SPARK_HOME" in os.environ or found is None or found.origin is None:
        return None
    package = Path(found.origin).parent
    return Path(_folder(package).name) if (package / "jars").is_dir() else None


def linked_home(package: Path, folder: Path) -> Path:
    """Fill an existing folder with links to a PySpark package, except for the archive of its own modules."""
    for entry in package.iterdir():
        if entry.name not in _LEFT_OUT:
            (folder / entry.name).symlink_to(entry)
    return folder


@cache
def _folder(package: Path) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="bascule-spark-")
    linked_home(package, Path(folder.name))
    return folder
