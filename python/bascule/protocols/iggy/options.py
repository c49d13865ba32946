"""Options of v2: pairs of a key and a typed value, up to the end of their block.

Streams and users have none. Those of a topic are settings of ours, or say what this broker does anyway.
"""

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from bascule.protocols.iggy.fields import MalformedError, Reader, long_text, short_text
from bascule.protocols.iggy.statuses import IggyError, IggyStatus

__all__ = [
    "MAX_U64",
    "TOPIC_OPTIONS",
    "OptionKind",
    "OptionValue",
    "describe",
    "encode_options",
    "read_no_options",
    "read_topic_options",
]

MAX_U64: Final = (1 << 64) - 1
"""As an expiry: never; as a maximum size: unlimited."""
_MAX_ENTRIES, _MAX_BYTES, _MAX_FIELD_BYTES = 1024, 100_000, 255
_TEXT, _BOOL, _U32, _U64 = 2, 3, 11, 12
_SIZES: Final = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4} | {
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}
_TIMES_US: Final = {"": 1, "US": 1, "MS": 1000, "S": 10**6, "M": 60 * 10**6, "H": 3600 * 10**6, "D": 86_400 * 10**6}
_MIN_SEGMENT, _MAX_SEGMENT, _SEGMENT_STEP = 1 << 20, 1 << 30, 512

OptionValue = bool | int | str


@dataclass(frozen=True, slots=True)
class OptionKind:
    """What an option of a topic is.

    Attributes:
        kind: number of its type on the wire.
        default: shown where a client asks what there is.
        description: of what it does here.
        is_changeable: whether a topic that exists can be given another value.
    """

    kind: int
    default: OptionValue
    description: str
    is_changeable: bool = False


TOPIC_OPTIONS: Final[Mapping[str, OptionKind]] = {
    "compression_algorithm": OptionKind(_TEXT, "none", "none or gzip; shown, not applied", is_changeable=True),
    "consumer_offset_durability": OptionKind(
        _TEXT, "replicated", "stored offsets are answered when they are committed"
    ),
    "durability": OptionKind(_TEXT, "replicated", "sends are answered when they are committed"),
    "enforce_fsync": OptionKind(_BOOL, False, "true: sends are answered when they are on disk"),
    "max_topic_size": OptionKind(
        _U64, MAX_U64, "bytes of all partitions, above which the oldest segments go", is_changeable=True
    ),
    "message_expiry": OptionKind(_U64, MAX_U64, "µs after which a segment's messages go", is_changeable=True),
    "messages_required_to_save": OptionKind(_U32, 1024, "every send is saved at once"),
    "preallocate_segments": OptionKind(_BOOL, False, "the broker decides"),
    "segment_size": OptionKind(_U64, _MAX_SEGMENT, "bytes at which a segment ends: 1 MiB to 1 GiB, a multiple of 512"),
    "size_of_messages_required_to_save": OptionKind(_U64, 1 << 20, "every send is saved at once"),
}
"""By key, in the order in which they are shown."""

_CHOICES: Final = {
    "compression_algorithm": ("none", "gzip"),
    "consumer_offset_durability": ("replicated", "persisted"),
    "durability": ("replicated", "persisted"),
}


def read_no_options(reader: Reader) -> None:
    """The options of a stream or user, to the end of the payload: there are none.

    Raises:
        MalformedError: not a block of options.
        IggyError: 4041: there is one.
    """
    for key in _read(reader):
        raise _unsupported(key)


def read_topic_options(reader: Reader, *, is_change: bool) -> Mapping[str, OptionValue]:
    """The options of a topic, to the end of the payload, by key. `is_change`: of a topic that exists.

    Raises:
        MalformedError: not a block of options.
        IggyError: 4041, 4042, 4043.
    """
    found = dict[str, OptionValue]()
    for key, (kind, value) in _read(reader).items():
        known = TOPIC_OPTIONS.get(key)
        if known is None:
            raise _unsupported(key)
        if is_change and not known.is_changeable:
            raise _invalid(key, "it cannot be changed")
        found[key] = _checked(key, _value(key, known.kind, kind, value))
    return found


def encode_options(options: Mapping[str, OptionValue]) -> bytes:
    """The block of these options of a topic, with its length, in the order of their keys."""
    pairs = [
        _field(_TEXT, key.encode()) + _field(TOPIC_OPTIONS[key].kind, encode_value(key, options[key]))
        for key in sorted(options)
    ]
    block = b"".join(pairs)
    return struct.pack("<I", len(block)) + block


def encode_value(key: str, value: OptionValue) -> bytes:
    """The bytes of a value of the option `key`."""
    match TOPIC_OPTIONS[key].kind:
        case 2:
            return str(value).encode()
        case 3:
            return bytes([bool(value)])
        case kind:
            return int(value).to_bytes(4 if kind == _U32 else 8, "little")


def describe() -> bytes:
    """All options of a topic, as DESCRIBE_OPTIONS shows them."""
    entries = [
        short_text(key)
        + bytes([option.kind])
        + struct.pack("<I", len(value := encode_value(key, option.default)))
        + value
        + long_text(option.description)
        for key, option in TOPIC_OPTIONS.items()
    ]
    return struct.pack("<I", len(entries)) + b"".join(entries)


def _field(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + struct.pack("<I", len(value)) + value


def _read(reader: Reader) -> dict[str, tuple[int, bytes]]:
    """Kind and bytes of each value, by key."""
    found = dict[str, tuple[int, bytes]]()
    size = 0
    while not reader.is_at_end:
        kind, key = _read_field(reader, "an option's key")
        if kind != _TEXT:
            raise MalformedError(f"an option's key has kind {kind}, and only {_TEXT} is a text")
        try:
            name = key.decode()
        except UnicodeDecodeError as error:
            raise MalformedError("an option's key is not UTF-8") from error
        value = _read_field(reader, f"option {name!r}")
        size += len(key) + len(value[1])
        if len(found) >= _MAX_ENTRIES or size > _MAX_BYTES:
            text = f"options take more than {_MAX_ENTRIES} entries or {_MAX_BYTES} bytes"
            raise IggyError(IggyStatus.OPTIONS_TOO_LARGE, text)
        if name in found:
            raise _invalid(name, "it is given twice")
        found[name] = value
    return found


def _read_field(reader: Reader, field: str) -> tuple[int, bytes]:
    kind, size = reader.u8(field), reader.u32(field)
    if not 1 <= size <= _MAX_FIELD_BYTES:
        raise MalformedError(f"{field} has {size} bytes, not 1 to {_MAX_FIELD_BYTES}")
    return kind, reader.take(size, field)


def _value(key: str, wanted: int, kind: int, value: bytes) -> OptionValue:
    """A value of its own kind, or a text that stands for one."""
    if kind == _TEXT:
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise _invalid(key, "it is not UTF-8") from error
        return _PARSERS[wanted](key, text)
    if kind != wanted:
        raise _invalid(key, f"it has kind {kind}, and needs {wanted} or a text")
    size = {_BOOL: 1, _U32: 4, _U64: 8}[wanted]
    if len(value) != size or (wanted == _BOOL and value[0] > 1):
        raise _invalid(key, f"{value.hex()} is not a value of kind {kind}")
    number = int.from_bytes(value, "little")
    return bool(number) if wanted == _BOOL else number


def _checked(key: str, value: OptionValue) -> OptionValue:
    choices = _CHOICES.get(key)
    if choices is not None and value not in choices:
        raise _invalid(key, f"{value!r} is not one of {', '.join(choices)}")
    if key == "segment_size" and not (_MIN_SEGMENT <= int(value) <= _MAX_SEGMENT and int(value) % _SEGMENT_STEP == 0):
        raise _invalid(key, f"{value} is not between 1 MiB and 1 GiB, or not a multiple of {_SEGMENT_STEP}")
    return value


def _parse_bool(key: str, text: str) -> bool:
    if text not in {"true", "false"}:
        raise _invalid(key, f"{text!r} is not true or false")
    return text == "true"


def _parse_number(key: str, text: str) -> int:
    units = _TIMES_US if key == "message_expiry" else _SIZES
    parts = re.fullmatch(r"(\d{1,20}) ?([A-Za-z]*)", text)
    unit = units.get(parts[2].upper()) if parts else None
    if parts is None or unit is None or (number := int(parts[1]) * unit) > MAX_U64:
        raise _invalid(key, f"{text!r} is not a number with one of the units {', '.join(filter(None, units))}")
    return number


def _parse_u32(key: str, text: str) -> int:
    if not text.isdecimal() or int(text) >> 32:
        raise _invalid(key, f"{text!r} is not a number below 2^32")
    return int(text)


_PARSERS: Final[Mapping[int, Callable[[str, str], OptionValue]]] = {
    _TEXT: lambda _, text: text,
    _BOOL: _parse_bool,
    _U32: _parse_u32,
    _U64: _parse_number,
}


def _unsupported(key: str) -> IggyError:
    return IggyError(IggyStatus.UNSUPPORTED_OPTION, f"option {key!r} is not one that there is")


def _invalid(key: str, why: str) -> IggyError:
    return IggyError(IggyStatus.INVALID_OPTION, f"option {key!r}: {why}")
