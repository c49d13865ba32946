"""The shape of the rows that a query writes: columns, types, what identifies a record."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bascule.lake.options import ArchiveOptions, check_marks, partition_column
from bascule.lake.partitioning import check_fields, partition_type
from bascule.lake.records import has_offsets
from bascule.spark.spelling import spelled
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True)
class Shape:
    """Of the rows of one query, checked.

    Attributes:
        rows: Arrow schema of the rows that are written.
        table: the same with the partition columns that are derived.
        has_offsets: stream, partition and offset identify each row.
    """

    rows: Any
    table: Any
    has_offsets: bool


def shape_of(schema: "StructType", options: ArchiveOptions) -> Shape:
    """The shape of rows with a schema of Spark.

    Raises:
        UsageError: the rows cannot be written with these options.
    """
    check_marks(options.path)
    pa: Any = import_module("pyarrow")
    types: Any = import_module("pyspark.sql.pandas.types")
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    if len({name.lower() for name in kinds}) < len(schema.fields):
        raise usage(f"column names repeat, apart from case: {', '.join(field.name for field in schema.fields)}")
    identified = has_offsets(kinds)
    if options.has_table_per_stream and kinds.get("stream") != "string":
        raise usage("{stream} in the path needs a column stream of type string in the rows")
    rows = types.to_arrow_schema(schema, timezone="UTC")
    check_fields(options.partition_by, rows)
    if options.table_format == "iceberg":  # it is partitioned by transforms, which add no columns
        return Shape(rows, rows, identified)
    derived = {partition_column(field): field for field in options.partition_by}
    added = [pa.field(name, partition_type(field, rows)) for name, field in derived.items() if name not in rows.names]
    if all(field.name in derived for field in rows):
        raise usage(f"{spelled('partitionBy')} names every column: files would have no column")
    return Shape(rows, pa.schema([*rows, *added]), identified)
