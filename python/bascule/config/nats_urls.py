"""User, password and token in URLs of NATS servers."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from bascule._text import without_credentials

__all__ = ["UrlCredentials", "url_credentials"]


class UrlCredentials(NamedTuple):
    """Who the URLs say that the broker is: a user with a password, or a token."""

    user: str | None
    password: str | None
    token: str | None


def url_credentials(servers: Sequence[str]) -> UrlCredentials | None:
    """What the URLs hold, percent-encoding decoded; `None` = nothing. A URL without any gets those of the others.

    Raises:
        ValueError: two URLs hold different ones; names the servers without what is secret.
    """
    found = {url: _of(url) for url in servers if "@" in url}
    if len(set(found.values())) > 1:
        names = ", ".join(without_credentials(url) for url in found)
        raise ValueError(
            f"the URLs of {names} hold different credentials, and a broker says in one way who it is: set nats.user and"
            " nats.password_file, or write the same into each"
        )
    return next(iter(found.values()), None)


def _of(url: str) -> UrlCredentials:
    """NATS' own rule: what stands alone before the `@` is a token."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    user = unquote(parts.username or "")
    if parts.password is None:
        return UrlCredentials(None, None, user)
    return UrlCredentials(user, unquote(parts.password), None)
