"""Rewrites messages of the broker to name settings by the keys of a Liftbridge configuration."""

import re
from collections.abc import Mapping
from typing import Final

from bascule.cli.liftbridge.keys import KEYS
from bascule.errors import BrokerError, error

__all__ = ["in_liftbridge_keys", "liftbridge_key", "reworded"]

_PHRASES: Final = {
    "tls.client_auth to required": "tls.client.auth.enabled to true",
    "tls.client_auth is required": "tls.client.auth.enabled is true",
}
"""Phrases about settings whose values have other names in Liftbridge."""

_KEYS: Final = {
    **{key.setting: name for name, key in KEYS.items() if key.setting},
    "nats.port": "nats.servers",
    "broker.host": "listen",
    "broker.port": "port",
    "broker.advertised_host": "host",
    "broker.advertised_port": "port",
}

_OURS: Final = re.compile(
    # not a part of a path or of a longer key; a sentence may end after it
    rf"(?<![\w./-])({'|'.join(re.escape(text) for text in sorted([*_PHRASES, *_KEYS], key=len, reverse=True))})"
    r"(?![\w/-]|\.\w)"
)


def in_liftbridge_keys(text: str) -> str:
    """The text with settings replaced by their Liftbridge keys, where one exists. Idempotent."""
    return _OURS.sub(lambda found: _PHRASES.get(found[0]) or _KEYS[found[0]], text)


def liftbridge_key(setting: str, *origins: Mapping[str, str]) -> str:
    """The Liftbridge key of a setting: from the first of `origins` that has one, else its usual key."""
    for known in origins:
        key = known.get(setting, "").partition(",")[0]
        if key in KEYS:
            return key
    return in_liftbridge_keys(setting)


def reworded(failure: BrokerError) -> BrokerError:
    """The failure with settings named by their Liftbridge keys."""
    return error(failure.code, in_liftbridge_keys(str(failure)), failure.details)
