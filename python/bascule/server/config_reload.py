"""The configuration at SIGHUP: a running broker does not apply it, but logs which settings have changed."""

from collections.abc import Callable
from dataclasses import dataclass

from bascule.config import Settings, leaves
from bascule.errors import BrokerError
from bascule.logs import emit

__all__ = ["ConfigSource", "log_changes"]


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """The source of the configuration."""

    read: Callable[[], Settings]
    """Reads the settings again."""
    name: Callable[[str], str] = str
    """Name of a setting (a dotted key) in the source; several settings may share one. Called after `read`."""


def log_changes(settings: Settings, source: ConfigSource) -> None:
    """Log the names of the changed settings, or why a broker would not start with the configuration."""
    try:
        found = source.read()
    except BrokerError as failure:
        emit(30, "server", f"SIGHUP: a start with this configuration would fail: {failure}")
        return
    in_use, next_time = dict(leaves(settings.model_dump())), dict(leaves(found.model_dump()))
    different = {key for key in in_use.keys() | next_time.keys() if in_use.get(key) != next_time.get(key)}
    changed = sorted(set(map(source.name, different)))
    if changed:
        emit(30, "server", f"SIGHUP: these settings take effect at the next start: {', '.join(changed)}")
