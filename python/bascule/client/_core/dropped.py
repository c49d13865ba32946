"""Streams that a group dropped because they were deleted, and when to look for them again. No I/O.

A broker takes a deleted stream out of its groups, and one created later under the same name does not come back into
them (liftbridge §3.15). A member looks for it with a growing pause, and joins again once it exists.
"""

import math
import time
from typing import Final

__all__ = ["MOST_PAUSE_SECONDS", "DroppedStreams"]

MOST_PAUSE_SECONDS: Final = 2.0
"""Longest pause between two looks."""
_FIRST_PAUSE_SECONDS: Final = 0.1


class DroppedStreams:
    """What a member asked for and its group does not read any more. For one thread, but `ever` is for all.

    Attributes:
        missing: those of now.
        ever: all that were missing at some time: every record that they have now came later.
        has_returned: one of `missing` exists again.
    """

    def __init__(self, wanted: tuple[str, ...]) -> None:
        """Nothing is missing yet of `wanted`."""
        self._wanted: Final = wanted
        self._pause = self._due = 0.0
        self.missing: tuple[str, ...] = ()
        self.ever = frozenset[str]()
        self.has_returned = False

    def learn(self, subscribed: frozenset[str]) -> None:
        """The group reads `subscribed` for this member."""
        missing = tuple(stream for stream in self._wanted if stream not in subscribed)
        if missing != self.missing:
            self.missing = missing
            self.ever |= frozenset(missing)
            self.restart()

    def restart(self) -> None:
        """Look at once, with the shortest pause after it."""
        self._pause, self._due = _FIRST_PAUSE_SECONDS, time.monotonic()

    @property
    def seconds_left(self) -> float:
        """Until the next look; infinite when nothing is missing."""
        return max(0.0, self._due - time.monotonic()) if self.missing else math.inf

    def put_off(self) -> float:
        """It was looked, in vain: returns the seconds until the next look."""
        pause = self._pause
        self._due = time.monotonic() + pause
        self._pause = min(pause * 2, MOST_PAUSE_SECONDS)
        return pause
