"""Archives streams to a lake by one call: a query from `format("bascule")` to `format("bascule_archive")`."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from bascule.lake.options import STREAM_MARK, TABLE, ArchiveOptions, parse_archive_options
from bascule.lake.ranges import POSITION
from bascule.lake.tables import check_tables
from bascule.lake.writing import start
from bascule.spark.columns import listed
from bascule.spark.connection_options import NAMESPACE
from bascule.spark.intervals import check_every
from bascule.spark.options import ON_DATA_LOSS, SUBJECT, parse_options
from bascule.spark.reaching import check_reached
from bascule.spark.source_arguments import OF_SOURCE, option_text, source_options
from bascule.spark.spelling import surface
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS: Final = (*POSITION, "subject", "key", "value", "headers")
"""Default columns of an archive."""
_NONE: Final = "archive sets it itself, where it applies"
_REFUSED: Final = {
    "path": "the argument to names the table",
    "tableformat": "the argument format does",
    "partitionby": "the argument partition_by does",
    "stream": "write it in lower case",
    "columns": "write it in lower case",
    **dict.fromkeys(("complete", "queryid", "epoch", "rangeid", "reportnamespace"), _NONE),
}
"""Options that cannot be given, and what to use instead."""
_ARGUMENTS: Final = {
    "path": "argument to",
    "every": "argument every",
    "tableFormat": "argument format",
    "partitionBy": "argument partition_by",
    **OF_SOURCE,
}


@surface(_ARGUMENTS)
def archive(  # noqa: PLR0913 - all by name
    spark: "SparkSession",
    *,
    to: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    stream: str | Sequence[str] | None = None,
    format: str = "delta",  # noqa: A002 - Spark's word
    partition_by: str | Sequence[str] = (),
    columns: str | Sequence[str] = COLUMNS,
    available_now: bool = False,
    every: str | None = None,
    name: str | None = None,
    **options: str | float | bool,
) -> "StreamingQuery":
    """Start a query that keeps the records of streams in a Delta, Iceberg or Parquet table, each exactly once.

    Args:
        spark: the session.
        to: folder of the table, or `s3://bucket/folder`; of an Iceberg table `namespace.table`. With `{stream}` in it
            each stream has a table of its own.
        checkpoint: folder of the query's checkpoint; it belongs to the table. With another one the table refuses
            records that it has.
        stream: one name or several; None = the option `streamPattern` or `assign` selects them.
        format: `delta`, `iceberg` or `parquet`.
        partition_by: `date`, `bucket(N)` by key, or columns; one or several, in order.
        columns: of `format("bascule")`, a sequence or one text with commas; `stream`, `incarnation`, `partition`,
            `offset` and `timestamp` must be among them.
        available_now: archive what is there now and end.
        every: time between micro-batches, as `10 seconds`; None = as soon as there are records.
        name: name of the query.
        **options: options of the source and of the table by their names there (`address`, `streamPattern`,
            `maxOffsetsPerTrigger`, `compression`, `fileBytes`, `compactEvery`, …).

    Returns:
        The running query.

    Raises:
        UsageError: an option is wrong, or the checkpoint is in the table's folder.
        StateError: the checkpoint is a copy of another one, its folder cannot be written, or the table is there and is
            another one, as one of another format or one that `keep_table` keeps. Tables of streams that a pattern
            selects are compared by their first epoch.
        UnavailableError: the broker is not reached within 3 s, or within `retryDeadlineMs` if that is given.
    """
    check_every(every)
    of_table = {key: option_text(value) for key, value in options.items() if _is_of_table(key)}
    of_source = {key: value for key, value in options.items() if not _is_of_table(key)}
    source = source_options(
        spark,
        stream=stream,
        columns=listed(columns),
        options=of_source,
        refused=_REFUSED,
        needed=POSITION,
        call="archive",
        what="an archive",
        also=TABLE.names,
    )
    fields = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    given = {
        **of_table,
        "path": os.fspath(to),
        "tableFormat": format,
        **({"partitionBy": ",".join(fields)} if fields else {}),
        "complete": option_text(_is_complete(source)),
        "reportNamespace": _given(source).get(NAMESPACE.name.lower(), "default"),
    }
    table = parse_archive_options(given)
    _check_several(stream, source, table)
    check_reached("the archive", source)
    frame = spark.readStream.format("bascule").options(**source).load()
    if table.has_table_per_stream:
        check_tables(table, frame.schema, _streams(source))
    return start(frame, table, checkpoint=checkpoint, name=name, available_now=available_now, every=every)


def _is_complete(source: dict[str, str]) -> bool:
    """Whether offsets without a row do not exist: a subject filter leaves records out, and so does `onDataLoss=skip`
    when retention has removed some before they were read.
    """
    given = _given(source)
    return SUBJECT.name.lower() not in given and given.get(ON_DATA_LOSS.name.lower(), "fail").lower() != "skip"


def _streams(source: dict[str, str]) -> Sequence[str]:
    """The streams that are read, as far as they are known without the broker."""
    selection = parse_options(source).selection
    return selection.streams or sorted(selection.assigned or ())


def _given(source: dict[str, str]) -> dict[str, str]:
    return {key.lower(): value.strip() for key, value in source.items()}


def _check_several(stream: str | Sequence[str] | None, source: dict[str, str], table: ArchiveOptions) -> None:
    """A pattern is for one table per stream, unless the table is partitioned by stream."""
    is_pattern = stream is None and "streampattern" in {key.lower() for key in source}
    if is_pattern and not table.has_table_per_stream and "stream" not in table.partition_by:
        raise usage(
            f"streamPattern needs {STREAM_MARK} in the folder, as in {table.path}/{STREAM_MARK}, for one table per "
            "stream; or partition one table by stream"
        )


def _is_of_table(name: str) -> bool:
    return name.lower() in {key.lower() for key in TABLE.names} - _REFUSED.keys()
