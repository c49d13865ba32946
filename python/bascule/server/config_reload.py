"""What a hangup finds in the configuration itself: a running broker takes none of it over, but says what differs."""

from collections.abc import Callable
from dataclasses import dataclass

from bascule.config import Settings, leaves
from bascule.errors import BrokerError
from bascule.logs import emit

__all__ = ["ConfigSource", "log_changes"]


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """Where the configuration came from."""

    read: Callable[[], Settings]
    """Reads it again."""
    name: Callable[[str], str] = str
    """What a setting, a dotted key of ours, is called there; several may be one key. Asked after `read`."""


def log_changes(settings: Settings, source: ConfigSource) -> None:
    """Log which settings are others than those in use, by name, or why the configuration would not start a broker."""
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
