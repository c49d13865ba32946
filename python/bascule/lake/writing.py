"""Writes DataFrames to lake tables exactly once: a whole streaming query, or one epoch inside `foreachBatch`."""

import os
from typing import TYPE_CHECKING, Final

from bascule.lake.disk_errors import disk_errors
from bascule.lake.options import ArchiveOptions
from bascule.lake.progress import check_continues
from bascule.lake.starting import start_query
from bascule.lake.tables import check_tables, open_table
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT: Final = "bascule_archive"
"""Spark's name of the sink."""


def start(  # noqa: PLR0913 - all by name
    frame: "DataFrame",
    options: ArchiveOptions,
    *,
    checkpoint: str | os.PathLike[str],
    name: str | None = None,
    available_now: bool = False,
    every: str | None = None,
) -> "StreamingQuery":
    """Start a query that appends a streaming DataFrame to a table, each micro-batch exactly once.

    Args:
        frame: streaming rows. Columns `stream`, `partition`, `offset` and `timestamp` are records' own: with them the
            table stores the covered offsets, and an epoch of another query that begins before their end fails. Other
            columns may have any type that Arrow and the table's format support.
        options: of the table; it is created when it is missing.
        checkpoint: folder of the query's checkpoint. Use one checkpoint for one table: another checkpoint is another
            query, whose epochs fail if they begin before the end of the covered offsets.
        name: name of the query.
        available_now: process what is there now and end.
        every: time between micro-batches, as `10 seconds`; None = as soon as there is data.

    Returns:
        The running query.

    Raises:
        UsageError: `available_now` and `every` together, the checkpoint is in the table's folder, or the rows cannot be
            written with these options.
        StateError: the checkpoint is a copy of another one, its folder cannot be written, or the table is there and is
            another one. Tables of single streams are compared by their first epoch.
    """
    check_tables(options, frame.schema, ())
    if not options.has_table_per_stream:
        with disk_errors(options.path):
            check_continues(open_table(options, ""), os.fspath(checkpoint), options.target, options.path)
    return start_query(
        frame,
        lambda writer: writer.format(FORMAT).options(**options.to_spark()).outputMode("append"),
        folder=None if options.table_format == "iceberg" else options.path,
        checkpoint=checkpoint,
        name=name,
        available_now=available_now,
        every=every,
    )


def write_epoch(  # noqa: PLR0913 - all by name
    frame: "DataFrame",
    options: ArchiveOptions,
    *,
    query_id: str,
    epoch: int,
    range_id: str = "",
    checkpoint: str | os.PathLike[str] = "",
    one_table: bool = False,
) -> None:
    """Append the rows of one epoch of a query to a table, exactly once; for functions given to `foreachBatch`.

    Returns when the table has the epoch's rows. An epoch that the table already has is not written again.

    Args:
        frame: rows of the epoch, not streaming; columns as in `start`.
        options: of the table. Where a query writes a table twice in an epoch, each write needs a `target` of its own.
        query_id: id of the query, the same after a restart (`sql.streaming.queryId` among the local properties).
        epoch: number of the micro-batch, the second argument of the function; 0 with `range_id`.
        range_id: of a batch job outside of `foreachBatch`: stands for what the job does and the range of records that
            it reads. A write with the same one is recognised, also after writes with others; a write with another one
            is refused if the table has its offsets. `query_id` is then the same for all runs of the job.
        checkpoint: folder of the query's checkpoint. An epoch that a copy of the checkpoint has planned is refused
            then, if the folder is on this machine, and a table that lacks epochs which the query has written to it.
            Empty = an epoch that is repeated is compared by its rows alone, and a table that was deleted begins again.
        one_table: the query writes one table under this target name, so that a table with another path is refused for
            the same reason.

    Raises:
        UsageError: `epoch` is negative, or not 0 with `range_id`, or `query_id` is empty.
        Exception: of Spark, with the sentence of the refusal; then nothing was written.
    """
    if epoch < 0 or not query_id:
        raise usage(f"query_id is {query_id!r} and epoch {epoch}: both are needed, and epochs begin at 0")
    given = {**options.to_spark(), "queryId": query_id, "epoch": str(epoch)}
    if range_id:
        given["rangeId"] = range_id
    if os.fspath(checkpoint):
        given["checkpointLocation"] = os.fspath(checkpoint)
    if one_table:
        given["oneTable"] = "true"
    frame.write.format(FORMAT).options(**given).mode("append").save()
