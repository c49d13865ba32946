"""The default time zone of times without one: that of the Spark session, which planners ask the driver for.

Later changes by `spark.conf.set` and `SET TIME ZONE` are included.
"""

import os
import re
import zoneinfo
from collections.abc import Callable
from datetime import timedelta, timezone, tzinfo
from typing import Final

from bascule.spark.driver import ask
from bascule.spark.usage import usage

SETTING: Final = "spark.sql.session.timeZone"
QUESTION: Final = "zone"
_WORKER: Final = "SPARK_PYTHON_RUNTIME"
"""Environment variable of the processes that Spark starts."""
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def parse_zone(option: str, text: str) -> tzinfo:
    """Parse a zone in Spark's forms: an IANA name, `UTC`, `+02:00`, `GMT+2`.

    Raises:
        UsageError: there is no such zone.
    """
    if text in {"Z", "UTC", "GMT", "UT"}:
        return timezone(timedelta(0))
    if match := _OFFSET.fullmatch(text):
        hours, minutes, seconds = (int(part or 0) for part in match.groups()[1:])
        if hours <= 18 and minutes < 60 and seconds < 60:
            offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
            return timezone(-offset if match[1] == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(text)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError) as cause:
        raise usage(f"{option} is {text!r}: it must be a time zone such as Europe/Berlin, UTC or +02:00") from cause


def zone_of(option: str | None) -> Callable[[str], tzinfo | None]:
    """A function that returns the zone for times without one; its argument is the name of the option.

    None is the local zone: outside Spark there is no session, and this is the default zone of a session.

    Args:
        option: the option `timeZone`; None = the zone of the session.
    """

    def zone(name: str) -> tzinfo | None:
        if option is not None:
            return parse_zone("option timeZone", option.strip())
        if _WORKER not in os.environ:
            return None
        answer = ask(QUESTION)
        if not answer:
            raise usage(
                f"option {name}: the time names no zone, and a Python data source does not know the zone of a Spark "
                "session that bascule.spark.session did not create, or that spark-submit has started: add the zone to "
                "the time (2026-11-25T01:19+01:00), or set the option timeZone"
            )
        return parse_zone(f"{SETTING} of the session", answer)

    return zone
