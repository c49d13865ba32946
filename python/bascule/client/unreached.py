"""What to do when no broker answers, said in the sentence itself."""

from itertools import groupby
from typing import Final

from bascule.errors import BrokerError, error

__all__ = ["explained", "is_absent"]

_NOT_PLAIN: Final = ("frame with invalid size", "FRAME_SIZE_ERROR")
"""What a broker with TLS answers to plain text is no HTTP/2."""

_NOT_TLS: Final = ("reset by peer", "InvalidContentType", "corrupt message", "handshake eof")
"""How a broker without TLS ends a handshake."""

_ABSENT: Final = ("Connection refused", "No route to host", "Network is unreachable", "lookup address", "dns error")
"""Nobody listens there, there is no way to it, or there is no such host."""

_UNDECIDED: Final = ("Temporary failure in name resolution", "lookup address information: Try again")
"""How glibc and musl say that whoever knows the names of hosts did not answer."""


def is_absent(failure: BrokerError) -> bool:
    """Whether there is nobody at the address, by a connection to it that failed."""
    reason = str(failure)
    return (
        failure.code == "unavailable"
        and any(sign in reason for sign in _ABSENT)
        and not any(sign in reason for sign in _UNDECIDED)
    )


def explained(failure: BrokerError, *, protected: bool) -> BrokerError:
    """The failure with what to do about it; the same when it is not about reaching a broker.

    Args:
        failure: of a call.
        protected: whether TLS was spoken.
    """
    if failure.code != "unavailable":
        return failure
    # layers of the network stack repeat each other
    reason = ": ".join(part for part, _ in groupby(str(failure).split(": ")) if part != "transport error")
    if not protected and any(sign in reason for sign in _NOT_PLAIN):
        remedy = "if the broker has TLS, the URL begins with bascules://"
    elif protected and any(sign in reason for sign in _NOT_TLS):
        remedy = "if the broker has no TLS, the URL begins with liftbridge://"
    elif any(sign in reason for sign in _ABSENT):
        remedy = "check the address, and that a broker runs there"
    else:
        return failure
    return error(failure.code, f"{reason}; {remedy}", failure.details)
