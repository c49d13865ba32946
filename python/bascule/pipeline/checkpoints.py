"""What the checkpoint of a job says about its last finished epoch."""

import json
from pathlib import Path
from typing import Any, NamedTuple, cast

from bascule.pipeline.model.base import is_url

__all__ = ["LastEpoch", "last_epoch"]


class LastEpoch(NamedTuple):
    """The last finished epoch of a checkpoint.

    Attributes:
        number: of the epoch.
        end: where it ended, as the document of offsets that the source wrote; None = the checkpoint does not have it.
    """

    number: int
    end: dict[str, Any] | None


def last_epoch(checkpoint: str) -> LastEpoch | None:
    """The last finished epoch; None = there is none, or the checkpoint is not in a local directory."""
    if is_url(checkpoint):
        return None
    commits = Path(checkpoint) / "commits"
    epochs = [int(path.name) for path in commits.glob("*") if path.name.isdigit()] if commits.is_dir() else []
    if not epochs:
        return None
    number = max(epochs)
    return LastEpoch(number, _document(Path(checkpoint) / "offsets" / str(number)))


def _document(offsets: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(offsets.read_text().splitlines()[2])
    except (OSError, ValueError, IndexError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
