"""Values of a Liftbridge configuration: durations, sizes, booleans, addresses. Each parser takes a value from YAML, a
flag or a variable, and raises `ValueError` with the allowed values.
"""

import re
from typing import Final, NamedTuple

__all__ = [
    "Address",
    "ack_policy",
    "address",
    "boolean",
    "duration_ms",
    "integer",
    "level",
    "names",
    "port",
    "segment_age_ms",
    "text",
]

_UNITS_MS: Final = {"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6}
_TERM: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")
_TRUE: Final = frozenset({"1", "t", "true", "yes", "on"})
_FALSE: Final = frozenset({"0", "f", "false", "no", "off"})
_LEVELS: Final = {"debug": "debug", "info": "info", "warn": "warning", "error": "error"}
_ACK_POLICIES: Final = ("none", "leader", "all")
MAX_PORT: Final = 65535
SHORTEST_SEGMENT_MS: Final = 1000


class Address(NamedTuple):
    """Where to listen."""

    host: str
    port: int


def text(value: object) -> str:
    """Text; numbers are used as written."""
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        return str(value)
    raise ValueError("expected text")


def integer(value: object) -> int:
    """A whole number, quoted or not."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d+(_\d+)*\s*", value):
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"\s*0(x[\da-fA-F]+|o[0-7]+|b[01]+)\s*", value):
        return int(value, 0)
    raise ValueError("expected a whole number")


def boolean(value: object) -> bool:
    """True or false, quoted or not."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in _TRUE | _FALSE:
        return word in _TRUE
    raise ValueError("expected true or false")


def duration_ms(value: object) -> int:
    """Milliseconds, rounded up, from numbers with units (`1h30m`, `500ms`) or a bare number of nanoseconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, str):
        word = value.strip()
        if re.fullmatch(r"\d+", word):
            return -(-int(word) // 1_000_000)
        terms = _TERM.findall(word)
        if terms and "".join(number + unit for number, unit in terms) == word:
            total = sum(float(number) * _UNITS_MS[unit] for number, unit in terms)
            return -(-round(total * 1_000_000) // 1_000_000)
    raise ValueError('expected a duration, e.g. "500ms", "15s", "5m", "168h"; a bare number is nanoseconds')


def segment_age_ms(value: object) -> int:
    """A duration of at least a second; 0 = never."""
    age = duration_ms(value)
    if 0 < age < SHORTEST_SEGMENT_MS:
        raise ValueError("expected at least 1s, or 0")
    return age


def port(value: object) -> int:
    """A port; 0 = a free one."""
    number = integer(value)
    if not 0 <= number <= MAX_PORT:
        raise ValueError(f"expected a port from 0 to {MAX_PORT}")
    return number


def names(value: object) -> tuple[str, ...]:
    """A list, or one text with commas; blanks are removed."""
    items: list[str] = [str(item) for item in value] if isinstance(value, (list, tuple)) else text(value).split(",")  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    found = tuple(part.strip() for item in items for part in item.split(",") if part.strip())
    if not found:
        raise ValueError("expected at least one")
    return found


def ack_policy(value: object) -> str:
    """none, leader or all."""
    word = str(value).lower()
    if word not in _ACK_POLICIES:
        raise ValueError("expected none, leader or all")
    return word


def level(value: object) -> str:
    """The log level of Bascule."""
    word = str(value).lower()
    if word not in _LEVELS:
        raise ValueError("expected debug, info, warn or error")
    return _LEVELS[word]


def address(value: object) -> Address:
    """`host:port`, both required."""
    word = str(value).strip()
    host, colon, number = word.rpartition(":")
    if not colon or (":" in host and not host.startswith("[")):
        raise ValueError("expected host:port; for a port alone use the key port")
    if not host:
        raise ValueError("it has no host: write host:port, or use the key port")
    return Address(host.strip("[]"), port(number))
