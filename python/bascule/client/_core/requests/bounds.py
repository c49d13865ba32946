"""Checks of arguments, shared by all requests. Errors name the value and the bound. No I/O."""

from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from bascule.client._core.types import Ack
from bascule.errors import UsageError

__all__ = [
    "EPOCH",
    "INT32_MAX",
    "INT64_MAX",
    "MAX_ID_BYTES",
    "ack_policy",
    "check_bounds",
    "check_id",
    "check_offset",
    "check_partition",
    "nanoseconds",
]

_Bound = TypeVar("_Bound", int, timedelta)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
MAX_ID_BYTES: Final = {"cursor": 1024, "stream": 1024, "group": 255, "consumer": 255}
"""Longest ids that a Bascule broker accepts, in UTF-8 bytes."""
_ACKS: Final = {"leader": 0, "all": 1, "none": 2}


def ack_policy(ack: Ack) -> int:
    """The number of an ack policy on the wire.

    Raises:
        UsageError: code `invalid_argument`: no such policy.
    """
    if ack not in _ACKS:
        raise UsageError("invalid_argument", f'ack is one of "leader", "all", "none", not {ack!r}')
    return _ACKS[ack]


def check_id(name: str, value: str) -> str:
    """Return `value` if it has 1 to `MAX_ID_BYTES[name]` bytes of UTF-8.

    Raises:
        UsageError: code `invalid_argument`.
    """
    most, size = MAX_ID_BYTES[name], len(value.encode())
    if not 1 <= size <= most:
        shown = f"{value[:40]!r}… has {size} bytes" if size else "is empty"
        raise UsageError("invalid_argument", f"{name} {shown}: give it 1 to {most} bytes", {name: value[:200]})
    return value


def check_partition(partition: int) -> int:
    """Return `partition` if it is a number from 0 to 2³¹ − 1.

    Raises:
        UsageError: code `invalid_argument`.
    """
    check_bounds("partition", partition, 0, INT32_MAX)
    return partition


def check_offset(name: str, value: int) -> int:
    """Return `value` if it is an offset, from 0 to 2⁶³ − 1.

    Raises:
        UsageError: code `invalid_argument`.
    """
    check_bounds(name, value, 0, INT64_MAX)
    return value


def check_bounds(name: str, value: _Bound, least: _Bound, most: _Bound) -> None:
    if not least <= value <= most:
        raise UsageError("invalid_argument", f"{name} is {value}: it must be from {least} to {most}", {name: value})


def nanoseconds(time: datetime) -> int:
    """Nanoseconds since 1970. A time without a time zone is local time.

    Raises:
        UsageError: code `invalid_argument`: the time does not fit into 64 bits of nanoseconds.
    """
    found = (time.astimezone(UTC) - EPOCH) // timedelta(microseconds=1) * 1000
    if not -INT64_MAX <= found <= INT64_MAX:
        raise UsageError(
            "invalid_argument", f"the time {time} is not between the years 1678 and 2262", {"time": str(time)}
        )
    return found
