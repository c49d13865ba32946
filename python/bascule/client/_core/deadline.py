"""One deadline for a call and all its retries."""

import time
from typing import Final

from bascule.errors import UsageError, error

__all__ = ["Deadline"]


class Deadline:
    """A point in time on the monotonic clock."""

    __slots__ = ("_end", "_seconds")

    def __init__(self, seconds: float) -> None:
        """`seconds` from now, more than 0.

        Raises:
            UsageError: code `invalid_argument`: not a positive number.
        """
        if not seconds > 0:
            raise UsageError("invalid_argument", f"a timeout is a number of seconds above 0, not {seconds}")
        self._seconds: Final = seconds
        self._end: Final = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Remaining seconds, never below 0."""
        return max(0.0, self._end - time.monotonic())

    def left_ms(self) -> int:
        """Remaining milliseconds, at least 1.

        Raises:
            UnavailableError: code `deadline_exceeded`: the deadline has passed.
        """
        left = self.left
        if left <= 0:
            raise error("deadline_exceeded", f"nothing was done within {self._seconds:g} s")
        return max(1, round(left * 1000))
