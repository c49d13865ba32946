"""Checks that a backup belongs to the directory to be repaired, before anything is changed."""

import json
from pathlib import Path
from typing import Any, Final

from bascule.errors import StateError, UsageError, error

__all__ = ["check_backup"]

MANIFEST: Final = "bascule.json"
METADATA_LOG: Final = Path("metadata") / "log"


def check_backup(path: Path, backup: Path) -> Path:
    """The directory to take segments from: `backup`, or the log in it that corresponds to `path`.

    Args:
        path: a data directory, or one log of it.
        backup: a copy of that data directory, or of that log.

    Raises:
        StateError: `not_found`: it does not exist, or lacks that log; `data_directory_foreign`: of another broker.
        UsageError: `invalid_argument`: it is the directory itself, or neither a data directory nor that log.
    """
    if not backup.is_dir():
        raise StateError("not_found", f"the backup {backup} is not a directory: name a copy of {path}")
    if backup.resolve() == path.resolve():
        raise UsageError("invalid_argument", f"the backup {backup} is the directory to be repaired: name a copy of it")
    if _is_data_directory(path):
        _check_owner(path, backup)
        return backup
    whole = path.resolve().parent.parent
    if _is_data_directory(backup):
        _check_owner(whole, backup)
        inside = backup / path.resolve().relative_to(whole)
        if not inside.is_dir():
            raise StateError("not_found", f"the backup {backup} has no {inside.relative_to(backup)}")
        return inside
    if backup.resolve().name != path.resolve().name or not any(backup.glob("*.seg")):
        raise UsageError("invalid_argument", f"the backup {backup} is neither a data directory nor a copy of {path}")
    return backup


def _is_data_directory(path: Path) -> bool:
    return (path / "partitions").is_dir() or (path / METADATA_LOG).is_dir()


def _check_owner(data: Path, backup: Path) -> None:
    """Reject a backup that is not known to be of the same broker. A data directory without `bascule.json` is accepted
    here: `verify` reports it.
    """
    theirs = _owner(backup)
    if theirs is None:
        text = f"the backup {backup} has no readable {MANIFEST}, which names its broker: name a copy of {data}"
        raise UsageError("invalid_argument", text)
    ours = _owner(data)
    if ours is not None and theirs != ours:
        text = (
            f"the backup {backup} is of broker {theirs[1]} of cluster {theirs[0]}, but {data} is of broker {ours[1]} of"
            f" cluster {ours[0]}: name a copy of it"
        )
        raise error("data_directory_foreign", text)


def _owner(data: Path) -> tuple[str, str] | None:
    """Ids of the cluster and the broker; `None` = not known."""
    try:
        manifest: Any = json.loads((data / MANIFEST).read_bytes())
        return str(manifest["cluster_id"]), str(manifest["broker_id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
