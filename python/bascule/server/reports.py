"""Logs the events of the data plane, and collects figures of the control plane for it."""

import json
from typing import Any, cast

from bascule.control import Event, MetadataLog
from bascule.logs import emit, written

_PARTITION_LEVELS = {
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


def on_log(event: Event) -> None:
    """Log a line of the data plane."""
    _, level, target, body, text, _ = event
    emit(level, target, text, **_fields(body))


def on_partition(event: Event) -> None:
    """Log a change of a partition's state."""
    _, incarnation, name, body, text, number = event
    fields = {"incarnation": incarnation, "partition": number, **_fields(body)}
    emit(_PARTITION_LEVELS.get(name, 30), f"partition.{name}", text, **fields)


def on_nats(event: Event) -> None:
    """Log a change of the connection to NATS."""
    _, _, name, body, text, count = event
    emit(_NATS_LEVELS.get(name, 30), f"nats.{name}", text, **{"count": count, **_fields(body)})


def on_error(event: Event, failure: Exception) -> None:
    """Log that an event could not be handled, which is a bug."""
    emit(40, "control.events", f"an event of the kind {event[0]} could not be handled: {failure!r}")


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
