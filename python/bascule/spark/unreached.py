"""Sentences for a broker that Arrow Flight cannot reach: the address, the reason, the remedy."""

import re
from typing import Final

from bascule.errors import BrokerError, error

__all__ = ["shown_address", "unreached"]

_ROUTE: Final = re.compile(
    r"failed to connect to all addresses; last error: [A-Z_]+: \S+: (?:Failed to connect to remote host: )?(.+)"
    r"|(errors resolving .+)",
    re.DOTALL,
)
"""What gRPC reports before any call reached a server; it names each address that it tried."""
_ABSENT: Final = ("Connection refused", "errors resolving", "unreachable", "No route to host")
"""Nobody listens at the address, there is no route, or the host does not exist."""


def shown_address(address: str) -> str:
    """The `host:port` of an address of `connection_options`."""
    return address.partition("?")[0].rpartition("/")[2]


def unreached(failure: BrokerError, address: str) -> BrokerError:
    """The failure with the address and a remedy; unchanged if it is not about connecting.

    Args:
        failure: of a call of Arrow Flight.
        address: of `connection_options`.
    """
    found = _ROUTE.fullmatch(str(failure)) if failure.code == "unavailable" else None
    if found is None:
        return failure
    reason = found[1] or found[2]
    if any(sign in reason for sign in _ABSENT):
        remedy = "check the address, and that a broker runs there"
    elif address.startswith("grpc+tls://"):
        remedy = "check the certificates; if the broker has no TLS, the address is host:port alone"
    else:
        remedy = "check that this is the broker's gRPC port; if the broker has TLS, the address begins with bascules://"
    return error(failure.code, f"broker at {shown_address(address)}: {reason}; {remedy}", failure.details)
