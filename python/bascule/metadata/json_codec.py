"""Dataclasses to plain JSON values and back, strictly.

Reading checks every type exactly (a bool is not an int) and bounds integers to 64 signed bits, so that a value
that was read is well formed. A key that is not known means that a newer version wrote it; a missing key takes the
field's default, so a field with a default may be added to a record that exists. A field whose metadata has `level` is
written only where it differs from its default: what an older level writes keeps its bytes.
"""

import json
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

MIN_INT, MAX_INT = -(1 << 63), (1 << 63) - 1

ADDED: Mapping[str, int] = {"level": 1}
"""Marks a field that was added to a record of level 1, with the same effect: records without it keep their bytes."""

T = TypeVar("T")
Reader = Callable[[Any, str], Any]


class DecodeError(ValueError):
    """The value does not have the expected shape."""


class UnknownKeyError(DecodeError):
    """The value holds a key that this version does not know."""


def canonical(value: object) -> bytes:
    """Canonical JSON of a plain value: sorted keys, no blanks, UTF-8. Equal values give equal bytes.

    Raises:
        DecodeError: a string that is not valid Unicode, or a value JSON does not have.
    """
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode()
    except (UnicodeEncodeError, ValueError, TypeError) as error:
        raise DecodeError(f"value cannot be written as JSON: {error}") from error


def parse(document: bytes) -> dict[str, Any]:
    """The JSON object in `document`.

    Raises:
        DecodeError: not UTF-8, not JSON, or not an object.
    """
    try:
        value: object = json.loads(document.decode())
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise DecodeError(f"not a JSON document: {error}") from error
    if not isinstance(value, dict):
        raise DecodeError("not a JSON object")
    return cast("dict[str, Any]", value)


def to_plain(value: Any) -> Any:
    """Dataclasses as objects, tuples as lists, the rest as it is."""
    if is_dataclass(value) and not isinstance(value, type):
        known = ((item, getattr(value, item.name)) for item in fields(value))
        return {
            item.name: to_plain(content)
            for item, content in known
            if "level" not in item.metadata or content != item.default
        }
    if isinstance(value, tuple):
        return [to_plain(item) for item in cast("tuple[Any, ...]", value)]
    return value


def from_plain(kind: type[T], value: Any, where: str = "") -> T:
    """A `kind` (a dataclass) out of a plain object.

    Raises:
        UnknownKeyError: a key this version does not know.
        DecodeError: a missing key, or a value of another type.
    """
    if not isinstance(value, dict):
        raise DecodeError(f"{where or kind.__name__} is not an object")
    document = cast("dict[str, Any]", value)
    readers, required = _shape(kind)
    for key in sorted(document):
        if key not in readers:
            raise UnknownKeyError(f"{where}{key} is not known to this version")
    for key in required:
        if key not in document:
            raise DecodeError(f"{where}{key} is missing")
    return kind(**{key: readers[key](item, f"{where}{key}") for key, item in document.items()})


@cache
def _shape(kind: type[Any]) -> tuple[dict[str, Reader], tuple[str, ...]]:
    hints = get_type_hints(kind)
    readers = {item.name: _reader(hints[item.name]) for item in fields(kind)}
    required = tuple(item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING)
    return readers, required


def _reader(hint: Any) -> Reader:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is tuple:
        return _tuple_reader(_reader(arguments[0]))
    if origin in (Union, types.UnionType):
        inner = _reader(next(item for item in arguments if item is not type(None)))
        return lambda value, where: None if value is None else inner(value, where)
    if origin is Literal:
        return _choice_reader(arguments)
    if is_dataclass(hint) and isinstance(hint, type):
        return lambda value, where: from_plain(hint, value, f"{where}.")
    readers: dict[Any, Reader] = {str: _read_str, int: _read_int, bool: _read_bool}
    return readers[hint]


def _tuple_reader(inner: Reader) -> Reader:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise DecodeError(f"{where} is not a list")
        return tuple(inner(item, where) for item in cast("list[Any]", value))

    return read


def _choice_reader(choices: tuple[Any, ...]) -> Reader:
    def read(value: Any, where: str) -> Any:
        if isinstance(value, str) and value in choices:
            return value
        raise DecodeError(f"{where} is not one of {', '.join(choices)}")

    return read


def _read_str(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DecodeError(f"{where} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DecodeError(f"{where} is not valid Unicode") from error
    return value


def _read_bool(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise DecodeError(f"{where} is not a boolean")


def _read_int(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and MIN_INT <= value <= MAX_INT:
        return value
    raise DecodeError(f"{where} is not a 64-bit integer")
