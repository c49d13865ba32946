"""What a decoder that runs in Python workers is, and how it decodes a column of a record batch.

Decoders are pickled into tasks: they hold texts and addresses, and build what they need once per process.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from bascule.pipeline.decode.failures import Failure, RecordError

__all__ = ["PythonDecoder", "decode_column", "error_type", "with_pairs"]


class PythonDecoder(Protocol):
    """Decodes one value at a time, into what pyarrow builds `arrow_type` from."""

    @property
    def name(self) -> str:
        """The format, as error columns have it."""
        ...

    @property
    def arrow_type(self) -> Any:
        """The Arrow type of a decoded value. Times may have any unit; `decode_column` casts them."""
        ...

    def decode(self, value: bytes) -> Any:
        """A value for `arrow_type`.

        Raises:
            RecordError: the bytes do not fit the schema.
            BrokerError: not the record's fault, e.g. the registry does not answer.
        """
        ...


def error_type() -> Any:
    """The Arrow type of an error column, as `ERROR_DDL`."""
    pa: Any = import_module("pyarrow")
    names = ("class", "message", "decoder")
    return pa.struct([*((name, pa.string()) for name in names), ("schema_id", pa.int32())])


def decode_column(decoder: PythonDecoder, column: Any, target: Any) -> tuple[Any, Any]:
    """The decoded column, and its errors.

    Args:
        decoder: how to decode.
        column: binary Arrow array of n values; null stays null.
        target: the Arrow type of the result: `decoder.arrow_type` as Spark has it.

    Returns:
        Two arrays of n values: of `target`, and of `error_type()`. A value that cannot be decoded is null in the first
        and not null in the second; the others are null in the second.

    Raises:
        BrokerError: of the decoder.
    """
    pa: Any = import_module("pyarrow")
    values: list[bytes | None] = column.to_pylist()
    rows: list[Any] = [None] * len(values)
    failures: list[Failure | None] = [None] * len(values)
    for index, value in enumerate(values):
        if value is None:
            continue
        try:
            rows[index] = decoder.decode(value)
        except RecordError as error:
            failures[index] = Failure.of(error, decoder.name)
    decoded = _built(decoder, rows, failures, target)
    errors = pa.array([failure and failure.row() for failure in failures], error_type())
    return decoded, errors


def _built(decoder: PythonDecoder, rows: list[Any], failures: list[Failure | None], target: Any) -> Any:
    """The column of `rows`; those that its type cannot hold become failures."""
    pa: Any = import_module("pyarrow")
    try:
        return pa.array(rows, decoder.arrow_type).cast(target)
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        pass  # the next lines find out which rows
    for index, row in enumerate(rows):
        try:
            pa.array([row], decoder.arrow_type).cast(target)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as problem:
            reason = f"the column's type cannot hold the value: {problem}"
            failures[index] = Failure.of(RecordError("OutOfRange", reason), decoder.name)
            rows[index] = None
    return pa.array(rows, decoder.arrow_type).cast(target)


Conversion = Callable[[Any], Any]


def with_pairs(kind: Any) -> Conversion | None:
    """The function that turns mappings of Arrow maps inside a value into pairs, which pyarrow needs; None = no map.

    Args:
        kind: Arrow type of the value.
    """
    pa: Any = import_module("pyarrow")
    if pa.types.is_map(kind):
        inner = with_pairs(kind.item_type)
        if inner is None:
            return lambda value: None if value is None else list(value.items())
        return lambda value: None if value is None else [(key, inner(item)) for key, item in value.items()]
    if pa.types.is_list(kind):
        item = with_pairs(kind.value_type)
        return None if item is None else lambda value: None if value is None else [item(each) for each in value]
    if pa.types.is_struct(kind):
        return _of_fields([(field.name, with_pairs(field.type)) for field in kind])
    return None


def _of_fields(fields: Sequence[tuple[str, Conversion | None]]) -> Conversion | None:
    changed: Final = [(name, conversion) for name, conversion in fields if conversion is not None]
    if not changed:
        return None

    def convert(value: Any) -> Any:
        if value is None:
            return None
        return {**value, **{name: conversion(value[name]) for name, conversion in changed}}

    return convert
