"""Checkpoints of streaming queries, which are Spark's own: what distinguishes a copy of one from a restart.

A query that continues from a copy of a checkpoint has the id of the other query, so that sinks take its epochs for
those of that query. Two things show that it is a copy:

* Spark writes `offsets/<epoch>` before it runs an epoch, with the offsets and the time of planning, and keeps the file
  when it runs the epoch again after a crash. Sinks compare a hash of this file when an epoch is repeated.
* `claim` leaves the path of the checkpoint in it, for jobs and archives.

A copy of the files of an epoch that has begun and is not finished repeats it as a restart does.
"""

import errno
import hashlib
import json
import logging
import os
from pathlib import Path
from typing import Final

from bascule.errors import StateError, error

MARK: Final = "bascule.json"
"""File in a checkpoint with its path."""

logger = logging.getLogger("bascule.spark")


def offsets_hash(checkpoint: str, epoch: int) -> str:
    """SHA-256 of the checkpoint's offsets of an epoch, once they are synced; empty = not on a local path.

    An epoch that is published must not be planned again with other offsets after a power cut.
    """
    folder = local_path(checkpoint)
    if folder is None:
        return ""
    path = folder / "offsets" / str(epoch)
    try:
        with path.open("rb") as file:
            content = file.read()
            os.fsync(file.fileno())
        parent = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(parent)
        finally:
            os.close(parent)
    except OSError as failure:
        if folder not in _unreadable:
            _unreadable.add(folder)
            logger.warning(
                "the checkpoint's offsets of epoch %d cannot be synced here, so a power cut may lose them, and a "
                "repeated epoch is compared by its rows alone: %s",
                epoch,
                failure,
            )
        return ""
    return hashlib.sha256(content).hexdigest()


_unreadable: set[Path] = set()
"""Checkpoints about which this driver has warned."""


def claim(checkpoint: str) -> None:
    """Refuse a checkpoint that is a copy of another one which is still in its place; else note where it is.

    A checkpoint that was moved, or restored to where it was, is not a copy. Does nothing for one that is not in this
    machine's file system.

    Args:
        checkpoint: folder of the query's checkpoint; it is made when it is missing.

    Raises:
        BrokerError: it is a copy (`sink_conflict`), or its folder cannot be written (`disk_full`,
            `failed_precondition`).
    """
    folder = local_path(checkpoint)
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        here = folder.resolve()
        noted = _noted(here)
        if noted is not None and noted != here and query_id(noted) == query_id(here) != "":
            raise StateError(
                "sink_conflict",
                f"the checkpoint {here} is a copy of {noted}, and its query would be the same one twice: give this "
                f"query a new checkpoint; if {noted} is not used any more, remove it",
                {"checkpoint": str(here), "original": str(noted)},
            )
        if noted != here:
            part = here / f".{MARK}.{os.getpid()}"
            part.write_text(json.dumps({"path": str(here)}) + "\n")
            part.replace(here / MARK)
    except OSError as failure:
        is_full = failure.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "free space there" if is_full else "it must be a folder that can be made and written"
        message = f"the checkpoint {folder} cannot be used: {failure.strerror or failure}; {remedy}"
        code = "disk_full" if is_full else "failed_precondition"
        raise error(code, message, {"checkpoint": str(folder)}) from failure


def overlap(checkpoint: str, table: str) -> str | None:
    """Why a checkpoint cannot be where it is, beside a table; None = it can, or one is not in this file system.

    Readers of Parquet take all files in the folder for the table's, and the vacuum of other tools deletes those that
    the table does not name. A folder in it whose name begins with `_` or `.` is left alone by both.

    Args:
        checkpoint: its folder.
        table: folder of the table; the folders of tables for each stream, with `{stream}`, are not compared.
    """
    one, other = local_path(checkpoint), local_path(table)
    if one is None or other is None or "{stream}" in table:
        return None
    inner, outer = one.resolve(), other.resolve()
    if outer.is_relative_to(inner):
        return (
            f"the table {table} is in the folder of the checkpoint {checkpoint}: give the checkpoint a folder beside it"
        )
    if inner.is_relative_to(outer) and not inner.relative_to(outer).parts[0].startswith(("_", ".")):
        return (
            f"the checkpoint {checkpoint} is in the folder of the table {table}, where readers and vacuum of "
            "other tools take its files for the table's: choose one beside it, or in it with a name that begins with _"
        )
    return None


def _noted(folder: Path) -> Path | None:
    """The place that a checkpoint notes; None = it does not."""
    try:
        return Path(json.loads((folder / MARK).read_text())["path"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return None  # cut by a full disk or a crash: it is written again


def query_id(folder: Path) -> str:
    """The id that Spark gave the query of a checkpoint; empty = there is none."""
    try:
        return str(json.loads((folder / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def local_path(checkpoint: str) -> Path | None:
    """The folder of a checkpoint in this machine's file system; None = it is elsewhere, or not known.

    Read as Hadoop's `Path` reads it: `#`, `?` and `%` have no meaning in it.
    """
    scheme, colon, rest = checkpoint.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "", checkpoint
    if not rest or scheme.lower() not in ("", "file"):
        return None
    if rest.startswith("//"):
        rest = "/" + rest[2:].partition("/")[2]
    return Path(rest)
