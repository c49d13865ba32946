"""Connection errors, with the remedy in the message."""

from itertools import groupby
from typing import Final

from bascule.errors import BrokerError, error

__all__ = ["explained", "is_absent"]

_NOT_PLAIN: Final = ("frame with invalid size", "FRAME_SIZE_ERROR", "stream closed because of a broken pipe")
"""Errors that a plain-text client gets from a broker with TLS, from a NATS server or from a web server."""

_NOT_TLS: Final = ("reset by peer", "InvalidContentType", "corrupt message", "handshake eof")
"""Errors that a TLS client gets from a broker without TLS."""

_ABSENT: Final = ("Connection refused", "No route to host", "Network is unreachable", "lookup address", "dns error")
"""Nobody listens at the address, there is no route, or the host does not exist."""

_UNDECIDED: Final = ("Temporary failure in name resolution", "lookup address information: Try again")
"""Messages of glibc and musl when the name server did not answer."""


def is_absent(failure: BrokerError) -> bool:
    """Whether a failed connection shows that nobody listens at the address."""
    reason = str(failure)
    return (
        failure.code == "unavailable"
        and any(sign in reason for sign in _ABSENT)
        and not any(sign in reason for sign in _UNDECIDED)
    )


def explained(failure: BrokerError, *, protected: bool) -> BrokerError:
    """The failure with a remedy; unchanged when it is not about connecting.

    Args:
        failure: of a call.
        protected: whether TLS was spoken.
    """
    if failure.code != "unavailable":
        return failure
    # layers of the network stack repeat each other
    reason = ": ".join(part for part, _ in groupby(str(failure).split(": ")) if part != "transport error")
    if not protected and any(sign in reason for sign in _NOT_PLAIN):
        remedy = "check that this is the broker's gRPC port; if the broker has TLS, the URL begins with bascules://"
    elif protected and any(sign in reason for sign in _NOT_TLS):
        remedy = "if the broker has no TLS, the URL begins with liftbridge://"
    elif any(sign in reason for sign in _ABSENT):
        remedy = "check the address, and that a broker runs there"
    else:
        return failure
    return error(failure.code, f"{reason}; {remedy}", failure.details)
