"""Messages in and out of bytes."""

import json
from collections.abc import Mapping
from typing import Any, cast

from bascule._json import load_json
from bascule._liftbridge_pb import DecodeError
from bascule.protocols.grpc_status import Status, StatusError


def parse(kind: Any, body: bytes) -> Any:
    """A message of `kind`.

    Raises:
        StatusError: INTERNAL: malformed.
    """
    try:
        return kind.FromString(body)
    except DecodeError as damage:
        text = f"grpc: error unmarshalling request: malformed {kind.DESCRIPTOR.name}"
        raise StatusError(Status.INTERNAL, text) from damage


def serialize(response: Any) -> bytes:
    """The bytes of a message."""
    serialized: bytes = response.SerializeToString()
    return serialized


def read_object(
    body: bytes, fields: dict[str, type], *, optional: Mapping[str, bool | str | int] | None = None
) -> dict[str, Any]:
    """The JSON object with exactly these fields, in the request of a method of ours. Those of `optional` may be absent
    and have their values then.

    Raises:
        StatusError: INVALID_ARGUMENT: it is none.
    """
    try:
        asked: object = load_json(body)
        # A lone surrogate is valid JSON and no text.
        json.dumps(asked, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        asked = None
    if isinstance(asked, dict):
        document = {**(optional or {}), **cast("dict[str, Any]", asked)}
        fields = {**fields, **{key: type(value) for key, value in (optional or {}).items()}}
        if {key: type(value) for key, value in document.items()} == fields:
            return document
    raise StatusError(Status.INVALID_ARGUMENT, f"the request is not a JSON object of {', '.join(fields)}")
