"""Messages in and out of bytes."""

import json
from collections.abc import Mapping
from typing import Any, cast

from bascule._json import load_json
from bascule._liftbridge_pb import DecodeError
from bascule.protocols.grpc_status import Status, StatusError

MAX_OBJECT_BYTES = 64 << 10
"""Of the JSON object that a method of ours takes, unless it may name many things."""


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


def check_count(what: str, count: int, most: int, remedy: str) -> None:
    """Bound a repeated field of a request before anything is made of its entries.

    Raises:
        StatusError: INVALID_ARGUMENT: it has more than `most` entries.
    """
    if count > most:
        raise StatusError(Status.INVALID_ARGUMENT, f"{what} has {count} entries, at most {most} are accepted: {remedy}")


def read_object(
    body: bytes,
    fields: dict[str, type],
    *,
    optional: Mapping[str, bool | str | int] | None = None,
    most_bytes: int = MAX_OBJECT_BYTES,
) -> dict[str, Any]:
    """The JSON object with exactly these fields, in the request of a method of ours. Those of `optional` may be absent
    and have their values then.

    Raises:
        StatusError: INVALID_ARGUMENT: it is another document, or has more than `most_bytes`.
    """
    if len(body) > most_bytes:
        text = f"the request has {len(body)} bytes, at most {most_bytes} are accepted: ask for less at once"
        raise StatusError(Status.INVALID_ARGUMENT, text)
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
