"""Times between micro-batches, as Spark takes them."""

import re
from typing import Final

from bascule.spark.spelling import named
from bascule.spark.usage import usage

__all__ = ["check_every"]

_UNITS: Final = "microsecond|millisecond|second|minute|hour|day|week"
_EVERY: Final = re.compile(rf"(interval\s+)?(\d+(\.\d+)?\s+({_UNITS})s?(\s+|$))+", re.IGNORECASE)


def check_every(every: str | None) -> None:
    """Refuse a time between micro-batches that Spark cannot read.

    Raises:
        UsageError: it is not a number with a unit.
    """
    if every is not None and not _EVERY.fullmatch(every.strip()):
        raise usage(f"{named('every')} is {every!r}: it must be a number with a unit, as 10 seconds or 1 minute")
