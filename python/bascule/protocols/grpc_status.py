"""gRPC status codes, and the status of an error of ours."""

from enum import IntEnum

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
    """How a request ends that cannot be granted: a code and the exact status message."""

    def __init__(self, code: Status, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def status_of(failure: BrokerError) -> Status:
    """The status that specs/errors.toml gives the error's code."""
    return Status[CODES[failure.code].grpc]
