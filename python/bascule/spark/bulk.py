"""The bulk scan: a bounded read on `mapInArrow`, faster than the data source, most of all with few columns.

The data source turns record batches into rows twice; `mapInArrow` does it once. The plan is fixed when `scan` is
called.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from bascule.spark.columns import DEFAULT, arrow_schema, ddl, parse_columns
from bascule.spark.options import SOURCE, SourceOptions, parse_options
from bascule.spark.planning import Range, plan
from bascule.spark.reading import read_ranges
from bascule.spark.resolving import resolve_ranges
from bascule.spark.zones import SETTING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def scan(
    spark: "SparkSession",
    stream: str | Sequence[str],
    *,
    columns: Sequence[str] = DEFAULT,
    **options: str | int,
) -> "DataFrame":
    """A DataFrame of the present records of streams.

    Args:
        spark: the session.
        stream: one name or several.
        columns: columns in order, without repetition.
        **options: options of the data source by their names there (`address`, `subject`, `startingOffsets`,
            `endingTimestamp`, `maxPartitions`, …); those of micro-batches are rejected.

    Returns:
        A DataFrame whose ranges are fixed: records that come later are not in it. Nothing is read before an action.

    Raises:
        UsageError: an option is wrong.
        BrokerError: the broker cannot be reached, or there is no such stream.
    """
    names = [stream] if isinstance(stream, str) else list(stream)
    SOURCE.check_kind(SOURCE.read({name: str(value) for name, value in options.items()}), "batch", "read")
    wanted = parse_columns(",".join(columns))
    given = {"timeZone": str(spark.conf.get(SETTING)), **{name: str(value) for name, value in options.items()}}
    parsed = parse_options({**given, "stream": json.dumps(names), "columns": ",".join(wanted)})
    tasks = plan(resolve_ranges(parsed), parsed.packing)
    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    untyped: Any = numbers
    return untyped.mapInArrow(_reader(parsed, tasks), ddl(wanted))


def _reader(options: SourceOptions, tasks: Sequence[tuple[Range, ...]]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that runs in the tasks: each row is the number of a task."""

    def read(numbers: Iterable[Any]) -> Iterator[Any]:
        schema = arrow_schema(options.columns)
        for batch in numbers:
            numbers_here: list[int] = batch.column(0).to_pylist()
            for number in numbers_here:
                yield from read_ranges(options, tasks[number], schema)

    return read
