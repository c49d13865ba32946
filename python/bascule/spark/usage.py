"""Errors of wrong calls: one sentence, with the nearest valid name."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from bascule.errors import UsageError


def usage(message: str, **details: Any) -> UsageError:
    """The exception for a call that must be changed."""
    return UsageError("invalid_argument", message, details)


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean …?)` for the known name that is closest to `name`; empty when none is close."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f" (did you mean {by_lower[close[0]]}?)" if close else ""
