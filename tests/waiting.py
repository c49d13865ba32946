"""Waits for something that other processes and threads make true."""

import time
from collections.abc import Callable
from typing import Final

__all__ = ["until"]

_POLL_S: Final = 0.05


def until(
    condition: Callable[[], object],
    limit_s: float = 60.0,
    *,
    what: str | Callable[[], object] = "the condition",
    every_s: float = _POLL_S,
) -> None:
    """Wait for a condition; there is nothing else to wait on.

    Args:
        condition: what is waited for.
        limit_s: seconds until it is given up.
        what: names the condition, or explains why it did not come true.
        every_s: seconds between two questions.

    Raises:
        AssertionError: it did not come true.
    """
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what() if callable(what) else what}"
        time.sleep(every_s)
