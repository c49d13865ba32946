"""gRPC status codes, and the status of an error of ours."""

from enum import IntEnum
from typing import Any

from bascule._error_codes import CODES
from bascule.errors import BrokerError


class Status(IntEnum):
    """The codes of gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class StatusError(Exception):
    """The status of a failed request.

    Attributes:
        status: gRPC status code.
        message: the exact status message.
        code: code of specs/errors.toml; `None` = the usual one of the status.
        details: values that callers decide by, by name.
        iggy_status: status of Iggy's protocol; `None` = the usual one.
    """

    iggy_status: int | None = None

    def __init__(self, status: Status, message: str, code: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.details = details


def status_of(failure: BrokerError) -> Status:
    """The status that specs/errors.toml gives the error's code."""
    return Status[CODES[failure.code].grpc]
