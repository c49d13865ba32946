"""Batch reads: a snapshot of ranges, fixed when the read is planned."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from bascule.spark.options import SourceOptions
from bascule.spark.planning import Range
from bascule.spark.reading import plan_tasks, read_ranges
from bascule.spark.resolving import resolve_ranges
from bascule.spark.sentences import sentence_first


class RangesPartition(InputPartition):
    """The ranges that one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)


class BasculeReader(DataSourceReader):
    """Plans on the driver, reads on executors. `latest` becomes a number in `partitions()` and nowhere else."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Tasks for the records that exist now."""
        with sentence_first():
            planned = resolve_ranges(self._options)
        return [RangesPartition(ranges) for ranges in plan_tasks(self._options, planned)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Record batches of one task. An empty read has one task without ranges."""
        ranges = partition.ranges if isinstance(partition, RangesPartition) else ()
        return read_ranges(self._options, ranges, arrow_schema(self._schema))


def arrow_schema(schema: StructType) -> Any:
    """The Arrow schema that Spark expects for `schema`."""
    types: Any = import_module("pyspark.sql.pandas.types")
    return types.to_arrow_schema(schema, timezone="UTC")
