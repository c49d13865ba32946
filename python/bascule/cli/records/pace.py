"""Not faster than so many records a second."""

import time
from collections.abc import Callable

__all__ = ["Pace"]


class Pace:
    """Waits so that what was counted stays below a rate; without a rate it never waits."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`rate`: records a second, above 0; `None` = as fast as it goes."""
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._began = clock()
        self._count = 0

    def batch(self, most: int) -> int:
        """How many records may go together: at most about a tenth of a second's, at least one."""
        return most if self._rate is None else max(1, min(most, int(self._rate / 10)))

    def count(self, records: int) -> None:
        """Count records and wait until their time has come."""
        self._count += records
        if self._rate is not None:
            ahead = self._began + self._count / self._rate - self._clock()
            if ahead > 0:
                self._sleep(ahead)
