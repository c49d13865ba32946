"""Settings of a stream as the message `StreamSettings`, whose fields have the names of `StreamSettings` in metadata."""

from collections.abc import Mapping
from typing import Any

from bascule._admin_pb import message
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.messages import check_count

_StreamSettings = message("StreamSettings")


def settings_message(values: Mapping[str, Any]) -> Any:
    """The message with these values; `None` = absent."""
    return _StreamSettings(**{name: value for name, value in values.items() if value is not None})


def settings_changes(asked: Any) -> dict[str, object]:
    """What an EditStreamRequest changes: names to values, `None` = as the broker's configuration says.

    Raises:
        StatusError: INVALID_ARGUMENT: a setting is both changed and reset, or too many are reset.
    """
    check_count("reset", len(asked.reset), len(_StreamSettings.DESCRIPTOR.fields), "name each setting once")
    changes: dict[str, object] = {field.name: value for field, value in asked.changes.ListFields()}
    if both := sorted(changes.keys() & set(asked.reset)):
        raise StatusError(Status.INVALID_ARGUMENT, f"{both[0]} is both in changes and in reset: give it in one of them")
    return {**changes, **dict.fromkeys(asked.reset)}
