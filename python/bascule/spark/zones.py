"""The default time zone of times without one: that of the Spark session.

Spark runs the planner of a Python data source in a separate process and does not pass it the settings of the session.
So `bascule.spark.session` answers on a Unix socket of the driver, whose path planners inherit in the environment. Later
changes by `spark.conf.set` and `SET TIME ZONE` are included.
"""

import os
import re
import socket
import tempfile
import zoneinfo
from collections.abc import Callable
from datetime import timedelta, timezone, tzinfo
from pathlib import Path
from threading import Thread
from typing import Final

from bascule.spark.usage import usage

VARIABLE: Final = "PYSPARK_BASCULE_ZONE"
"""Environment variable with the path of the socket."""
SETTING: Final = "spark.sql.session.timeZone"
_WORKER: Final = "SPARK_PYTHON_RUNTIME"
"""Environment variable of the processes that Spark starts."""
_WAIT_S: Final = 10.0
_MOST_BYTES: Final = 256
_LONGEST_FOLDER_BYTES = 70
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
        answer = ask()
        if not answer:
            raise usage(
                f"option {name}: the time names no zone, and a Python data source does not know the zone of a Spark "
                "session that bascule.spark.session did not create: add the zone to the time (2026-11-25T01:19+01:00), "
                "or set the option timeZone"
            )
        return parse_zone(f"{SETTING} of the session", answer)

    return zone


def ask() -> str:
    """The zone of the driver's session; empty if there is no answer."""
    path = os.environ.get(VARIABLE)
    if not path:
        return ""
    try:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(_WAIT_S)
            channel.connect(path)
            answer = b""
            while len(answer) < _MOST_BYTES and (more := channel.recv(_MOST_BYTES)):
                answer += more
    except OSError:
        return ""
    return answer.decode(errors="replace")


class Answering:
    """Answers planners with the zone of a session, on a thread, until the process ends."""

    def __init__(self) -> None:
        self.zone: Callable[[], str] = str
        """A function that returns the zone; empty = unknown."""
        # The path of a Unix socket has at most 103 bytes on macOS and 107 on Linux; TMPDIR may be too long.
        short = len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_FOLDER_BYTES
        self._folder = tempfile.TemporaryDirectory(prefix="bascule-spark-", dir=None if short else "/tmp")  # noqa: S108
        self._path = str(Path(self._folder.name) / "zone")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen()
        os.environ[VARIABLE] = self._path
        Thread(target=self._run, name="bascule-spark-zone", daemon=True).start()

    def _run(self) -> None:
        while True:
            channel, _ = self._listener.accept()
            with channel:
                try:
                    channel.sendall(self.zone().encode())
                except Exception:  # noqa: BLE001, S112 - a session that was stopped or a planner that left: no answer
                    continue
