"""A limit on records per second."""

import time
from collections.abc import Callable

__all__ = ["Pace"]


class Pace:
    """Waits so that the counted records stay below a rate; without a rate it never waits."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`rate`: records per second, above 0; `None` = no limit."""
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._began = clock()
        self._count = 0

    def batch(self, most: int) -> int:
        """Number of records to send together: about a tenth of a second's at most, at least one."""
        return most if self._rate is None else max(1, min(most, int(self._rate / 10)))

    def count(self, records: int) -> None:
        """Count records, then wait until the rate allows the next ones."""
        self._count += records
        if self._rate is not None:
            ahead = self._began + self._count / self._rate - self._clock()
            if ahead > 0:
                self._sleep(ahead)
