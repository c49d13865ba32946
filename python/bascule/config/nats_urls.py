"""User, password and token in URLs of NATS servers."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from bascule._text import without_credentials

__all__ = ["UrlCredentials", "url_credentials"]


class UrlCredentials(NamedTuple):
    """Credentials in URLs: a user with a password, or a token."""

    user: str | None
    password: str | None
    token: str | None


def url_credentials(servers: Sequence[str]) -> UrlCredentials | None:
    """The credentials in URLs, percent-decoded; `None` = none. A URL without credentials uses those of the others.

    Raises:
        ValueError: two URLs have different credentials; the message names the servers without secrets.
    """
    found = {url: _of(url) for url in servers if "@" in url}
    if len(set(found.values())) > 1:
        names = ", ".join(without_credentials(url) for url in found)
        raise ValueError(
            f"the URLs of {names} have different credentials, and a broker has only one identity: set nats.user and"
            " nats.password_file, or use the same credentials in each URL"
        )
    return next(iter(found.values()), None)


def _of(url: str) -> UrlCredentials:
    """As in NATS: a single value before the `@` is a token."""
    parts = urlsplit(url if "://" in url else f"nats://{url}")
    user = unquote(parts.username or "")
    if parts.password is None:
        return UrlCredentials(None, None, user)
    return UrlCredentials(user, unquote(parts.password), None)
