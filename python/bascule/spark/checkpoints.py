"""What a kill leaves of a checkpoint that has no micro-batch yet."""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSETS: Final = "offsets"
"""Folder of a checkpoint with one file for each micro-batch that was planned."""


def clear_unfinished(spark: "SparkSession", checkpoint: str) -> int:
    """Delete what a kill left of the plan of a query's first micro-batch, so that the query can be started again.

    Spark writes the plan of a micro-batch to a hidden file and renames it. A query that is killed between these two, in
    its first micro-batch, leaves the hidden file, and Spark then refuses to start it
    (`STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY`). No record of it was written anywhere. A checkpoint that has the plan
    of any micro-batch is not touched. `archive` and jobs do this themselves; call it before `start()` of other queries,
    and never while the query runs.

    Args:
        spark: the session; with Spark Connect nothing is done.
        checkpoint: folder of the checkpoint, as in `checkpointLocation`.

    Returns:
        Number of files deleted.
    """
    session: Any = spark
    if not hasattr(session, "_jsparkSession"):
        return 0
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - only the JVM reads paths as the query does
    folder = jvm.org.apache.hadoop.fs.Path(checkpoint, OFFSETS)
    files = folder.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())  # noqa: SLF001
    if not files.exists(folder):
        return 0
    found = [entry.getPath() for entry in files.listStatus(folder)]
    if not all(_is_unfinished(path.getName()) for path in found):
        return 0
    return sum(bool(files.delete(path, False)) for path in found)


def _is_unfinished(name: str) -> bool:
    """Whether it is the hidden file of a plan, as `.0.<uuid>.tmp`."""
    return name.startswith(".") and name.endswith(".tmp")
