"""Why a catalog cannot be opened, without its secrets. Pure.

Errors of pyiceberg and of the libraries that it calls may have every property of the catalog in their text, and those
hold passwords, tokens and keys. So each value of a property is taken out of the text, unless the property is known to
be harmless, and so are the parts of URLs that hold credentials.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast
from urllib.parse import quote, quote_plus, unquote, urlsplit

__all__ = ["address_of", "reason_of"]

_HARMLESS: Final = frozenset({"type", "uri", "warehouse", "prefix", "scope", "s3.region", "s3.endpoint", "py-io-impl"})
"""Properties whose values an error may show; of a URL only what is not a credential."""
_SECRET: Final = re.compile(r"secret|token|password|credential|key|auth|sas|signature|header", re.IGNORECASE)
"""In names of properties that hold secrets."""
_LEAST: Final = 4
"""Shorter values are taken out only if the property's name says that it is secret: others are words such as `1`."""
_CREDENTIALS: Final = re.compile(r"(?<=://)\S*@")
_QUERY: Final = re.compile(r"(?<=[\w/])\?[^\s'\")]*=[^\s'\")]*")
_HIDDEN: Final = "…"
_LONGEST: Final = 300


def reason_of(failure: BaseException, properties: Mapping[str, Any]) -> str:
    """The first line of an error, without secrets, and its class.

    Args:
        failure: of pyiceberg, or of a library that it calls.
        properties: of the catalog, all that it was opened with; values may be mappings themselves.
    """
    text = str(failure)
    for secret in sorted(_secrets(properties), key=len, reverse=True):
        for written in {
            secret,
            repr(secret)[1:-1],
            json.dumps(secret)[1:-1],
            quote(secret, safe=""),
            quote_plus(secret),
        }:
            text = text.replace(written, _HIDDEN)
    text = _QUERY.sub(f"?{_HIDDEN}", _CREDENTIALS.sub(f"{_HIDDEN}@", text))
    line = next((" ".join(line.split()) for line in text.splitlines() if line.strip()), "")
    kind = type(failure).__name__
    return f"{line[:_LONGEST].rstrip('.')} ({kind})" if line else kind


def address_of(uri: str) -> str:
    """Scheme, host and port of a URL, without a user and a password; of another text nothing that could be secret."""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host:
        return "its address"
    return f"{urlsplit(uri).scheme}://{host}{f':{port}' if port else ''}"


def _secrets(properties: Mapping[str, Any]) -> Iterator[str]:
    for name, value in properties.items():
        if isinstance(value, Mapping):
            yield from _secrets(cast("Mapping[str, Any]", value))
            continue
        text = str(value)
        if name.lower() in _HARMLESS:
            yield from _of_url(text)
        elif text and (_SECRET.search(name) is not None or len(text) >= _LEAST):
            yield text


def _of_url(text: str) -> Iterator[str]:
    """The user's password in a URL, as written and decoded, and the values of its query."""
    try:
        parts = urlsplit(text)
        password = parts.password
    except ValueError:  # it is not a URL: all of it may be one
        yield text
        return
    if password:
        yield from {password, unquote(password)}
    if parts.query:
        yield parts.query
