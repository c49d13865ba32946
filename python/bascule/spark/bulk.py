"""The bulk scan: a bounded read on `mapInArrow`, faster than the data source, most of all with few columns.

The data source turns record batches into rows twice; `mapInArrow` does it once. The plan is fixed when `scan` is
called.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bascule.spark.columns import DEFAULT, arrow_schema, ddl, listed, parse_columns
from bascule.spark.options import SOURCE, SourceOptions, parse_options
from bascule.spark.planning import Range
from bascule.spark.reading import plan_tasks, read_ranges
from bascule.spark.resolving import resolve_ranges
from bascule.spark.source_arguments import OF_SOURCE
from bascule.spark.spelling import surface
from bascule.spark.zones import SETTING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@surface(OF_SOURCE)
def scan(
    spark: "SparkSession",
    stream: str | Sequence[str],
    *,
    columns: str | Sequence[str] = DEFAULT,
    native_archive: bool = False,
    **options: str | int,
) -> "DataFrame":
    """A DataFrame of the present records of streams.

    Args:
        spark: the session.
        stream: one name or several.
        columns: columns in order, without repetition; a sequence, or one text with commas.
        native_archive: records that come from an archive (`archivePath`, on a disk that all hosts have) are read by
            Spark's own Parquet reader, which splits large files; those of a partition are then in no order.
        **options: options of the data source by their names there (`address`, `subject`, `startingOffsets`,
            `endingTimestamp`, `maxPartitions`, …); those of micro-batches are rejected.

    Returns:
        A DataFrame whose ranges are fixed: records that come later are not in it. Nothing is read before an action.

    Raises:
        UsageError: an option is wrong.
        BrokerError: the broker cannot be reached, or there is no such stream.
        StateError: the tiers do not have the records between the start and the end, as for the data source.
    """
    names = [stream] if isinstance(stream, str) else list(stream)
    SOURCE.check_kind(SOURCE.read({name: str(value) for name, value in options.items()}), "batch", "read")
    wanted = parse_columns(",".join(listed(columns)))
    given = {"timeZone": str(spark.conf.get(SETTING)), **{name: str(value) for name, value in options.items()}}
    parsed = parse_options({**given, "stream": json.dumps(names), "columns": ",".join(wanted)})
    if not native_archive:
        return _read(spark, parsed, resolve_ranges(parsed))
    native = _native()
    native.check_native(parsed)
    planned = resolve_ranges(parsed)
    archived = [each for each in planned if each.files is not None]
    served = [each for each in planned if each.files is None]
    if not archived:
        return _read(spark, parsed, served)
    old: DataFrame = native.read_native(spark, parsed, archived)
    return old.unionAll(_read(spark, parsed, served)) if served else old


def _read(spark: "SparkSession", options: SourceOptions, ranges: Sequence[Range]) -> "DataFrame":
    """The records of ranges, read by Python workers."""
    tasks = plan_tasks(options, ranges)
    untyped: Any = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    return untyped.mapInArrow(_reader(options, tasks), ddl(options.columns))


def _native() -> Any:
    """The module that reads an archive by Spark: without it nothing of a lake is imported."""
    return import_module("bascule.spark.native_archive")


def _reader(options: SourceOptions, tasks: Sequence[tuple[Range, ...]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that runs in the tasks: each row is the number of a task."""

    def read(numbers: Iterable[Any]) -> Iterator[Any]:
        schema = arrow_schema(options.columns)
        for batch in numbers:
            numbers_here: list[int] = batch.column(0).to_pylist()
            for number in numbers_here:
                yield from read_ranges(options, tasks[number], schema)

    return read
