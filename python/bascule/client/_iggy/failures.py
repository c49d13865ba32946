"""Statuses of Iggy's protocol as errors of the client. No I/O."""

from typing import Final

from bascule.client._core import refusals
from bascule.errors import AccessError, BrokerError, StateError, UsageError, error

__all__ = ["RefusedError", "of_status", "unavailable_method"]

NO_STREAM: Final = frozenset({1009, 1010, 2010, 2011})
NO_PARTITION: Final = frozenset({3007, 3008})
LOGIN: Final = {
    20: "the token is unknown",
    40: "the session has ended, or the user was deleted or deactivated",
    42: "wrong name or password",
    47: "the user is inactive",
    53: "the token is not valid",
    54: "the token has expired",
}


class RefusedError(Exception):
    """A command was answered with this status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status: Final = status


def of_status(status: int, stream: str = "", partition: int | None = None) -> BrokerError:
    """The error of a status. `stream`: what the command was about; empty = a login, or all streams."""
    details = {"iggy_status": status, **({"stream": stream} if stream else {})}
    about = f' for stream "{stream}"' if stream else ""
    if status in NO_STREAM:
        return refusals.no_stream(stream)
    if status in NO_PARTITION:
        number = "that can be chosen" if partition is None else partition
        text = f'stream "{stream}" has no partition {number}'
        return StateError("partition_not_found", text, {**details, "partition": partition})
    if status in LOGIN:
        return AccessError("unauthenticated", f"{LOGIN[status]} (status {status})", details)
    code, text = _OTHERS.get(status, ("invalid_argument", "the broker refused the command{about} with status {status}"))
    return error(code, text.format(about=about, status=status), details)


_EXISTS: Final = ("stream_exists", "it exists already{about}")
_NO_MEMBER: Final = ("not_found", "the group does not exist, or the connection is not a member of it{about}")
_TOO_LARGE: Final = ("too_large", "the messages{about} are larger than one send may be")
_OTHERS: Final[dict[int, tuple[str, str]]] = {
    1: ("busy", "the broker could not do this{about}: the reason is in its log"),
    3: ("unimplemented", "the listener does not know the command{about}, or cannot read it"),
    5: ("failed_precondition", "the broker does not do this{about} now: status 5, whose reason is in its log"),
    41: (
        "permission_denied",
        "the user has no right to this{about}, or it does not exist: bascule iggy users permissions",
    ),
    **dict.fromkeys((1011, 1012, 2012, 2013, 5004), _EXISTS),
    **dict.fromkeys((5000, 5003, 5006), _NO_MEMBER),
    **dict.fromkeys((4017, 4022), _TOO_LARGE),
}
"""Code and text by status."""


def unavailable_method(name: str) -> UsageError:
    """The error of a method of the client, or of an argument of one, that the protocol lacks."""
    text = f"{name} is not available over Iggy's protocol: connect with liftbridge://, which has every method"
    return UsageError("unimplemented", text, {"method": name, "protocol": "iggy"})
