"""Keeps a table at the latest record of each key by one call: a query from `format("bascule")` that merges."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from bascule.lake.merge_options import MergeOptions
from bascule.lake.merging import start_merge
from bascule.lake.ranges import POSITION
from bascule.spark.columns import listed
from bascule.spark.intervals import check_every
from bascule.spark.reaching import check_reached
from bascule.spark.source_arguments import OF_SOURCE, source_options
from bascule.spark.spelling import surface
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS: Final = (*POSITION, "subject", "key", "value")
"""Default columns of a kept table."""
OnTombstone = Literal["delete", "null", "skip", "fail"]
_OF_THE_TABLE: Final = ("target", "credentials", "endpoint", "region", "catalog")
_REFUSED: Final = {
    "stream": "write it in lower case",
    "columns": "write it in lower case",
    "view": "a streaming read has every change, and this query makes the table of them",
    "tablekey": "the argument key does",
    "onmissingkey": "the argument on_missing_key does",
    "ontombstone": "the argument on_tombstone does",
    "partitionby": "a kept table is not partitioned",
}
"""Options that cannot be given, and what to use instead."""
_ARGUMENTS: Final = {
    "path": "argument to",
    "every": "argument every",
    "tableFormat": "argument format",
    "keys": "argument key",
    "history": "argument history",
    **OF_SOURCE,
}


@surface(_ARGUMENTS)
def keep_table(  # noqa: PLR0913 - all by name
    spark: "SparkSession",
    *,
    to: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    stream: str | Sequence[str] | None = None,
    format: Literal["delta", "iceberg"] = "delta",  # noqa: A002 - Spark's word
    key: Literal["key", "subject"] = "key",
    on_tombstone: OnTombstone = "delete",
    on_missing_key: Literal["fail", "skip"] = "fail",
    history: bool = False,
    columns: str | Sequence[str] = COLUMNS,
    available_now: bool = False,
    every: str | None = None,
    name: str | None = None,
    **options: str | float | bool,
) -> "StreamingQuery":
    """Start a query that keeps a Delta or Iceberg table at the latest record of each key of streams, or a Delta table
    at all versions of each key. Each change is merged once.

    Args:
        spark: the session.
        to: folder of the table, or `s3://bucket/folder`; of an Iceberg table `namespace.table`.
        checkpoint: folder of the query's checkpoint; it belongs to the table.
        stream: one name or several; None = the option `streamPattern` or `assign` selects them. A key of two streams
            is one row.
        format: `delta` or `iceberg`.
        key: the column that is the key of the table.
        on_tombstone: a record whose value is null deletes its key or ends its current version (`delete`), is a row
            (`null`), is left out (`skip`), or fails the query (`fail`).
        on_missing_key: a record without a key fails the query, or is left out (`skip`).
        history: keep all versions of a key in a Delta table, each a row with `valid_from`, `valid_to` and `is_current`.
        columns: of `format("bascule")`, a sequence or one text with commas, `POSITION`, the key and `value` among
            them.
        available_now: merge what is there now and end.
        every: time between micro-batches, as `10 seconds`; None = as soon as there are records.
        name: name of the query.
        **options: options of the source by their names (`address`, `streamPattern`, `maxOffsetsPerTrigger`, …), and
            `target`, `credentials`, `endpoint`, `region` and `catalog` of `MergeOptions`.

    Returns:
        The running query. It fails with `record_invalid` by `on_missing_key` or `on_tombstone`.

    Raises:
        UsageError: an option or an argument is wrong, or the checkpoint is in the table's folder.
        StateError: the checkpoint is a copy of another one, its folder cannot be written, or the table is there and is
            another one, as one that `archive` writes.
        UnavailableError: the broker is not reached within 3 s, or within `retryDeadlineMs` if that is given.
    """
    _choice("key", key, ("key", "subject"))
    _choice("on_tombstone", on_tombstone, ("delete", "null", "skip", "fail"))
    _choice("on_missing_key", on_missing_key, ("fail", "skip"))
    check_every(every)
    table = {given.lower(): str(value) for given, value in options.items() if _is_of_table(given)}
    deletes = "value IS NULL" if on_tombstone == "delete" else None
    merged = MergeOptions(
        path=os.fspath(to), keys=(key,), delete_when=deletes, history=history, table_format=format, **table
    )
    source = source_options(
        spark,
        stream=stream,
        columns=listed(columns),
        options={given: value for given, value in options.items() if not _is_of_table(given)},
        refused=_REFUSED,
        needed=(*POSITION, key, "value"),
        call="keep_table",
        what="a kept table",
    )
    check_reached("the kept table", source)
    frame = _kept(spark.readStream.format("bascule").options(**source).load(), key, on_tombstone, on_missing_key)
    return start_merge(frame, merged, checkpoint=checkpoint, name=name, available_now=available_now, every=every)


def _kept(frame: "DataFrame", key: str, on_tombstone: OnTombstone, on_missing_key: str) -> "DataFrame":
    """The records that are merged."""
    if on_missing_key == "skip":
        frame = frame.where(f"{key} IS NOT NULL")
    if on_tombstone == "skip":
        frame = frame.where("value IS NOT NULL")
    if on_tombstone == "fail":
        refusal = "'[record_invalid] ', stream, '/', partition, ' has a tombstone (a null value) at offset ', offset"
        advice = "': set on_tombstone to delete, null or skip'"
        frame = frame.withColumn("value", _expression(f"ifnull(value, raise_error(concat({refusal}, {advice})))"))
    return frame


def _expression(sql: str) -> Any:
    from pyspark.sql.functions import expr  # noqa: PLC0415 - the package is imported without pyspark

    return expr(sql)


def _is_of_table(name: str) -> bool:
    return name.lower() in _OF_THE_TABLE


def _choice(argument: str, given: str, choices: Sequence[str]) -> None:
    if given not in choices:
        raise usage(f"{argument} is {given!r}: it must be {', '.join(choices[:-1])} or {choices[-1]}")
