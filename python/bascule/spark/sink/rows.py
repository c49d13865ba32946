"""Rows of a write: which columns it may have, and to which stream and partition each row goes."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from bascule.spark.sink.checking import Numbers
from bascule.spark.sink.options import SinkOptions
from bascule.spark.usage import nearest, usage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_BYTES: Final = ("binary", "string")
_TIMES: Final = ("timestamp", "timestamp_ntz")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "value": _BYTES,
    "key": _BYTES,
    "headers": (),
    "subject": ("string",),
    "reply": ("string",),
    "id": ("binary",),
    "timestamp": _TIMES,
    "origin_time": _TIMES,
    "origin_time_ns": ("bigint",),
    "stream": ("string",),
    "partition": _WHOLE,
}
"""Columns by name, with the types that each may have; those of headers are checked by their shape."""


def check_columns(schema: "StructType", options: SinkOptions) -> None:
    """Reject a result that cannot be written.

    Raises:
        UsageError: a column is not known, is there twice, or has another type; `value` or the stream is missing.
    """
    seen: set[str] = set()
    for column in schema.fields:
        name = column.name.lower()
        if name not in COLUMNS:
            hint = " (Kafka's topic is the column or the option stream)" if name == "topic" else nearest(name, COLUMNS)
            remedy = f"a record has {', '.join(COLUMNS)}; select these, or pack others into value, as by to_json"
            raise usage(f"there is no column {column.name!r}{hint}: {remedy}", column=name)
        if name in seen:
            raise usage(f"column {name} is there twice, in other cases: rename one", column=name)
        seen.add(name)
    if {"origin_time", "origin_time_ns"} <= seen:
        raise usage("columns origin_time and origin_time_ns are the same time: select one", column="origin_time_ns")
    if "value" not in seen:
        remedy = "pack other columns into it, as by to_json(struct(*)) AS value"
        raise usage(f"column value is missing: it holds the bytes or the text of each record; {remedy}", column="value")
    for column in schema.fields:
        _check_type(column.name.lower(), column.dataType.simpleString())
    if options.stream is None and "stream" not in seen:
        raise usage("set the option stream, or give each row one in a column stream")


def _check_type(name: str, given: str) -> None:
    allowed = COLUMNS[name]
    if name == "headers":
        if not given.startswith(("array<struct<", "map<string,")):
            raise usage(f"column headers is {given}: it must be an array of struct<key, value>, or a map", column=name)
    elif given not in allowed:
        remedy = "it is the id of a message, of 16 bytes; pack other ids into value" if name == "id" else "cast it"
        raise usage(f"column {name} is {given}: it must be {' or '.join(allowed)}; {remedy}", column=name)


def by_stream(batch: Any, options: SinkOptions, first: int = 0) -> Iterator[tuple[str | None, Any, Numbers]]:
    """The rows of a batch by their stream, in order of appearance, as they came; but `origin_time_ns` becomes
    `origin_time`.

    Args:
        batch: Arrow record batch.
        options: of the write.
        first: number of its first row.

    Yields:
        The stream (None or empty = the rows have none), its rows, and their numbers.
    """
    batch = _with_origin(batch)
    if options.stream is not None:
        yield options.stream, batch, Numbers(first)  # rows whose column says something else are invalid
        return
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    index = _index(batch, "stream")
    names, rest = batch.column(index), batch.drop_columns([batch.schema.names[index]])
    found = pc.unique(names).to_pylist()
    if len(found) == 1:
        yield found[0], rest, Numbers(first)
        return
    for name in found:
        chosen = pc.is_null(names) if name is None else pc.equal(names, name)
        numbers = pc.add(pc.indices_nonzero(pc.fill_null(chosen, False)), pa.scalar(first, pa.uint64()))
        yield name, rest.filter(chosen), Numbers(first, numbers)


def _with_origin(batch: Any) -> Any:
    """The batch with `origin_time` instead of `origin_time_ns`: a timestamp of Spark has microseconds alone."""
    index = _find(batch, "origin_time_ns")
    if index is None:
        return batch
    pa: Any = import_module("pyarrow")
    return batch.set_column(index, "origin_time", batch.column(index).cast(pa.timestamp("ns", "UTC")))


def with_partition(batch: Any, options: SinkOptions, partitions: int) -> Any:
    """The batch with the partitioner's column `partition`, unless it has one or goes by key.

    Raises:
        UsageError: the partitioner is missing, or its answer is not one number for each row.
    """
    if options.partitioner == "key" or _find(batch, "partition") is not None:
        return batch
    pa: Any = import_module("pyarrow")
    numbers = _partitioner(options.partitioner)(with_subject(batch, options.subject), partitions)
    if not isinstance(numbers, pa.Array) or not pa.types.is_integer(numbers.type) or len(numbers) != batch.num_rows:
        raise usage(f"partitioner {options.partitioner} must return an Arrow array of integers, one for each row")
    return batch.append_column("partition", numbers.cast(pa.int32()))


def with_subject(batch: Any, subject: str | None) -> Any:
    """The batch with a subject for the rows that have none; the very same batch when all have one, or none is given."""
    if subject is None:
        return batch
    pa: Any = import_module("pyarrow")
    index = _find(batch, "subject")
    if index is None:
        return batch.append_column("subject", pa.repeat(pa.scalar(subject), batch.num_rows))
    if batch.column(index).null_count == 0:
        return batch
    filled = import_module("pyarrow.compute").fill_null(batch.column(index), subject)
    return batch.set_column(index, batch.schema.names[index], filled)


def _find(batch: Any, name: str) -> int | None:
    return next((i for i, known in enumerate(batch.schema.names) if known.lower() == name), None)


def _index(batch: Any, name: str) -> int:
    found = _find(batch, name)
    if found is None:
        raise usage(f"column {name} is missing")
    return found


@lru_cache(maxsize=8)
def _partitioner(name: str) -> Callable[[Any, int], Any]:
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError) as cause:
        raise usage(f"partitioner {name} cannot be imported on an executor: {cause}") from cause
