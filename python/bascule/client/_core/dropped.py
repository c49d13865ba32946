"""Streams that a group dropped because they were deleted, and when to look for them again. No I/O.

A broker removes a deleted stream from its groups, and does not add a stream created later under the same name
(liftbridge §3.15). A member checks for it with a growing pause, and joins again once it exists.
"""

import math
import time
from typing import Final

__all__ = ["MAX_PAUSE_SECONDS", "DroppedStreams"]

MAX_PAUSE_SECONDS: Final = 2.0
"""Longest pause between two checks, in seconds."""
_FIRST_PAUSE_SECONDS: Final = 0.1


class DroppedStreams:
    """The streams of a member that its group no longer reads. For one thread; `ever` may be read by all.

    Attributes:
        missing: streams that are missing now.
        ever: all streams that were missing at some time: all records that they hold now are newer.
        has_returned: whether one of `missing` exists again.
    """

    def __init__(self, wanted: tuple[str, ...]) -> None:
        """`wanted`: the streams of the member; none of them is missing yet."""
        self._wanted: Final = wanted
        self._pause = self._due = 0.0
        self.missing: tuple[str, ...] = ()
        self.ever = frozenset[str]()
        self.has_returned = False

    def learn(self, subscribed: frozenset[str]) -> None:
        """Update from the broker's answer: the group reads `subscribed` for this member."""
        missing = tuple(stream for stream in self._wanted if stream not in subscribed)
        if missing != self.missing:
            self.missing = missing
            self.ever |= frozenset(missing)
            self.restart()

    def restart(self) -> None:
        """Check immediately, and begin again with the shortest pause."""
        self._pause, self._due = _FIRST_PAUSE_SECONDS, time.monotonic()

    @property
    def seconds_left(self) -> float:
        """Seconds until the next check; infinite when nothing is missing."""
        return max(0.0, self._due - time.monotonic()) if self.missing else math.inf

    def put_off(self) -> float:
        """The check found nothing: double the pause and return the seconds until the next check."""
        pause = self._pause
        self._due = time.monotonic() + pause
        self._pause = min(pause * 2, MAX_PAUSE_SECONDS)
        return pause
