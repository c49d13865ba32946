"""Catalog tables: `CREATE TABLE … USING bascule OPTIONS (…)`.

Spark 4.3 passes the options when the table is created, and only its schema when it is read. So the options are stored
in the metadata of the first field. Options in a query (`SELECT … WITH (…)`) override them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bascule.spark.columns import TYPES

KEY: Final = "bascule.options"
"""Key of the metadata."""

_KINDS: Final[dict[str, DataType]] = {
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "string": StringType(),
    "binary": BinaryType(),
    "array<struct<key:string,value:binary>>": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def schema_with_options(columns: Sequence[str], options: Mapping[str, str]) -> StructType:
    """The schema of `columns`, with the options of the table in it. Needs no JVM."""
    fields: list[StructField] = []
    for name in columns:
        kind = TYPES[name].removesuffix(" NOT NULL")
        metadata = None if fields else {KEY: json.dumps(dict(options), sort_keys=True)}
        fields.append(StructField(name, _KINDS[kind], kind == TYPES[name], metadata))
    return StructType(fields)


def options_of(schema: StructType) -> dict[str, str]:
    """The options in a table's schema; none for other schemas."""
    for field in schema.fields:
        if text := field.metadata.get(KEY):
            return dict(json.loads(text))
    return {}
