"""How the client whose command is being decided counts streams, topics and the rest, and whether it has options.

Here everything counts from 1, as clients of SDK up to 0.7 do. Those from 0.8 on count from 0, and cannot choose a
number; payloads are converted where they are read and written.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, TypeAlias

__all__ = ["FirstNumber", "counting_from", "first_number", "has_options", "meant", "shown"]

FirstNumber: TypeAlias = Literal[0, 1]

_FIRST: ContextVar[FirstNumber] = ContextVar("first_number", default=1)
_HAS_OPTIONS: ContextVar[bool] = ContextVar("has_options", default=False)


@contextmanager
def counting_from(first: FirstNumber, *, options: bool = False) -> Generator[None]:
    """Read and write payloads of a client that counts from `first`. `options`: of v2."""
    token, options_token = _FIRST.set(first), _HAS_OPTIONS.set(options)
    try:
        yield
    finally:
        _HAS_OPTIONS.reset(options_token)
        _FIRST.reset(token)


def first_number() -> FirstNumber:
    """What the client calls the first of anything."""
    return _FIRST.get()


def has_options() -> bool:
    """Whether the client is one of v2: streams, topics and users have options, and lists of topics a count."""
    return _HAS_OPTIONS.get()


def shown(number: int) -> int:
    """What the client is shown for a number that counts from 1."""
    return number - 1 + _FIRST.get()


def meant(number: int) -> int:
    """The number from 1 that the client means."""
    return number + 1 - _FIRST.get()
