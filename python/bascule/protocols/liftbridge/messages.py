"""Messages in and out of bytes."""

from typing import Any

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


def check_count(what: str, count: int, most: int, remedy: str) -> None:
    """Bound a repeated field of a request before anything is made of its entries.

    Raises:
        StatusError: INVALID_ARGUMENT: it has more than `most` entries.
    """
    if count > most:
        raise StatusError(Status.INVALID_ARGUMENT, f"{what} has {count} entries, at most {most} are accepted: {remedy}")
