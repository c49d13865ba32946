"""Logs the events of the data plane, and collects figures of the control plane for it."""

import json
from typing import Any, cast

from bascule._seam import Event, LogLine, NatsChange, PartitionChange
from bascule.control import MetadataLog
from bascule.logs import emit, written

_PARTITION_LEVELS = {
    "able": 20,
    "archive_void": 40,
    "unarchived": 40,
    "unread": 40,
    "compacted": 20,
    "damaged": 40,
    "failed": 40,
    "full": 40,
    "message_ids_not_saved": 30,
    "message_ids_unknown": 40,
    "recovered": 30,
    "writable": 20,
}
_NATS_LEVELS = {"connected": 20, "disconnected": 30, "slow_consumer": 30, "error": 30}
_TAKEN = frozenset({"level", "target", "message"})


def figures(log: MetadataLog | None, lag_s: float) -> dict[str, int]:
    """Figures of the control plane, by the names of `specs/metrics.toml`. `lag_s`: lag of the event loop, seconds."""
    lines = written()
    return {
        "event_loop_lag_nanos": round(lag_s * 1e9),
        "commands_applied": 0 if log is None else log.applied,
        "commands_apply_nanos": 0 if log is None else log.apply_ns,
        **{f"log_messages_{level}": lines[level] for level in ("info", "warning", "error")},
    }


def on_log(line: LogLine) -> None:
    """Log a line of the data plane."""
    emit(line.level, line.target, line.message, **_fields(line.fields))


def on_partition(event: PartitionChange) -> None:
    """Log a change of a partition's state."""
    fields = {"incarnation": event.incarnation, "partition": event.number, **_fields(event.fields)}
    emit(_PARTITION_LEVELS.get(event.change, 30), f"partition.{event.change}", event.message, **fields)


def on_nats(event: NatsChange) -> None:
    """Log a change of the connection to NATS."""
    fields = {"count": event.total, **_fields(event.fields)}
    emit(_NATS_LEVELS.get(event.change, 30), f"nats.{event.change}", event.message, **fields)


def on_error(event: Event, failure: Exception) -> None:
    """Log that an event could not be handled, which is a bug."""
    emit(40, "control.events", f"an event of the type {type(event).__name__} could not be handled: {failure!r}")


def _fields(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`; an underscore is added to names that a log line already has."""
    if not body:
        return {}
    try:
        document: object = json.loads(body)
    except ValueError:
        return {"detail": body.decode(errors="replace")}
    if not isinstance(document, dict):
        return {"detail": document}
    return {f"{key}_" if key in _TAKEN else key: value for key, value in cast("dict[str, Any]", document).items()}
