"""Where an Iggy client connects to, and as whom: `iggy://user:password@host[:port][,…]`, `iggy+tls://…?ca=…`."""

import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from bascule._text import without_credentials
from bascule.client._core.tls import NAMES, Tls
from bascule.errors import UsageError

__all__ = ["Target", "is_iggy", "target"]

DEFAULT_PORT: Final = 8090
MAX_PORT: Final = 65_535
PLAIN: Final = ("iggy", "iggy+tcp")
PROTECTED: Final = "iggy+tls"


@dataclass(frozen=True, slots=True)
class Target:
    """Addresses and credentials.

    Attributes:
        addresses: host and port of each broker, 1 or more, in order.
        user: name of the user; empty = log in with the token `secret`.
        secret: password of the user, or a token.
        tls: `None` = plain text.
    """

    addresses: tuple[tuple[str, int], ...]
    user: str
    secret: str = field(repr=False)
    tls: Tls | None


def is_iggy(url: str) -> bool:
    """Whether the URL names Iggy's protocol."""
    return url.partition("://")[0] in {*PLAIN, PROTECTED}


def target(url: str, tls: Tls | None = None) -> Target:
    """The target of a URL. `tls`: in place of the URL's.

    Raises:
        UsageError: code `invalid_argument`, naming the part that is wrong.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise _refusal(url, f"an IPv6 address is written in brackets, e.g. [::1]:{DEFAULT_PORT}") from None
    if parts.path.strip("/") or parts.fragment or (parts.query and parts.scheme != PROTECTED):
        raise _refusal(url, f"nothing follows the addresses, and files of TLS need {PROTECTED}://")
    credentials, at, hosts = parts.netloc.rpartition("@")
    user, colon, secret = credentials.partition(":")
    if not (at and user and (secret or not colon)):
        raise _refusal(url, "credentials come first: user:password@ or token@, with special characters as %XX")
    if not colon:
        user, secret = "", user
    found = tuple(_address(url, part.strip()) for part in hosts.split(","))
    if tls is not None and parts.scheme != PROTECTED:
        raise _refusal(url, f"tls is given, so it begins with {PROTECTED}://")
    return Target(
        found, unquote(user), unquote(secret), (tls or _tls(url, parts)) if parts.scheme == PROTECTED else None
    )


def _tls(url: str, parts: SplitResult) -> Tls:
    try:
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise _refusal(url, "after the question mark it has name=value pairs, joined by &") from None
    values = dict(given)
    if len(values) != len(given) or not all(values.values()) or values.keys() - set(NAMES):
        raise _refusal(url, f"after the question mark it may have {', '.join(NAMES)}, each once and with a value")
    return Tls(**values)


def _address(url: str, part: str) -> tuple[str, int]:
    host, colon, port = part.rpartition(":") if not part.endswith("]") else (part, "", "")
    if not colon:
        host, port = part, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise _refusal(url, f"an IPv6 address is written in brackets, e.g. [::1]:{DEFAULT_PORT}")
    if not host or not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) <= MAX_PORT:
        raise _refusal(url, f'"{part}" is not host or host:port')
    return host, int(port)


def _refusal(url: str, reason: str) -> UsageError:
    url = without_credentials(url, "…")
    return UsageError("invalid_argument", f'"{url}" is not the URL of an Iggy listener: {reason}', {"url": url})
