"""Parses where reading begins and ends."""

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import cast

from bascule._units import parse_duration_ms
from bascule.client import Start, Stop
from bascule.errors import UsageError

__all__ = ["parse_start", "parse_stop", "parse_time"]

_WORDS = "an offset, a time like 2026-01-31T12:00:00Z (local without a zone), or one ago like -15m"


def _now() -> datetime:
    return datetime.now(UTC)


def parse_start(text: str, now: Callable[[], datetime] = _now) -> Start:
    """Parse `earliest`, `latest`, `new`, an offset, a time, or a duration ago like `-15m`. A time without a zone is
    local time, which is reported on standard error.

    Raises:
        UsageError: code `invalid_argument`.
    """
    if text in {"earliest", "latest", "new"}:
        return cast("Start", text)
    return _offset_or_time("--start", text, "earliest, latest, new", now)


def parse_stop(text: str | None, now: Callable[[], datetime] = _now) -> Stop:
    """Parse `latest`, an offset, a time, or a duration ago; `None` = never.

    Raises:
        UsageError: code `invalid_argument`.
    """
    return cast("Stop", text) if text in {None, "latest"} else _offset_or_time("--stop", str(text), "latest", now)


def parse_time(option: str, text: str, now: Callable[[], datetime] = _now) -> datetime:
    """Parse a time, or a duration ago.

    Raises:
        UsageError: code `invalid_argument`.
    """
    time = _time(option, text, now)
    if time is None:
        words = _WORDS.removeprefix("an offset, ")
        raise UsageError("invalid_argument", f'{option} "{text}" is not {words}')
    return time


def _offset_or_time(option: str, text: str, words: str, now: Callable[[], datetime]) -> int | datetime:
    if re.fullmatch(r"[0-9]{1,19}", text):
        return int(text)
    time = _time(option, text, now)
    if time is None:
        raise UsageError("invalid_argument", f'{option} "{text}" is not one of: {words}, {_WORDS}')
    return time


def _time(option: str, text: str, now: Callable[[], datetime]) -> datetime | None:
    try:
        if re.fullmatch(r"-\d.*[a-z]", text):
            return now() - timedelta(milliseconds=int(str(parse_duration_ms(text[1:]))))
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.astimezone()
            sys.stderr.write(f'bascule: {option} "{text}" has no time zone: local time, {time.isoformat()}\n')
    except (ValueError, OverflowError, OSError):
        return None
    return time
