"""What can go wrong, grouped by what the caller can do about it.

BrokerError                       code, retry, details
├── UsageError                    the call is wrong: fix the code (also a ValueError)
├── StateError                    the cluster's state forbids it: look, then decide
├── AccessError                   who you are or what you may do (also a PermissionError)
├── CapacityError                 slow down or send less
├── UnavailableError              try again
│   └── OutcomeUnknownError       a write may or may not have happened (also a TimeoutError)
├── CorruptionError               stored data is damaged: stop and look
└── InternalError                 our bug: report it

Codes, retry classes and their mapping to gRPC, HTTP and exit codes stand in `specs/errors.toml`.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from bascule._error_codes import CODES

__all__ = [
    "AccessError",
    "BrokerError",
    "CapacityError",
    "CorruptionError",
    "InternalError",
    "OutcomeUnknownError",
    "StateError",
    "UnavailableError",
    "UsageError",
    "error",
    "from_failure",
    "from_native",
]


class BrokerError(Exception):
    """Base of all. `str()` is one sentence in lower case with the values that matter."""

    def __init__(self, code: str, message: str = "", details: Mapping[str, Any] | None = None) -> None:
        """Make one from a code of specs/errors.toml.

        Args:
            code: a code of specs/errors.toml.
            message: one sentence; the code's own text when empty.
            details: values of the sentence, by name.
        """
        super().__init__(message or CODES[code].text)
        self.code: Final = code
        self.details: Final[dict[str, Any]] = dict(details or {})

    @property
    def retry(self) -> str:
        """`never`, `backoff` or `refresh`."""
        return CODES[self.code].retry

    @property
    def reason(self) -> str | None:
        """The case, of a code that has several; `None` = the code says all."""
        return self.details.get("reason")

    @property
    def exit_code(self) -> int:
        """What a command ends with."""
        return CODES[self.code].exit

    @property
    def docs_url(self) -> str:
        """Where the code is explained, relative to the documentation's root."""
        return f"reference/errors/#{self.code}"

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.code, str(self), self.details))


class UsageError(BrokerError, ValueError):
    """The call is wrong: fix the code."""


class StateError(BrokerError):
    """The cluster's state forbids it: look, then decide."""


class AccessError(BrokerError, PermissionError):
    """Who you are or what you may do."""


class CapacityError(BrokerError):
    """Slow down or send less."""


class UnavailableError(BrokerError):
    """Try again."""


class OutcomeUnknownError(UnavailableError, TimeoutError):
    """A write may or may not have happened."""


class CorruptionError(BrokerError):
    """Stored data is damaged: stop and look."""


class InternalError(BrokerError):
    """Our bug: report it."""


_CLASSES: Final[dict[str, type[BrokerError]]] = {
    cls.__name__: cls
    for cls in (
        UsageError,
        StateError,
        AccessError,
        CapacityError,
        UnavailableError,
        OutcomeUnknownError,
        CorruptionError,
        InternalError,
    )
}


def error(code: str, message: str = "", details: Mapping[str, Any] | None = None) -> BrokerError:
    """The exception for `code`, of the class the table gives it. A code that the table lacks becomes `internal`."""
    if code not in CODES:
        return InternalError("internal", f"{message} (unknown error code {code})", details)
    return _CLASSES[CODES[code].class_name](code, message, details)


def from_native(native: BaseException) -> BrokerError:
    """The exception for a failure of the data plane, whose `args` are (code, sentence, JSON details)."""
    code, message, details = (str(part) for part in (*native.args, "", "", "")[:3])
    return from_failure(code, message, details)


def from_failure(code: str, message: str, details: str) -> BrokerError:
    """The exception for a code, a sentence and JSON details."""
    try:
        fields: object = json.loads(details) if details else {}
    except ValueError:
        fields = details
    named = cast("dict[str, Any]", fields) if isinstance(fields, dict) else {"details": fields}
    return error(code, message, named)
