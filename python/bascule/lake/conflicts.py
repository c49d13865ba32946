"""What a commit does while other writers of the table commit first."""

import random
import time
from typing import Final

from bascule.errors import UnavailableError

MOST_CONFLICTS: Final = 30
"""Attempts at a commit while other writers win each time."""
_LONGEST_PAUSE_S: Final = 2.0


def pause(attempt: int) -> None:
    """Wait before the next attempt; `attempt` is the number of the one that lost, from 0."""
    time.sleep(min(_LONGEST_PAUSE_S, 0.02 * 2**attempt) * random.uniform(0.5, 1))  # noqa: S311 - spreads writers


def too_many(uri: str) -> UnavailableError:
    """The error after `MOST_CONFLICTS` attempts at a commit to the table `uri`."""
    return UnavailableError("busy", f"{uri}: other writers committed first {MOST_CONFLICTS} times in a row; try again")
