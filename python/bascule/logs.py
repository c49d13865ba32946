"""Structured logs of both planes on standard error: one JSON object per line, or plain lines for people."""

import json
import logging
import sys
import threading
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, Literal

from bascule._text import visible

__all__ = ["configure", "emit", "style_of", "written"]

Wording = Callable[[str], str]
"""Converts a log message."""

_LOCK: Final = threading.Lock()
_written: Final = Counter[int]()
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class _Formatter(logging.Formatter):
    """Converts messages in `format`, not in a filter, because the handler catches exceptions of `format`."""

    def __init__(self, wording: Wording | None) -> None:
        super().__init__()
        self._wording: Final = wording

    def message(self, record: logging.LogRecord) -> str:
        """The converted message. Fields are not converted: they are values, and a stream may have the name of a
        setting.
        """
        text = record.getMessage()
        return text if self._wording is None else self._wording(text)


class _JsonFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "target": record.name,
            "message": self.message(record),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class _TextFormatter(_Formatter):
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        fields = "".join(f" {key}={visible(str(value))}" for key, value in getattr(record, "fields", {}).items())
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{time} {record.levelname.lower():7} {record.name}: {visible(self.message(record))}{fields}{trace}"


def configure(level: str = "info", style: str = "auto", wording: Wording | None = None) -> None:
    """Send logs of `bascule.*` to standard error. Idempotent; other loggers are not changed.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        style: `json`, `text`, or `auto`: text when standard error is a terminal, else json.
        wording: converts each message; `None` = messages stay unchanged.
    """
    text = style_of(style) == "text"
    logger = logging.getLogger("bascule")
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_TextFormatter(wording) if text else _JsonFormatter(wording))
    logger.addHandler(handler)
    logger.setLevel(_LEVELS[level])
    logger.propagate = False


def style_of(style: str) -> Literal["json", "text"]:
    """The style, with `auto` resolved."""
    return "text" if style == "text" or (style == "auto" and sys.stderr.isatty()) else "json"


def emit(level: int, target: str, message: str, **fields: object) -> None:
    """Log one event: once per change of state, never per message.

    Args:
        level: 10 debug, 20 info, 30 warning, 40 error (someone should act).
        target: dotted name below `bascule`, e.g. `log.recovery`.
        message: a short sentence.
        fields: values, named as in the metrics: namespace, stream, partition, epoch, code, request_id, duration_ms …
    """
    logger = logging.getLogger(f"bascule.{target}")
    if logger.isEnabledFor(level):
        with _LOCK:
            _written[level] += 1
    logger.log(level, "%s", message, extra={"fields": fields})


def written() -> dict[str, int]:
    """Number of lines that this process has logged, by level."""
    with _LOCK:
        return {name: _written[level] for name, level in _LEVELS.items()}
