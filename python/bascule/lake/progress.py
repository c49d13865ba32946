"""What a checkpoint notes about the tables of its query: the last epochs that the query began to commit to each.

A table records the epochs that it has. If it was deleted, or the query was given another path, it has none, and so has
the new table of a query whose first epochs had no rows for it. The checkpoint distinguishes these: before a commit
the file `bascule-tables/<target>~<stream>.json` notes the epoch, and the one that was noted before it.

Spark begins an epoch after the one before it is committed everywhere. So an epoch that is noted and older than the one
that is committed is in the table, or the table is not the one that it was written to.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bascule.errors import CorruptionError
from bascule.lake.epochs import Epoch, Noted, Writer, lacking, number_of
from bascule.lake.lake_table import LakeTable
from bascule.lake.storage import LocalFolder
from bascule.spark.checkpoint_copies import local_path, query_id

__all__ = ["FOLDER", "Progress", "check_continues", "progress_of"]

FOLDER: Final = "bascule-tables"
"""Folder in a checkpoint with one file for each table."""


@dataclass(frozen=True)
class Progress:
    """What a checkpoint notes about one table.

    Attributes:
        folder: of the notes.
        target: name of the table within its query.
        stream: whose table; empty = the only one.
        path: of the table, or its pattern with `{stream}`.
        one_table: the query writes one table under this target name, so that another path is noticed. Without it the
            path distinguishes tables with the same target name.
    """

    folder: Path
    target: str
    stream: str
    path: str
    one_table: bool

    def before(self, number: int) -> Noted | None:
        """The last noted epoch before `number`; None = there is none.

        Raises:
            CorruptionError: a note is not valid.
        """
        own = self.folder / self._name
        files = [own] if own.exists() or not self.one_table else self._of_other_kind()
        found = [(epoch, file) for file in files for epoch in _epochs(file) if epoch < number]
        if not found:
            return None
        epoch, file = max(found)
        return Noted(epoch, str(file))

    def note(self, number: int) -> None:
        """Note an epoch, durably, before its commit.

        Raises:
            CorruptionError: the note is not valid.
        """
        epochs = _epochs(self.folder / self._name)
        if number in epochs:
            return
        before = max((epoch for epoch in epochs if epoch < number), default=None)
        document = {"path": self.path, "stream": self.stream, "epoch": number, "before": before}
        LocalFolder(self.folder).replace(self._name, (json.dumps(document) + "\n").encode())

    @property
    def _name(self) -> str:
        parts = [self.target, f"{number_of(self.stream):x}"]
        return f"{'~'.join(parts if self.one_table else [*parts, f'{number_of(self.path):x}'])}.json"

    def _of_other_kind(self) -> list[Path]:
        """Notes of one table for all streams, if this is one for each, or the other way round."""
        if self.stream:
            return [self.folder / f"{self.target}~{number_of(''):x}.json"]
        return [file for file in self.folder.glob(f"{self.target}~*.json") if file.name.count("~") == 1]


def progress_of(checkpoint: str, writer: Writer, path: str, stream: str = "", *, one_table: bool) -> Progress | None:
    """What a checkpoint notes about a table; None = it is not in this machine's file system, or there is none.

    Args:
        checkpoint: folder of the query's checkpoint; empty = not known.
        writer: the query and its target; a run of a batch job has no checkpoint.
        path: as in the options.
        stream: whose table, when the path contains `{stream}`.
        one_table: see `Progress`.
    """
    folder = None if writer.range_id else local_path(checkpoint)
    return None if folder is None else Progress(folder / FOLDER, writer.target, stream, path, one_table)


def check_continues(table: LakeTable, checkpoint: str, target: str, path: str) -> None:
    """Refuse a query before it starts, if its only table lacks epochs that the checkpoint has written to it.

    Raises:
        StateError: the table was deleted, is another one, or an older copy of it was restored.
        CorruptionError: a note of the checkpoint is not valid.
    """
    folder = local_path(checkpoint)
    query = "" if folder is None else query_id(folder)
    if folder is None or not query:
        return
    number = 1 + max((int(each.name) for each in folder.glob("commits/*") if each.name.isdigit()), default=-1)
    writer = Writer(query, target)
    progress = progress_of(checkpoint, writer, path, one_table=True)
    if progress is None or (noted := progress.before(number)) is None:
        return
    epoch = Epoch(writer, number, "", "", 0, {})
    state = table.snapshot(epoch)[0] if table.exists() else None
    last = None if state is None else state.last
    if last is None or last.epoch < noted.epoch:
        raise lacking(table.uri, last, epoch, noted)


def _epochs(file: Path) -> list[int]:
    """The epochs that a file notes; empty = it is not there."""
    try:
        document: dict[str, Any] = json.loads(file.read_bytes())
        return [int(each) for each in (document["epoch"], document["before"]) if each is not None]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as cause:
        message = f"{file} does not say which epochs the query has written ({cause}): restore it, or delete it"
        raise CorruptionError("damaged", message, {"file": str(file)}) from cause
