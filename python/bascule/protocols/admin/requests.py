"""Requests out of bytes, strictly: a field that is not known here would be ignored, so it is refused."""

from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from bascule._liftbridge_pb import DecodeError
from bascule.metadata.rejection import RejectedError
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.rejections import status_of_rejection
from bascule.protocols.router import AdminRequest

__all__ = ["MethodHandler", "read_request", "with_sentences"]

MethodHandler = Callable[[Any, AdminRequest], Awaitable[Any]]
"""Takes the request as a message, with what came with it; returns the answer as a message."""


def read_request(kind: Any, body: bytes, most_bytes: int | None) -> Any:
    """The request of type `kind`.

    Raises:
        StatusError: INVALID_ARGUMENT: it has more than `most_bytes` (`None` = any number), is not a message of the
            type, or has a field that this version does not know, at any depth.
    """
    if most_bytes is not None and len(body) > most_bytes:
        text = f"the request has {len(body)} bytes, at most {most_bytes} are accepted: ask for less at once"
        raise StatusError(Status.INVALID_ARGUMENT, text)
    try:
        asked = kind.FromString(body)
    except DecodeError as damage:
        text = f"the request is not a valid {kind.DESCRIPTOR.full_name}"
        raise StatusError(Status.INVALID_ARGUMENT, text) from damage
    _refuse_unknown(asked)
    return asked


def with_sentences(handler: MethodHandler) -> MethodHandler:
    """The handler, with rejections as statuses that keep their sentences: they name the object and the values."""

    async def mapped(asked: Any, request: AdminRequest) -> Any:
        try:
            return await handler(asked, request)
        except RejectedError as rejection:
            status = status_of_rejection(rejection)
            raise StatusError(status.status, str(rejection), status.code, **status.details) from rejection

    return mapped


def _refuse_unknown(asked: Message) -> None:
    numbers = {field.field_number for field in UnknownFieldSet(asked)}
    if numbers:
        text = f"{asked.DESCRIPTOR.full_name} has no field {min(numbers)}: leave it out, or ask a broker that knows it"
        raise StatusError(Status.INVALID_ARGUMENT, text)
    for field, value in asked.ListFields():
        if field.message_type is not None:
            for item in [value] if isinstance(value, Message) else value:
                if isinstance(item, Message):
                    _refuse_unknown(item)
