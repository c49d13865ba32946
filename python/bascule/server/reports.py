"""What the data plane reports about itself, as lines of the log, and what the control plane reports to it."""

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
    """What the control plane counts, by the names of `specs/metrics.toml`; `lag_s`: of the event loop."""
    lines = written()
    return {
        "event_loop_lag_nanos": round(lag_s * 1e9),
        "commands_applied": 0 if log is None else log.applied,
        "commands_apply_nanos": 0 if log is None else log.apply_ns,
        **{f"log_messages_{level}": lines[level] for level in ("info", "warning", "error")},
    }


def on_log(event: Event) -> None:
    """A line of the data plane's own log."""
    _, level, target, body, text, _ = event
    emit(level, target, text, **_fields(body))


def on_partition(event: Event) -> None:
    """A partition changed its state."""
    _, incarnation, name, body, text, number = event
    fields = {"incarnation": incarnation, "partition": number, **_fields(body)}
    emit(_PARTITION_LEVELS.get(name, 30), f"partition.{name}", text, **fields)


def on_nats(event: Event) -> None:
    """The connection to NATS changed its state."""
    _, _, name, body, text, count = event
    emit(_NATS_LEVELS.get(name, 30), f"nats.{name}", text, **{"count": count, **_fields(body)})


def on_error(event: Event, failure: Exception) -> None:
    """An event could not be handled: a bug."""
    emit(40, "control.events", f"an event of the kind {event[0]} could not be handled: {failure!r}")


def _fields(body: bytes) -> dict[str, Any]:
    """The JSON object in `body`; names that a line has already get an underscore."""
    if not body:
        return {}
    try:
        document: object = json.loads(body)
    except ValueError:
        return {"detail": body.decode(errors="replace")}
    if not isinstance(document, dict):
        return {"detail": document}
    return {f"{key}_" if key in _TAKEN else key: value for key, value in cast("dict[str, Any]", document).items()}
