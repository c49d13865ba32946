"""Settings for display: without secrets, and as an equivalent configuration file."""

from typing import Any, Final

from bascule._text import without_credentials
from bascule.config.sections import Settings

__all__ = ["document", "file_document"]

_MASK: Final = "*" * 10
"""Shown instead of a secret."""

_SAID: Final = ("standalone", "servers", "host")
"""Settings of `nats` that have another meaning with a standalone server if they are set explicitly."""


def document(settings: Settings) -> dict[str, Any]:
    """All settings, nested."""
    shown = settings.model_dump(mode="json")
    shown["nats"]["servers"] = [without_credentials(server, _MASK) for server in shown["nats"]["servers"]]
    return shown


def file_document(settings: Settings) -> dict[str, Any]:
    """The settings as an equivalent configuration file, without new contradictions."""
    shown, nats = document(settings), settings.nats
    if nats.standalone or nats.config is not None:
        for name in set(_SAID) - nats.model_fields_set:
            del shown["nats"][name]
    return shown
