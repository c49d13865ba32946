"""Parses durations and sizes with units, such as "30s" and "64MiB", into milliseconds and bytes."""

import re
from typing import Final

__all__ = ["parse_bytes", "parse_duration_ms"]

_LONGEST: Final = 64
"""Maximum number of characters of a value with units."""

_DURATIONS: Final = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4, "h": 3.6e6, "d": 8.64e7}
_PREFIXES: Final = "kmgt"
_SIZES: Final = {
    "": 1,
    "b": 1,
    **{f"{prefix}b": 10 ** (3 * power) for power, prefix in enumerate(_PREFIXES, 1)},
    **{f"{prefix}ib": 1 << (10 * power) for power, prefix in enumerate(_PREFIXES, 1)},
    **{f"{prefix}i": 1 << (10 * power) for power, prefix in enumerate(_PREFIXES, 1)},
    **{prefix: 1 << (10 * power) for power, prefix in enumerate(_PREFIXES, 1)},
}
"""Units in lower case: `kB` is 1,000 bytes; `KiB`, `Ki` and `K` are 1,024, as in `du` and `dd`."""


def parse_duration_ms(value: object) -> object:
    """Milliseconds from "30s", "5m", "1h30m" or a bare number of milliseconds; other types are returned unchanged."""
    if not isinstance(value, str):
        return value
    value = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d)", value)
    if parts and re.fullmatch(r"(\s*\d+(?:\.\d+)?\s*(ns|us|ms|s|m|h|d))+\s*", value):
        return round(sum(float(number) * _DURATIONS[unit] for number, unit in parts))
    if re.fullmatch(r"\d+", value):
        return int(value)
    raise ValueError(f'{value!r} is not a duration: write a number and a unit, e.g. "500ms", "30s", "5m", "12h", "7d"')


def parse_bytes(value: object) -> object:
    """Bytes from "64MiB", "10G" (as GiB), "1GB" (10⁹) or a bare number; other types are returned unchanged."""
    if not isinstance(value, str):
        return value
    value = value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…"
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", value)
    if not match or match.group(2).lower() not in _SIZES:
        raise ValueError(f'{value!r} is not a size: write a number and a unit, e.g. "512KiB", "64MiB", "10G", "1TB"')
    return round(float(match.group(1)) * _SIZES[match.group(2).lower()])
