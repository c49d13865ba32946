"""Avro schemas as Arrow types.

| Avro | Spark |
|---|---|
| boolean, int, long, float, double, bytes, string | boolean, int, bigint, float, double, binary, string |
| enum / fixed | string / binary |
| record / array / map | struct / array / map with string keys |
| a union of null and one type | that type |
| decimal, precision up to 38 / date | decimal / date |
| timestamp-millis, -micros / local-timestamp-millis, -micros | timestamp / timestamp_ntz |
| other logical types | the type below them |

Other unions, a null alone, empty and recursive records have no column type and are refused with their path.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from bascule.errors import UsageError

__all__ = ["arrow_type", "simplified"]

_PRIMITIVES: Final = {
    "boolean": "bool_",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "string": "string",
}
_TIMES: Final = {
    "timestamp-millis": ("ms", "UTC"),
    "timestamp-micros": ("us", "UTC"),
    "local-timestamp-millis": ("ms", None),
    "local-timestamp-micros": ("us", None),
}
_WIDEST_DECIMAL: Final = 38


def simplified(schema: Any) -> Any:
    """`schema` without the logical types that fastavro would turn into Python objects; decimals stay.

    Numbers of days and times are built into Arrow without such objects.
    """
    if isinstance(schema, list):
        return [simplified(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    document = dict(cast("Mapping[str, Any]", schema))
    if document.get("logicalType") != "decimal":
        document.pop("logicalType", None)
    for name in ("type", "items", "values"):
        if name in document:
            document[name] = simplified(document[name])
    if isinstance(document.get("fields"), list):
        document["fields"] = [{**field, "type": simplified(field["type"])} for field in document["fields"]]
    return document


def arrow_type(schema: Any, named: Mapping[str, Any]) -> Any:
    """The Arrow type of values of a schema.

    Args:
        schema: as JSON, with logical types.
        named: records, enums and fixed types that it may use, by full name.

    Raises:
        UsageError: code `invalid_argument`: a part has no column type; the message has its path.
    """
    return _Types(dict(named)).of(schema, "", ())


class _Types:
    """One walk through a schema. `_named` grows with the types that the schema defines."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._pa: Any = import_module("pyarrow")
        self._named = named

    def of(self, schema: Any, path: str, inside: Sequence[str], space: str = "") -> Any:
        if isinstance(schema, list):
            return self._union(cast("list[Any]", schema), path, inside, space)
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return getattr(self._pa, _PRIMITIVES[schema])()
            return self._by_name(schema, path, inside, space)
        if not isinstance(schema, Mapping):
            raise _no_type(path, f"{schema!r} is not a schema")
        document = cast("Mapping[str, Any]", schema)
        logical = self._logical(document, path)
        if logical is not None:
            return logical
        return self._complex(document, path, inside, space)

    def _complex(self, schema: Mapping[str, Any], path: str, inside: Sequence[str], space: str) -> Any:
        kind = schema.get("type")
        match kind:
            case "record" | "error":
                return self._record(schema, path, inside, space)
            case "enum" | "fixed":
                self._named[_full_name(schema, space)] = schema
                return self._pa.string() if kind == "enum" else self._pa.binary()
            case "array":
                return self._pa.list_(self.of(schema["items"], f"{path}[]", inside, space))
            case "map":
                return self._pa.map_(self._pa.string(), self.of(schema["values"], f"{path}{{}}", inside, space))
            case _:
                return self.of(kind, path, inside, space)

    def _record(self, schema: Mapping[str, Any], path: str, inside: Sequence[str], space: str) -> Any:
        name = _full_name(schema, space)
        if name in inside:
            raise _no_type(path, f"the record {name} contains itself")
        self._named[name] = schema
        below = name.rpartition(".")[0]
        fields = [
            (
                str(field["name"]),
                self.of(field["type"], f"{path}.{field['name']}".lstrip("."), [*inside, name], below),
            )
            for field in schema.get("fields") or ()
        ]
        if not fields:
            raise _no_type(path, f"the record {name} has no fields")
        return self._pa.struct(fields)

    def _by_name(self, name: str, path: str, inside: Sequence[str], space: str) -> Any:
        full = name if "." in name or not space else f"{space}.{name}"
        found = self._named.get(full, self._named.get(name))
        if found is None:
            raise _no_type(path, "it is null only" if name == "null" else f"there is no type {name!r}")
        return self.of(found, path, inside, full.rpartition(".")[0])

    def _union(self, members: list[Any], path: str, inside: Sequence[str], space: str) -> Any:
        others = [each for each in members if each not in ("null", {"type": "null"})]
        if len(others) != 1:
            raise _no_type(path, f"it is a union of {len(others)} types: give a readerSchema with one of them")
        return self.of(others[0], path, inside, space)

    def _logical(self, schema: Mapping[str, Any], path: str) -> Any:
        kind, below = schema.get("logicalType"), schema.get("type")
        if kind in _TIMES and below == "long":
            unit, zone = _TIMES[str(kind)]
            return self._pa.timestamp(unit, tz=zone)
        if kind == "date" and below == "int":
            return self._pa.date32()
        if kind == "decimal" and below in ("bytes", "fixed"):
            precision, scale = int(schema.get("precision", 0)), int(schema.get("scale", 0))
            if not 0 < precision <= _WIDEST_DECIMAL:
                raise _no_type(path, f"the decimal has {precision} digits; 1 to {_WIDEST_DECIMAL} are allowed")
            return self._pa.decimal128(precision, scale)
        return None


def _full_name(schema: Mapping[str, Any], space: str) -> str:
    name = str(schema.get("name", ""))
    if "." in name:
        return name
    within = str(schema.get("namespace", space) or "")
    return f"{within}.{name}" if within else name


def _no_type(path: str, reason: str) -> UsageError:
    where = f'the field "{path}" of the Avro schema' if path else "the Avro schema"
    return UsageError("invalid_argument", f"{where} has no column type: {reason}", {"path": path})
