"""Splits record batches by the partition values of a table, without a loop over records."""

import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

from bascule.lake.grouping import grouped
from bascule.lake.layout import value_text
from bascule.lake.options import bucket_count, partition_column
from bascule.spark.spelling import spelled
from bascule.spark.usage import nearest, usage

_INSTEAD: Final = {
    "day": ", which the rows lack: the day of the timestamp is date",
    "bucket": ", which the rows lack: buckets of the key are bucket(N), as bucket(16)",
}
"""What is meant by the words of Iceberg, where the rows have no such column."""
LONG_KEY: Final = 256
"""Keys with more bytes are hashed one by one."""

Values = tuple[tuple[str, str | None], ...]
"""Partition values as text, with their columns."""


def check_fields(fields: Sequence[str], schema: Any) -> None:
    """Reject fields of `partitionBy` that rows with this Arrow schema cannot be partitioned by.

    Raises:
        UsageError: no such column, or a type that is not partitioned by.
    """
    pa: Any = import_module("pyarrow")
    for field in fields:
        if bucket_count(field) is not None:
            _typed(schema, "key", f"{spelled('partitionBy')} {field}", (pa.types.is_binary, pa.types.is_string))
            if "bucket" in schema.names:
                raise usage(f"{spelled('partitionBy')} {field} would add a column bucket, which the rows have")
        elif field == "date" and "date" not in schema.names:
            _typed(schema, "timestamp", f"{spelled('partitionBy')} date", (pa.types.is_timestamp,))
        else:
            kinds = (pa.types.is_string, pa.types.is_integer, pa.types.is_date32, pa.types.is_boolean)
            _typed(schema, field, f"{spelled('partitionBy')} {field}", kinds)


def _typed(schema: Any, name: str, what: str, kinds: Sequence[Any]) -> None:
    if name not in schema.names:
        hint = _INSTEAD.get(name) or nearest(name, schema.names)
        raise usage(f"{what} needs a column {name}{hint}", column=name)
    kind = schema.field(name).type
    if not any(is_kind(kind) for is_kind in kinds):
        raise usage(f"{what}: column {name} is {kind}, which cannot be partitioned by", column=name)


def partition_type(field: str, schema: Any) -> Any:
    """The Arrow type of the partition column of a field."""
    pa: Any = import_module("pyarrow")
    if bucket_count(field) is not None:
        return pa.int32()
    return schema.field(field).type if field in schema.names else pa.date32()


def split(batch: Any, fields: Sequence[str]) -> Iterator[tuple[Values, Any]]:
    """The rows of a record batch by partition values, each group in the order of the batch.

    A batch whose rows have the same values is passed on as it is.
    """
    if not fields:
        yield (), batch
        return
    names = [partition_column(field) for field in fields]
    for chosen, rows in grouped(batch, [partition_values(batch, field) for field in fields]):
        yield tuple((name, value_text(value)) for name, value in zip(names, chosen, strict=True)), rows


def partition_values(batch: Any, field: str) -> Any:
    """The partition column of a field, as an Arrow array."""
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    count = bucket_count(field)
    if count is not None:
        return buckets(batch.column("key"), count)
    if field in batch.schema.names:
        return batch.column(field)
    stamps = batch.column("timestamp")
    in_utc = stamps.cast(pa.timestamp(stamps.type.unit))
    return pc.floor_temporal(in_utc, unit="day").cast(pa.date32())


def buckets(keys: Any, count: int) -> Any:
    """CRC-32 (IEEE) of each key modulo `count`, as int32: the partition that the broker gives a key when the stream has
    `count` partitions. Null for a key that is null or empty.
    """
    np: Any = import_module("numpy")
    pa: Any = import_module("pyarrow")
    pc: Any = import_module("pyarrow.compute")
    distinct = keys.cast(pa.binary()).dictionary_encode()
    hashes = _crc32(distinct.dictionary)
    numbers = pa.array((hashes % np.uint32(count)).astype(np.int32))
    empty = pc.equal(pc.binary_length(distinct.dictionary), 0)
    return pc.if_else(empty, pa.scalar(None, pa.int32()), numbers).take(distinct.indices)


def _crc32(keys: Any) -> Any:
    """CRC-32 of each key of a binary array without nulls, as uint32: one step for each place in the keys."""
    np: Any = import_module("numpy")
    pc: Any = import_module("pyarrow.compute")
    lengths = pc.binary_length(keys).to_numpy(zero_copy_only=False)
    found = np.zeros(len(keys), np.uint32)
    if not len(keys):
        return found
    _, offsets, content = keys.buffers()
    starts = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys)].astype(np.int64)
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    order = np.argsort(-lengths, kind="stable")
    short = order[lengths[order] <= LONG_KEY]
    for index in order[: len(order) - len(short)]:  # few, and the time goes into their bytes
        found[index] = zlib.crc32(data[starts[index] : starts[index] + lengths[index]])
    ascending = -lengths[short]
    crc = np.full(len(short), 0xFFFFFFFF, np.uint32)
    table = _crc_table()
    for place in range(int(-ascending[0]) if len(short) else 0):
        still = int(np.searchsorted(ascending, -place))  # the keys with more bytes than `place`
        here = crc[:still]
        byte = data[starts[short[:still]] + place]
        crc[:still] = table[(here ^ byte) & 0xFF] ^ (here >> np.uint32(8))
    found[short] = crc ^ np.uint32(0xFFFFFFFF)
    return found


@cache
def _crc_table() -> Any:
    np: Any = import_module("numpy")
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> np.uint32(1)), table >> np.uint32(1))
    return table
