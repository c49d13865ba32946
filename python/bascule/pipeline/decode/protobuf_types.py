"""Protobuf messages as Arrow types, and the functions that turn messages into values of these types.

| Protobuf | Spark |
|---|---|
| bool, int32, int64, float, double, string, bytes | boolean, int, bigint, float, double, string, binary |
| uint32, fixed32 / uint64, fixed64 | bigint / decimal(20, 0) |
| enum | string: its name, or its number if the schema has no name for it |
| message / repeated / map | struct / array / map |
| a message without fields | boolean: true if it is set |
| `google.protobuf.Timestamp` | timestamp |
| the wrappers, e.g. `google.protobuf.Int64Value` | the wrapped type, null if it is not set |
| `google.protobuf.Struct`, `Value`, `ListValue` | string: JSON |

A field with presence (`optional`, a message, a member of a oneof) that is not set is null; other fields have their
default. A message that contains itself has no column type and is refused with its path.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from bascule.errors import UsageError

__all__ = ["Mapped", "message_type"]

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Mapped:
    """An Arrow type, and how a Protobuf value becomes one of its values; None = it is one already."""

    arrow: Any
    convert: Convert | None


_MICROS: Final = 1_000_000
_UNSIGNED_64: Final = frozenset({FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64})
_SCALARS: Final = {
    FieldDescriptor.TYPE_DOUBLE: "float64",
    FieldDescriptor.TYPE_FLOAT: "float32",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_SINT64: "int64",
    FieldDescriptor.TYPE_SFIXED64: "int64",
    FieldDescriptor.TYPE_UINT32: "int64",
    FieldDescriptor.TYPE_FIXED32: "int64",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_SINT32: "int32",
    FieldDescriptor.TYPE_SFIXED32: "int32",
    FieldDescriptor.TYPE_BOOL: "bool_",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "binary",
}
_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})


def message_type(message: Descriptor) -> Mapped:
    """The struct of a message.

    Raises:
        UsageError: code `invalid_argument`: a part has no column type; the message has its path.
    """
    pa: Any = import_module("pyarrow")
    mapped = _message(pa, message, "", ())
    if not pa.types.is_struct(mapped.arrow):
        return Mapped(pa.struct([("value", mapped.arrow)]), _as_field(mapped.convert))
    return mapped


def _as_field(convert: Convert | None) -> Convert:
    return lambda value: {"value": value if convert is None else convert(value)}


def _message(pa: Any, message: Descriptor, path: str, inside: Sequence[str]) -> Mapped:
    name = message.full_name
    if name == "google.protobuf.Timestamp":
        return Mapped(pa.timestamp("us", tz="UTC"), lambda value: value.seconds * _MICROS + value.nanos // 1000)
    if name in _WRAPPERS:
        below = _scalar(pa, message.fields_by_name["value"])
        inner = below.convert
        return Mapped(below.arrow, (lambda v: v.value) if inner is None else (lambda v: inner(v.value)))
    if name in _JSON:
        return Mapped(pa.string(), lambda value: json_format.MessageToJson(value, indent=None))
    if name in inside:
        raise UsageError(
            "invalid_argument", f'the field "{path}" has no column type: the message {name} contains itself'
        )
    if not message.fields:
        return Mapped(pa.bool_(), lambda _: True)
    fields = [
        (field.name, _field(pa, field, f"{path}.{field.name}".lstrip("."), [*inside, name])) for field in message.fields
    ]
    return Mapped(
        pa.struct([(field, mapped.arrow) for field, (mapped, _) in fields]),
        _struct([(field, mapped.convert, presence) for field, (mapped, presence) in fields]),
    )


def _struct(fields: Sequence[tuple[str, Convert | None, bool]]) -> Convert:
    def convert(message: Any) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for name, inner, has_presence in fields:
            if has_presence and not message.HasField(name):
                continue  # null
            value = getattr(message, name)
            row[name] = value if inner is None else inner(value)
        return row

    return convert


def _field(pa: Any, field: FieldDescriptor, path: str, inside: Sequence[str]) -> tuple[Mapped, bool]:
    """The type of a field, and whether it may be unset."""
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        return _map(pa, entry, path, inside), False
    one = _scalar(pa, field) if entry is None else _message(pa, entry, path, inside)
    if not field.is_repeated:
        return one, field.has_presence
    inner = one.convert
    return Mapped(pa.list_(one.arrow), list if inner is None else (lambda values: [inner(v) for v in values])), False


def _map(pa: Any, entry: Descriptor, path: str, inside: Sequence[str]) -> Mapped:
    key, field = entry.fields_by_name["key"], entry.fields_by_name["value"]
    keys = _scalar(pa, key)
    below = field.message_type
    values = _scalar(pa, field) if below is None else _message(pa, below, f"{path}{{}}", inside)
    key_of, value_of = keys.convert, values.convert

    def convert(mapping: Any) -> list[tuple[Any, Any]]:
        return [
            (name if key_of is None else key_of(name), value if value_of is None else value_of(value))
            for name, value in mapping.items()
        ]

    return Mapped(pa.map_(keys.arrow, values.arrow), convert)


def _scalar(pa: Any, field: FieldDescriptor) -> Mapped:
    kind = field.type
    if kind == FieldDescriptor.TYPE_ENUM:
        # of several names for one number, the first counts
        assert field.enum_type is not None
        names = {value.number: value.name for value in reversed(field.enum_type.values)}

        def name_of(number: int) -> str:
            return names.get(number, str(number))

        return Mapped(pa.string(), name_of)
    if kind in _UNSIGNED_64:
        return Mapped(pa.decimal128(20, 0), Decimal)
    return Mapped(getattr(pa, _SCALARS[kind])(), None)
