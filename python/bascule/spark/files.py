"""Files that options name, as certificates and credentials: by a path that is the same on every host, or by the name of
a file that Spark distributes (`spark.files`). Imports nothing heavy, because planners import it.
"""

from pathlib import Path

REMEDY = "give the file to Spark (spark.files) and name it without a folder, or put it at this path on every host"
"""What to do about a file that is missing."""


def located(name: str) -> Path:
    """Where this process finds a file: `name` itself if it is absolute or exists, else among those that Spark
    distributed. In processes without Spark, and when neither exists, the result does not exist.
    """
    path = Path(name)
    if path.is_absolute() or path.exists():
        return path
    return next((found for folder in _distributed() if (found := folder / name).exists()), path)


def _distributed() -> tuple[Path, ...]:
    """Where files of `spark.files` may be in a driver, a planner or a worker; nowhere in processes without Spark."""
    try:
        from pyspark import SparkFiles  # noqa: PLC0415 - heavy, and tables can be used without it
    except ImportError:
        return ()
    try:
        folder = Path(SparkFiles.getRootDirectory()).absolute()
    except AssertionError:  # no SparkContext was made
        return ()
    # Planners of streaming queries get the name of a folder within that of the session, which does not exist.
    return (folder, folder.parent)
