"""Where to connect to: `liftbridge://host[:port][,host[:port]…]`, or `bascules://…?ca=…` for TLS."""

import re
from contextlib import nullcontext
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, urlsplit

from bascule._text import without_credentials
from bascule.client._core.connection_pool import MAX_IN_FLIGHT, ConnectionPool, Watched
from bascule.client._core.tls import NAMES, Tls
from bascule.errors import UsageError

__all__ = ["RECONNECT_S", "addresses", "connection_pool", "protection"]

DEFAULT_PORT: Final = 9292
RECONNECT_S: Final = 30.0
"""Default seconds for which a subscription tries to reconnect."""

PLAIN: Final = ("bascule", "liftbridge")
PROTECTED: Final = ("bascules", "liftbridges")
"""Schemes with TLS."""

MAX_PORT: Final = 65535


def connection_pool(  # noqa: PLR0913 (everything but the URL is keyword-only)
    url: str,
    tls: Tls | None = None,
    *,
    max_in_flight: int = MAX_IN_FLIGHT,
    name: str = "python",
    wait: bool = True,
    watched: Watched = nullcontext,
) -> ConnectionPool:
    """The connection pool of a client. Arguments are those of `connect`; `watched` is that of `ConnectionPool`.

    Raises:
        UsageError: code `invalid_argument`: the URL, or a file of `tls`.
    """
    if max_in_flight < 1:
        raise UsageError("invalid_argument", f"max_in_flight is 1 or more, not {max_in_flight}")
    options: dict[str, Any] = {"max_in_flight": max_in_flight, "client_id": name}
    tls = tls or protection(url)
    if tls is not None:
        options["tls"] = tls.options()
    return ConnectionPool(addresses(url), options, wait=wait, watched=watched)


def addresses(url: str) -> list[str]:
    """The `host:port` addresses of a URL, in order.

    Raises:
        UsageError: code `invalid_argument`, naming the part that is wrong.
    """
    parts = _split(url)
    return [_address(url, part.strip()) for part in parts.netloc.split(",")]


def protection(url: str) -> Tls | None:
    """The TLS of a URL; `None` = plain text.

    Raises:
        UsageError: code `invalid_argument`, naming the part that is wrong.
    """
    parts = _split(url)
    if parts.scheme not in PROTECTED:
        return None
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _refusal(url, "after the question mark it has name=value pairs, joined by &") from None
    values = dict(given)
    unknown = [name for name in values if name not in NAMES]
    if unknown or len(values) != len(given) or not all(values.values()):
        raise _refusal(url, f"after the question mark it may have {', '.join(NAMES)}, each once and with a value")
    return Tls(**values)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _refusal(url, f"an IPv6 address is written in brackets, e.g. [::1]:{DEFAULT_PORT}") from None
    if parts.scheme not in PLAIN + PROTECTED:
        known = " or ".join(f"{scheme}://" for scheme in PLAIN)
        other = f", with TLS {PROTECTED[0]}://"
        raise _refusal(url, f"it begins with {known}{other}, e.g. liftbridge://127.0.0.1:{DEFAULT_PORT}")
    if parts.path.strip("/") or parts.fragment or (parts.query and parts.scheme not in PROTECTED):
        raise _refusal(url, "nothing follows the addresses")
    if "@" in parts.netloc:
        raise _refusal(url, "a URL must not contain credentials")
    return parts


def _address(url: str, part: str) -> str:
    host, colon, port = part.rpartition(":") if not part.endswith("]") else (part, "", "")
    if not colon:
        host, port = part, str(DEFAULT_PORT)
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise _refusal(url, f"an IPv6 address is written in brackets, e.g. [::1]:{DEFAULT_PORT}")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) <= MAX_PORT:
        raise _refusal(url, f'"{part}" is not host or host:port')
    return f"{host}:{int(port)}"


def _refusal(url: str, reason: str) -> UsageError:
    url = without_credentials(url, "…")
    return UsageError("invalid_argument", f'"{url}" is not the URL of a broker: {reason}', {"url": url})
