"""Archives streams to a lake by one call: a query from `format("bascule")` to `format("bascule_archive")`."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from bascule.lake.options import STREAM_MARK, TABLE, ArchiveOptions, parse_archive_options
from bascule.lake.writing import start
from bascule.spark.options import ON_DATA_LOSS, SOURCE, SUBJECT
from bascule.spark.usage import nearest, usage
from bascule.spark.zones import SETTING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS: Final = (
    *("stream", "incarnation", "partition", "offset", "timestamp"),
    *("subject", "key", "value", "headers"),
)
"""Default columns of an archive."""
NEEDED: Final = ("stream", "incarnation", "partition", "offset", "timestamp")
"""Columns that every archive has."""
_SET_HERE: Final = frozenset({"path", "tableformat", "partitionby", "stream", "columns", "complete"})
_BATCH_ONLY: Final = frozenset({"queryid", "epoch", "rangeid"})


def archive(  # noqa: PLR0913 - all by name
    spark: "SparkSession",
    *,
    to: str,
    checkpoint: str,
    stream: str | Sequence[str] | None = None,
    format: str = "delta",  # noqa: A002 - Spark's word
    partition_by: str | Sequence[str] = (),
    columns: Sequence[str] = COLUMNS,
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
        columns: of `format("bascule")`; `stream`, `incarnation`, `partition`, `offset` and `timestamp` must be among
            them.
        available_now: archive what is there now and end.
        every: time between micro-batches, as `10 seconds`; None = as soon as there are records.
        name: name of the query.
        **options: options of the source and of the table by their names there (`address`, `streamPattern`,
            `maxOffsetsPerTrigger`, `compression`, `fileBytes`, `compactEvery`, …).

    Returns:
        The running query.

    Raises:
        UsageError: an option is wrong.
    """
    source = _source(spark, stream, columns, options)
    fields = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    given = {
        **{key: _text(value) for key, value in options.items() if _is_of_table(key)},
        "path": to,
        "tableFormat": format,
        **({"partitionBy": ",".join(fields)} if fields else {}),
        "complete": _text(_is_complete(source)),
    }
    table = parse_archive_options(given)
    _check_several(stream, source, table)
    frame = spark.readStream.format("bascule").options(**source).load()
    return start(frame, table, checkpoint=checkpoint, name=name, available_now=available_now, every=every)


def _source(
    spark: "SparkSession",
    stream: str | Sequence[str] | None,
    columns: Sequence[str],
    options: dict[str, str | float | bool],
) -> dict[str, str]:
    """Options of the source."""
    known = {key.lower() for key in SOURCE.names}
    for key in options:
        if key.lower() in _SET_HERE or key.lower() in _BATCH_ONLY:
            raise usage(f"option {key} cannot be given to archive", option=key)
        if key.lower() not in known and not _is_of_table(key):
            advice = SOURCE.advice(key.lower())
            hint = nearest(key, (*SOURCE.names, *TABLE.names)) if advice is None else f": {advice}"
            raise usage(f"there is no option {key!r}{hint}", option=key)
    missing = [column for column in NEEDED if column not in columns]
    if missing:
        raise usage(f"columns of an archive include {', '.join(NEEDED)}: {', '.join(missing)} is missing")
    found = {key: _text(value) for key, value in options.items() if not _is_of_table(key)}
    found.setdefault("timeZone", str(spark.conf.get(SETTING)))
    if stream is not None:
        found["stream"] = json.dumps([stream] if isinstance(stream, str) else list(stream))
    return {**found, "columns": ",".join(columns)}


def _is_complete(source: dict[str, str]) -> bool:
    """Whether offsets without a row do not exist: a subject filter leaves records out, and so does `onDataLoss=skip`
    when retention has removed some before they were read.
    """
    given = {key.lower(): value.strip().lower() for key, value in source.items()}
    return SUBJECT.name.lower() not in given and given.get(ON_DATA_LOSS.name.lower(), "fail") == "fail"


def _check_several(stream: str | Sequence[str] | None, source: dict[str, str], table: ArchiveOptions) -> None:
    """A pattern is for one table per stream, unless the table is partitioned by stream."""
    is_pattern = stream is None and "streampattern" in {key.lower() for key in source}
    if is_pattern and not table.has_table_per_stream and "stream" not in table.partition_by:
        raise usage(
            f"streamPattern needs {STREAM_MARK} in the folder, as in {table.path}/{STREAM_MARK}, for one table per "
            "stream; or partition one table by stream"
        )


def _is_of_table(name: str) -> bool:
    return name.lower() in {key.lower() for key in TABLE.names}


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
