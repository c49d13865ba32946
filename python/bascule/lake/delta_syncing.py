"""Makes versions of a local Delta table durable, which deltalake does not: data files, and then entries of the log.

Without that a power cut could keep the log entry that records an epoch, and lose the rows of the epoch.
"""

import json
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from bascule.errors import CorruptionError
from bascule.lake.files import is_own_file
from bascule.lake.storage import LocalFolder

LOG: Final = "_delta_log"
OF_A_DEAD_RUN: Final = 4
"""Newest versions that are synced when it is not known which ones are: a run may have died between commit and sync,
and other writers may have committed after it.
"""
_ADDED: Final = ("add", "cdc")
"""Actions that name a new file."""


def sync_versions(folder: LocalFolder, first: int, last: int) -> None:
    """Sync the versions `[first, last]` of a table; those whose entries are not there any more are left out.

    Files that tasks of queries wrote are durable before their commit, and are not synced again.

    Raises:
        CorruptionError: a file that one of these versions added, and none of them removed, is missing or has another
            size: a power cut has lost it.
    """
    names: list[str] = []
    removed: set[str] = set()
    for version in range(last, first - 1, -1):
        for kind, file in _actions(folder, version):
            name = unquote(file["path"])
            if "://" in name:  # of another table, whose files this one names
                continue
            if kind == "remove":
                removed.add(name)
            elif not is_own_file(name) and name not in removed:
                _check_size(folder, name, file["size"], version)
                names.append(name)
    folder.sync(names)
    folder.sync([each for version in range(first, last + 1) for each in _entries(folder, version)])


def _actions(folder: LocalFolder, version: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """The files that the entry of a version removes, and then those that it adds."""
    actions: list[dict[str, Any]] = [json.loads(line) for line in (folder.read(_entry(version)) or b"").splitlines()]
    for kind in ("remove", *_ADDED):
        yield from ((kind, action[kind]) for action in actions if action.get(kind) is not None)


def _entries(folder: LocalFolder, version: int) -> list[str]:
    """The entry of a version, and its checkpoint with what names it."""
    checkpoint = f"{LOG}/{version:020d}.checkpoint.parquet"
    names = [_entry(version), checkpoint, *([f"{LOG}/_last_checkpoint"] if folder.size(checkpoint) is not None else [])]
    return [name for name in names if folder.size(name) is not None]


def _entry(version: int) -> str:
    return f"{LOG}/{version:020d}.json"


def _check_size(folder: LocalFolder, name: str, size: int, version: int) -> None:
    found = folder.size(name)
    if found == size:
        return
    what = "is missing" if found is None else f"has {found} bytes, and its log says {size}"
    raise CorruptionError(
        "damaged",
        f"{folder.uri}: {name} of version {version} {what}: restore it from a backup; without one, and if there is no "
        f"later version, stop the table's queries, delete {_entry(version)}, and start them: they write it again",
        {"table": folder.uri, "file": name},
    )
