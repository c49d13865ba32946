"""The keys of TLS and authorization, which depend on each other: certificate and key, authorization and its files.

Liftbridge uses the value of `tls.client.auth.enabled` for authorization too; Bascule uses the separate key.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from bascule.cli.liftbridge.keys import KEYS
from bascule.config import Layer
from bascule.errors import UsageError

__all__ = ["security"]

_PAIR: Final = ("tls.cert", "tls.key")
_AUTH: Final = "tls.client.auth.enabled"
_AUTHZ: Final = "tls.client.authz.enabled"
_POLICY: Final = "tls.client.authz.policy"
_SWITCHED: Final = {_AUTH: ("tls.client.auth.ca",), _AUTHZ: (_POLICY, "tls.client.authz.model")}
"""The switch of each feature and its files."""


def security(values: Mapping[str, object], origins: Mapping[str, str], notes: list[str]) -> Iterator[Layer]:
    """The settings of Bascule.

    Args:
        values: given values by Liftbridge key.
        origins: the origin of each.
        notes: a sentence is appended for each key without effect.

    Raises:
        UsageError: code `configuration_invalid`: a feature is enabled and a key that it needs is missing.
    """
    given = [key for key in _PAIR if key in values]
    if len(given) == 1:
        other = next(key for key in _PAIR if key not in values)
        raise _missing(given[0], origins, f"{other} is not set: set the certificate and its key together")
    for key in given:
        yield Layer(f"{key}, {origins[key]}", {KEYS[key].setting: values[key]})
    if given:
        # Liftbridge and its clients use TLS 1.2.
        yield Layer(f"{given[0]}, as in Liftbridge", {"tls.min_version": "1.2"})
    if values.get(_AUTH):
        yield Layer(f"{_AUTH}, {origins[_AUTH]}", {KEYS[_AUTH].setting: "required"})
    if values.get(_AUTHZ) and _POLICY not in values:
        raise _missing(_AUTHZ, origins, f"{_POLICY} is not set: name the file of the policy")
    for switch, keys in _SWITCHED.items():
        for key in keys:
            if key in values and values.get(switch):
                yield Layer(f"{key}, {origins[key]}", {KEYS[key].setting: values[key]})
            elif key in values:
                notes.append(f"{key} ({origins[key]}) has no effect: {switch} is not true")


def _missing(key: str, origins: Mapping[str, str], reason: str) -> UsageError:
    return UsageError("configuration_invalid", f"{key} ({origins[key]}): {reason}", {"key": key})
