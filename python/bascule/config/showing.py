"""Settings as they are shown: without secrets, and as a file that would mean the same."""

from typing import Any, Final

from bascule._text import without_credentials
from bascule.config.sections import Settings

__all__ = ["document", "file_document"]

_MASK: Final = "*" * 10
"""As secrets are shown."""

_SAID: Final = ("standalone", "servers", "host")
"""Of `nats`: beside a nats-server of the broker's own each means more when somebody says it than as a default."""


def document(settings: Settings) -> dict[str, Any]:
    """All of them, nested."""
    shown = settings.model_dump(mode="json")
    shown["nats"]["servers"] = [without_credentials(server, _MASK) for server in shown["nats"]["servers"]]
    return shown


def file_document(settings: Settings) -> dict[str, Any]:
    """The same as a configuration file that changes nothing and contradicts itself nowhere that they do not."""
    shown, nats = document(settings), settings.nats
    if nats.standalone or nats.config is not None:
        for name in set(_SAID) - nats.model_fields_set:
            del shown["nats"][name]
    return shown
