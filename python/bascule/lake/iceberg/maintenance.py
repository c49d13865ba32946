"""Compaction of Iceberg tables by bin-packing, and expiry of their snapshots. Safe while queries append.

pyiceberg has neither a rewrite of small files nor a removal of files that no snapshot names. The first one is here; the
second one is left to the engine that owns the table.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeVar
from uuid import uuid4

from bascule.errors import StateError, UnavailableError
from bascule.lake.conflicts import MOST_CONFLICTS, pause, too_many
from bascule.lake.files import ORDER, DataFile, TableWriter
from bascule.lake.iceberg.catalog import import_pyiceberg
from bascule.lake.iceberg.columns import archived
from bascule.lake.iceberg.target import IcebergTarget, entry, plan_of, sync_version, without_retries
from bascule.lake.matching import NOT_MERGED, check_pages
from bascule.lake.storage import FileStore

logger = logging.getLogger("bascule.lake")

T = TypeVar("T")

COMPACTION: Final = "bascule.compaction"
"""Property of the snapshot of a compaction."""
_MAX_AGE_MS: Final = "history.expire.max-snapshot-age-ms"
_DEFAULT_MAX_AGE_MS: Final = 5 * 24 * 3600 * 1000
"""Iceberg's own default of this property."""


@dataclass(frozen=True)
class Rewrite:
    """Files of a table, and those that replace them."""

    old: tuple[Any, ...]
    new: tuple[DataFile, ...]


def compact(target: IcebergTarget) -> dict[str, int]:
    """Merge files below half of `fileBytes` into files of about `fileBytes`, then expire old snapshots.

    Snapshots older than the table's property `history.expire.max-snapshot-age-ms` (5 days without it) are expired.

    Returns:
        `numFilesAdded`, `numFilesRemoved` and `numSnapshotsExpired`.

    Raises:
        CorruptionError: a file is missing, or a page of it fails its checksum.
        StateError: the table has delete files, which rewriting would lose.
        UnavailableError: other writers committed first `MOST_CONFLICTS` times in a row.
    """
    table = target.open()
    target.check_no_deletes(table)
    plan, token = plan_of(table), uuid4().hex
    rewrites = [
        rewrite
        for number, tasks in enumerate(_bins(table, target.options.file_bytes))
        if (rewrite := _rewritten(table, TableWriter(plan, target.options, prefix=f"{token}-{number:05d}"), tasks))
    ]
    if rewrites and not replace_files(target, rewrites, plan.store, {COMPACTION: "true"}):
        rewrites = []
    age_ms = int(table.properties.get(_MAX_AGE_MS, _DEFAULT_MAX_AGE_MS))
    expired = expire(target, age_ms / 3_600_000)
    return {
        "numFilesAdded": sum(len(each.new) for each in rewrites),
        "numFilesRemoved": sum(len(each.old) for each in rewrites),
        "numSnapshotsExpired": len(expired),
    }


def expire(target: IcebergTarget, retention_hours: float) -> list[int]:
    """Expire snapshots that are older than `retention_hours`; those that a branch or tag names are kept.

    Returns:
        The ids of the expired snapshots.

    Raises:
        UnavailableError: other writers committed first `MOST_CONFLICTS` times in a row.
    """
    before = datetime.fromtimestamp(time.time() - retention_hours * 3600, UTC)

    def attempt(table: Any) -> list[int]:
        kept = {each.snapshot_id for each in table.refs().values()}
        old = [
            each.snapshot_id
            for each in table.snapshots()
            if each.timestamp_ms < before.timestamp() * 1000 and each.snapshot_id not in kept
        ]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()
            sync_version(table)
        return old

    return _until_committed(target, attempt)


def _bins(table: Any, file_bytes: int) -> list[list[Any]]:
    """Scan tasks of small files of one partition each, in the order of their rows; at least two in a bin."""
    packer = import_pyiceberg("utils.bin_packing").ListPacker(file_bytes, lookback=1, largest_bin_first=False)
    groups: dict[Any, list[Any]] = {}
    for task in table.scan().plan_files():
        if task.file.file_size_in_bytes < file_bytes // 2 and task.file.spec_id == table.metadata.default_spec_id:
            groups.setdefault(task.file.partition, []).append(task)
    key = _lower_bound(table)
    bins: list[list[Any]] = []
    for tasks in groups.values():
        bins += packer.pack(sorted(tasks, key=key), _file_bytes)
    return [tasks for tasks in bins if len(tasks) > 1]


def _file_bytes(task: Any) -> int:
    return int(task.file.file_size_in_bytes)


def _lower_bound(table: Any) -> Callable[[Any], tuple[Any, ...]]:
    """A key that orders scan tasks by their first row; those without statistics come first."""
    from_bytes = import_pyiceberg("conversions").from_bytes
    fields = [table.schema().find_field(name) for name in ORDER if name in table.schema().column_names]

    def key(task: Any) -> tuple[Any, ...]:
        bounds: dict[int, bytes] = task.file.lower_bounds or {}
        return tuple(
            (True, from_bytes(each.field_type, bounds[each.field_id])) if each.field_id in bounds else (False,)
            for each in fields
        )

    return key


def _rewritten(table: Any, writer: TableWriter, tasks: Sequence[Any]) -> Rewrite | None:
    """The rows of small files in new ones; None = that makes no fewer files."""
    io: Any = import_pyiceberg("io.pyarrow")
    everything = import_pyiceberg("expressions").AlwaysTrue()
    scan = io.ArrowScan(table.metadata, table.io, table.schema(), everything)
    try:
        for task in tasks:
            check_pages(writer.plan.store, archived(task.file, table), NOT_MERGED)
            for batch in scan.to_record_batches([task]):
                writer.write(batch.select(writer.plan.schema.names).cast(writer.plan.schema))
        files = writer.close()
    except BaseException:
        writer.discard()
        raise
    if len(files) >= len(tasks):
        writer.discard()
        return None
    return Rewrite(tuple(task.file for task in tasks), tuple(files))


def replace_files(
    target: IcebergTarget,
    rewrites: Sequence[Rewrite],
    store: FileStore,
    summary: dict[str, str],
    changes: Callable[[Any], dict[str, str]] | None = None,
) -> bool:
    """Replace files in one commit.

    Args:
        target: the table.
        rewrites: the files; the new ones are deleted if nothing is committed.
        store: of the new files.
        summary: what the snapshot shows in the table's history.
        changes: the properties that the commit sets, by the version that it is based on.

    Returns:
        Whether it was committed; if not, another writer has replaced some of the files meanwhile.

    Raises:
        StateError: the table has delete files.
        UnavailableError: other writers committed first `MOST_CONFLICTS` times in a row.
    """
    missing = import_pyiceberg("exceptions").ValidationException

    def attempt(table: Any) -> None:
        target.check_no_deletes(table)
        transaction = without_retries(table).transaction()
        if changes is not None:
            transaction.set_properties(changes(table))
        with transaction.update_snapshot(snapshot_properties=summary).overwrite() as replaced:
            for rewrite in rewrites:
                for old in rewrite.old:
                    replaced.delete_data_file(old)
                for new in rewrite.new:
                    replaced.append_data_file(entry(new, table))
        transaction.commit_transaction()
        sync_version(table)

    try:
        _until_committed(target, attempt)
    except (missing, StateError, UnavailableError) as cause:  # nothing was committed
        store.delete([each.name for rewrite in rewrites for each in rewrite.new])
        if not isinstance(cause, missing):
            raise
        logger.warning("%s: another writer has replaced the same files first: %s", target.uri, cause)
        return False
    return True


def _until_committed(target: IcebergTarget, attempt: Callable[[Any], T]) -> T:
    """Run an attempt at a commit on the newest version, again as long as others commit first."""
    conflict = import_pyiceberg("exceptions").CommitFailedException
    for number in range(MOST_CONFLICTS):
        try:
            return attempt(target.open())
        except conflict:
            pause(number)
    raise too_many(target.uri)
