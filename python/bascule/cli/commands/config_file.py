"""Settings from the configuration file of a command."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bascule.errors import UsageError

if TYPE_CHECKING:
    from bascule.config import Resolved

__all__ = ["resolved"]


def resolved(file: Path | None, flags: Mapping[str, object] | None = None) -> "Resolved":
    """As `config.resolve`. A file for the `liftbridge` command is rejected with a hint how to use it.

    Raises:
        UsageError: code `configuration_invalid`.
    """
    from bascule import config  # noqa: PLC0415 (takes longer to load than most commands to run)

    try:
        return config.resolve(file, flags)
    except UsageError as failure:
        if file is None or not _is_of_liftbridge(file):
            raise
        text = (
            f"{file} is a configuration of Liftbridge: start it with liftbridge -c {file}, or convert it with "
            f"bascule config import {file} ({failure})"
        )
        raise UsageError(failure.code, text, failure.details) from failure


def _is_of_liftbridge(file: Path) -> bool:
    """Whether more of its keys are known to Liftbridge only than to Bascule only."""
    from bascule import config  # noqa: PLC0415 (as above)
    from bascule.cli.liftbridge.keys import KEYS, flattened  # noqa: PLC0415 (as above)

    try:
        keys = {key for key, _ in flattened(config.read_yaml(file))}
    except UsageError:
        return False
    ours = set(config.known_keys())
    return len(keys & (KEYS.keys() - ours)) > len(keys & (ours - KEYS.keys()))
