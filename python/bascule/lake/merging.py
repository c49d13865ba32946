"""Keeps a table at the latest row, or all versions, of each key, each micro-batch merged exactly once.

The commit of a merge records its epoch as those of archives do (`bascule.lake.delta`, `bascule.lake.iceberg.state`), so
that an epoch which is repeated after a crash is recognised. The rows of an epoch, one for each key or, for all
versions, each of them, are collected by the driver.
"""

import logging
import os
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from bascule.errors import error
from bascule.failpoints import failpoint
from bascule.lake.commit import prepare
from bascule.lake.conflicts import MOST_CONFLICTS, pause, too_many
from bascule.lake.disk_errors import disk_errors
from bascule.lake.epochs import Already, Epoch, Writer, decide, run_of
from bascule.lake.merge_options import DELETED, VALID_FROM, MergeOptions
from bascule.lake.merged_delta import HistoryDelta, MergedDelta
from bascule.lake.progress import Progress, check_continues, progress_of
from bascule.lake.ranges import SOURCE_COLUMNS, Source, Written
from bascule.lake.starting import start_query
from bascule.spark.checkpoint_copies import offsets_hash
from bascule.spark.sentences import shortly
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from bascule.lake.iceberg.merged import MergedIceberg

__all__ = ["merge_epoch", "start_merge"]

logger = logging.getLogger("bascule.lake")

_RANK: Final = "__rank"


def start_merge(  # noqa: PLR0913 - all by name
    frame: "DataFrame",
    options: MergeOptions,
    *,
    checkpoint: str | os.PathLike[str],
    name: str | None = None,
    available_now: bool = False,
    every: str | None = None,
) -> "StreamingQuery":
    """Start a query that keeps a table at the latest row of each key of a streaming DataFrame.

    Args:
        frame: streaming rows, one for each record, with the columns `stream`, `incarnation`, `partition`, `offset` and
            `timestamp` of the source; other columns may have any type that Arrow and Delta support.
        options: of the table; it is created when it is missing.
        checkpoint: folder of the query's checkpoint. Another checkpoint is another query, whose epochs are refused if
            they begin before the end of what the table has.
        name: name of the query.
        available_now: merge what is there now and end.
        every: time between micro-batches, as `10 seconds`; None = as soon as there is data.

    Returns:
        The running query. It fails with `record_invalid` if a row has a null key.

    Raises:
        UsageError: `available_now` and `every` together, columns are missing, or the checkpoint is in the table's
            folder.
        StateError: the checkpoint is a copy of another one, its folder cannot be written, or the table is there and
            does not hold such rows.
    """
    options.check(frame.columns)
    place = os.fspath(checkpoint)
    with disk_errors(options.path):
        table = table_of(options)
        table.compare(None)
        check_continues(table, place, options.target, options.path)

    def merge(batch: "DataFrame", epoch: int) -> None:
        context = batch.sparkSession.sparkContext
        query_id = str(context.getLocalProperty("sql.streaming.queryId"))
        merge_epoch(batch, options, query_id=query_id, epoch=epoch, checkpoint=place, one_table=True)

    return start_query(
        frame,
        lambda writer: writer.foreachBatch(shortly(merge)),
        folder=None if options.table_format == "iceberg" else options.path,
        checkpoint=place,
        name=name,
        available_now=available_now,
        every=every,
    )


def merge_epoch(  # noqa: PLR0913 - all by name
    frame: "DataFrame",
    options: MergeOptions,
    *,
    query_id: str,
    epoch: int,
    range_id: str = "",
    checkpoint: str | os.PathLike[str] = "",
    one_table: bool = False,
) -> bool:
    """Merge the rows of one epoch of a query into a table, exactly once; for functions given to `foreachBatch`.

    Of the rows of a key the one with the greatest offset is kept; if a key has rows in several partitions, the one
    with the latest timestamp, and of equal ones that of the greatest partition. A row that the table has is replaced
    by one of the same partition, or by a later one.

    Args:
        frame: rows of the epoch, not streaming; columns as in `start_merge`.
        options: of the table.
        query_id: id of the query, the same after a restart (`sql.streaming.queryId` among the local properties).
        epoch: number of the micro-batch, the second argument of the function; 0 with `range_id`.
        range_id: of a batch job, as in `bascule.lake.write_epoch`.
        checkpoint: folder of the query's checkpoint, by which a copy of it is recognised, and a table that lacks epochs
            of the query; empty = they are not.
        one_table: as in `bascule.lake.write_epoch`.

    Returns:
        Whether this call has merged the rows; False = the table has the epoch already, or there are no rows.

    Raises:
        UsageError: `epoch` is negative, or not 0 with `range_id`, `query_id` is empty, or columns are missing.
        StateError: a key is null (`record_invalid`), the epoch is refused (see `bascule.lake.epochs.decide`), or the
            table is another one.
        UnavailableError: other writers committed first many times in a row.
    """
    if epoch < 0 or not query_id:
        raise usage(f"query_id is {query_id!r} and epoch {epoch}: both are needed, and epochs begin at 0")
    if range_id and epoch:
        raise usage(f"epoch is {epoch}: with range_id it is 0, because each range is merged once")
    options.check(frame.columns)
    kept = frame.persist()
    try:
        ranges = _ranges(kept, options)
        if not ranges:
            return False
        merged: Any = _versions(kept, options) if options.history else _latest(kept, options)
        rows = merged.toArrow()
    finally:
        kept.unpersist()
    token = uuid4().hex
    group = frame.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
    planned = "" if range_id or not os.fspath(checkpoint) else offsets_hash(os.fspath(checkpoint), epoch)
    writer = Writer(query_id, options.target, range_id)
    written = Epoch(
        writer,
        epoch,
        run_of(group) or token,
        token,
        sum(each.rows for each in ranges.values()),
        ranges,
        offsets_hash=planned,
    )
    with disk_errors(options.path):
        progress = progress_of(os.fspath(checkpoint), writer, options.path, one_table=one_table)
        return commit_merge(table_of(options), rows, written, progress)


def table_of(options: MergeOptions) -> "MergedDelta | MergedIceberg":
    """The table that rows are merged into. Nothing is asked of a service yet."""
    if options.table_format == "iceberg":
        from bascule.lake.iceberg.merged import MergedIceberg  # noqa: PLC0415 - the package may be missing

        return MergedIceberg(options)
    return HistoryDelta(options) if options.history else MergedDelta(options)


def commit_merge(
    table: "MergedDelta | MergedIceberg", rows: Any, epoch: Epoch, progress: Progress | None = None
) -> bool:
    """Merge the rows of an epoch, unless the table has it.

    Args:
        table: the table; it is created if it is missing.
        rows: Arrow table, as `table.merge` takes them.
        epoch: what the commit records.
        progress: what the checkpoint notes about the table; None = nothing.

    Returns:
        Whether this attempt's rows are in the table.

    Raises:
        StateError: the epoch is refused (see `bascule.lake.epochs.decide`), or the table is another one.
        UnavailableError: other writers committed first `MOST_CONFLICTS` times in a row.
    """
    noted = prepare(table, table.schema_of(rows.schema), epoch, progress)
    for attempt in range(MOST_CONFLICTS):
        state, handle = table.snapshot(epoch)
        decision = decide(table.uri, state, epoch, noted)
        if progress is not None:
            progress.note(epoch.number)
        if isinstance(decision, Already):
            table.finish()
            logger.info("%s has epoch %d of query %s already", table.uri, epoch.number, epoch.writer.query_id)
            return decision.own
        failpoint("merge.before_commit")
        if table.merge(handle, decision, epoch, rows):
            failpoint("merge.after_commit")
            table.finish()
            return True
        pause(attempt)
    raise too_many(table.uri)


def _ranges(frame: "DataFrame", options: MergeOptions) -> "Mapping[Source, Written]":
    """The offsets of the rows by source; checks that all keys are there."""
    from pyspark.sql import functions  # noqa: PLC0415 - the package is imported without pyspark

    missing = functions.expr(" OR ".join(f"`{key}` IS NULL" for key in options.keys))
    found = frame.groupBy(*SOURCE_COLUMNS).agg(
        functions.min("offset").alias("first"),
        functions.max("offset").alias("last"),
        functions.count("*").alias("rows"),
        functions.count_distinct("offset").alias("offsets"),
        functions.min(functions.when(missing, functions.col("offset"))).alias("keyless"),
    )
    ranges: dict[Source, Written] = {}
    for row in found.collect():
        source = Source(row["stream"], row["incarnation"], row["partition"])
        if row["keyless"] is not None:
            raise error(
                "record_invalid",
                f"{source} has a record whose key ({', '.join(options.keys)}) is null at offset {row['keyless']}: "
                'leave such rows out (in SQL by WHERE, in keep_table by on_missing_key="skip"), or choose other keys',
                {"offset": row["keyless"], "where": str(source)},
            )
        ranges[source] = Written(row["first"], row["last"] + 1, row["rows"], row["offsets"] == row["rows"])
    return ranges


def _latest(frame: "DataFrame", options: MergeOptions) -> "DataFrame":
    """One row for each key, with the column `DELETED`."""
    from pyspark.sql import Window, functions  # noqa: PLC0415 - as above

    keys = [f"`{key}`" for key in options.keys]
    # Within a partition the offset decides, because clocks of brokers may be set back; across partitions the time.
    orders = (
        Window.partitionBy(*keys, *SOURCE_COLUMNS).orderBy(functions.desc("offset")),
        Window.partitionBy(*keys).orderBy(
            functions.desc("timestamp"), functions.desc("partition"), functions.desc("offset")
        ),
    )
    rows = _with_deleted(frame, options)
    for order in orders:
        rows = rows.withColumn(_RANK, functions.row_number().over(order)).where(f"{_RANK} = 1").drop(_RANK)
    return rows


def _versions(frame: "DataFrame", options: MergeOptions) -> "DataFrame":
    """All rows, those of a key together and in their order, with the columns `DELETED` and `VALID_FROM`."""
    from pyspark.sql import Window, functions  # noqa: PLC0415 - as above

    keys = [f"`{key}`" for key in options.keys]
    # Within a partition the offset decides: a version begins no earlier than the one before it.
    before = Window.partitionBy(*keys, *SOURCE_COLUMNS).orderBy("offset").rowsBetween(Window.unboundedPreceding, 0)
    rows = _with_deleted(frame, options).withColumn(VALID_FROM, functions.max("timestamp").over(before))
    return rows.orderBy(*keys, VALID_FROM, "partition", "stream", "incarnation", "offset")


def _with_deleted(frame: "DataFrame", options: MergeOptions) -> "DataFrame":
    from pyspark.sql import functions  # noqa: PLC0415 - as above

    deleted = functions.expr(f"coalesce({options.delete_when}, false)" if options.delete_when else "false")
    return frame.withColumn(DELETED, deleted)
