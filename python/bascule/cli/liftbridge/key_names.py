"""What the broker says of its settings, in the keys of the Liftbridge configuration that the user wrote."""

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
"""Settings whose values have other names there."""

_KEYS: Final = {
    **{key.setting: name for name, key in KEYS.items() if key.setting},
    "nats.port": "nats.servers",
    "broker.host": "listen",
    "broker.port": "port",
    "broker.advertised_host": "host",
    "broker.advertised_port": "port",
}

_OURS: Final = re.compile(
    # neither a part of a path nor of a longer key; a sentence may end behind it
    rf"(?<![\w./-])({'|'.join(re.escape(text) for text in sorted([*_PHRASES, *_KEYS], key=len, reverse=True))})"
    r"(?![\w/-]|\.\w)"
)


def in_liftbridge_keys(text: str) -> str:
    """A sentence with each of our settings named as Liftbridge names it, where it does. Idempotent."""
    return _OURS.sub(lambda found: _PHRASES.get(found[0]) or _KEYS[found[0]], text)


def liftbridge_key(setting: str, *origins: Mapping[str, str]) -> str:
    """The key that a setting comes from: by the first of `origins` that knows one, else as it is usually called."""
    for known in origins:
        key = known.get(setting, "").partition(",")[0]
        if key in KEYS:
            return key
    return in_liftbridge_keys(setting)


def reworded(failure: BrokerError) -> BrokerError:
    """The failure, advising the keys that the user has."""
    return error(failure.code, in_liftbridge_keys(str(failure)), failure.details)
