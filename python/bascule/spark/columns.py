"""The columns of a stream, as Spark and as the broker name them (`specs/formats/flight.md`).

NOT NULL columns are declared so on both sides: Spark then leaves its null checks out.
"""

from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final

from bascule.spark.spelling import named
from bascule.spark.usage import nearest, usage

TYPES: Final = {
    "partition": "int NOT NULL",
    "offset": "bigint NOT NULL",
    "timestamp": "timestamp NOT NULL",
    "subject": "string NOT NULL",
    "key": "binary",
    "value": "binary",
    "stream": "string NOT NULL",
    "incarnation": "bigint NOT NULL",
    "headers": "array<struct<key:string,value:binary>> NOT NULL",
    "reply": "string",
    "id": "binary",
    "origin_time": "timestamp",
    "timestamp_ns": "bigint NOT NULL",
}
"""Spark's type of each column, in DDL."""

DEFAULT: Final = ("partition", "offset", "timestamp", "subject", "key", "value")
"""Default columns: the cheap ones (a header list costs 400 ns per row)."""


INCARNATION: Final = "incarnation"
"""The column that the reader adds: the broker serves one incarnation of a partition at a time, and a range names it."""


def listed(columns: str | Sequence[str]) -> tuple[str, ...]:
    """Names of columns, from a sequence or from one text with commas."""
    return tuple(name.strip() for name in columns.split(",")) if isinstance(columns, str) else tuple(columns)


def parse_columns(text: str) -> tuple[str, ...]:
    """The columns named in a comma-separated list, in its order.

    Raises:
        UsageError: a name is not a column, repeats, or there is none.
    """
    names = tuple(name.strip().lower() for name in text.split(",") if name.strip())
    if not names:
        raise usage(f"{named('columns')} names no column: choose among {', '.join(TYPES)}")
    for name in names:
        if name not in TYPES:
            hint = nearest(name, TYPES) or f"; there are {', '.join(TYPES)}"
            raise usage(f"{named('columns')}: there is no column {name!r}{hint}", column=name)
        if names.count(name) > 1:
            raise usage(f"{named('columns')} names {name} twice", column=name)
    return names


def ddl(columns: Sequence[str]) -> str:
    """The schema of `columns` as Spark's DDL."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def arrow_schema(columns: Sequence[str]) -> Any:
    """The Arrow schema that Spark expects for `columns`, made without a JVM."""
    pa: Any = import_module("pyarrow")
    kinds: dict[str, Any] = {
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "string": pa.string(),
        "binary": pa.binary(),
        "array<struct<key:string,value:binary>>": pa.list_(
            pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
        ),
    }
    fields: list[Any] = []
    for name in columns:
        kind = TYPES[name].removesuffix(" NOT NULL")
        fields.append(pa.field(name, kinds[kind], nullable=kind == TYPES[name]))
    return pa.schema(fields)
