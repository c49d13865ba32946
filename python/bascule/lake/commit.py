"""Commits the files of one epoch to one table, exactly once, whatever happens in between.

Each attempt reads a fresh snapshot, decides by it, and commits against it: a table that has changed meanwhile refuses
the commit, and the next attempt decides again. So a lost answer, a second driver and a replayed epoch all end with the
rows of exactly one attempt in the table.
"""

import logging
from collections.abc import Sequence
from typing import Any, Final

from bascule.errors import StateError
from bascule.failpoints import failpoint
from bascule.lake.conflicts import MOST_CONFLICTS, pause, too_many
from bascule.lake.epochs import Already, Epoch, Noted, decide, lacking
from bascule.lake.files import DataFile
from bascule.lake.lake_table import LakeTable
from bascule.lake.progress import Progress

logger = logging.getLogger("bascule.lake")

MOST_FAILURES: Final = 4
"""Attempts at a commit whose outcome is unknown."""


def commit_epoch(
    table: LakeTable, schema: Any, epoch: Epoch, files: Sequence[DataFile], progress: Progress | None = None
) -> bool:
    """Append the files of an epoch, unless the table has it.

    Args:
        table: the table.
        schema: Arrow schema of its rows, with all partition columns.
        epoch: with at least one row, or a planned range without records.
        files: of the winning attempts of all tasks.
        progress: what the checkpoint notes about the table; None = nothing.

    Returns:
        Whether this attempt's files are in the table. If not, another attempt's are, and these were deleted.

    Raises:
        StateError: the epoch is refused (see `decide`), or the table is another one.
        UnavailableError: other writers won `MOST_CONFLICTS` times.
    """
    noted = prepare(table, schema, epoch, progress)
    failures = 0
    for attempt in range(MOST_CONFLICTS):
        state, handle = table.snapshot(epoch)
        decision = decide(table.uri, state, epoch, noted)
        if progress is not None:
            progress.note(epoch.number)
        if isinstance(decision, Already):
            return _finish_earlier(table, decision, epoch, files)
        check_files(table, files)
        failpoint("archive.before_commit")
        try:
            done = table.append(handle, decision, epoch, files)
        except Exception:
            failures += 1
            if failures == MOST_FAILURES:
                raise
            logger.warning("%s: the outcome of a commit is unknown, it is checked", table.uri, exc_info=True)
            done = False
        if done:
            failpoint("archive.after_commit")
            table.finish()
            failpoint("archive.before_answer")
            return True
        pause(attempt)
    raise too_many(table.uri)


def prepare(table: LakeTable, schema: Any, epoch: Epoch, progress: Progress | None) -> Noted | None:
    """Create a table if it is missing and may be, compare it, and finish its commits.

    Returns:
        The last epoch before this one that the checkpoint has written.

    Raises:
        StateError: the table is missing, and the checkpoint has written epochs to it, or it is another one.
    """
    noted = None if progress is None else progress.before(epoch.number)
    if noted is not None and not table.exists():
        raise lacking(table.uri, None, epoch, noted)
    table.prepare(schema)
    table.finish()
    return noted


def _finish_earlier(table: LakeTable, decision: Already, epoch: Epoch, files: Sequence[DataFile]) -> bool:
    table.finish()
    if decision.own:
        return True
    logger.info("%s has epoch %d of query %s already", table.uri, epoch.number, epoch.writer.query_id)
    # No commit of this attempt was ever tried: its files are of no use to anyone.
    table.storage.delete([each.staged for each in files])
    return False


def check_files(table: LakeTable, files: Sequence[DataFile]) -> None:
    """Check that the files of an attempt are whole.

    Raises:
        StateError: one is missing or has another size.
    """
    store = table.storage
    for each in files:
        size = store.size(each.staged)
        if size != each.bytes:
            found = "is missing" if size is None else f"has {size} bytes, not {each.bytes}"
            raise StateError(
                "failed_precondition",
                f"{table.uri}: {each.staged} {found}: something deletes files of running queries; vacuum with a "
                "retention that is longer than a micro-batch takes",
                {"table": table.uri, "file": each.staged},
            )
