"""What crosses the seam between the control plane and the data plane, one type a meaning. Plain data."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

__all__ = ["Answer", "Rejected", "Reply"]


class Answer(NamedTuple):
    """A request that succeeded: its id and the response message."""

    request_id: int
    body: bytes


class Rejected(NamedTuple):
    """A request that failed.

    Attributes:
        request_id: of the request.
        status: gRPC status code.
        message: status message.
        code: code of specs/errors.toml; `None` = the usual one of the status.
        details: values of the message, by name.
    """

    request_id: int
    status: int
    message: str
    code: str | None
    details: Mapping[str, Any]


Reply: TypeAlias = Answer | Rejected
