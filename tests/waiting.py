"""Waits for something that other processes and threads make true."""

import time
from collections.abc import Callable
from typing import Final

__all__ = ["until"]

_POLL_S: Final = 0.05


def until(
    condition: Callable[[], object], limit_s: float = 60.0, *, what: str | Callable[[], object] = "the condition"
) -> None:
    """Wait for a condition; there is nothing else to wait on.

    Args:
        condition: asked every 50 ms.
        limit_s: seconds until it is given up.
        what: names the condition, or explains why it did not come true.

    Raises:
        AssertionError: it did not come true.
    """
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit_s:.0f} s: {what() if callable(what) else what}"
        time.sleep(_POLL_S)
