"""Compaction and vacuum of tables that queries write, and what a table covers. Safe while queries run."""

import logging
from collections.abc import Mapping
from typing import Any, Final

from bascule.errors import StateError
from bascule.lake.lake_table import LakeTable
from bascule.lake.options import ArchiveOptions
from bascule.lake.ranges import Covered, Source
from bascule.lake.tables import open_table
from bascule.spark.usage import usage

logger = logging.getLogger("bascule.lake")

DEFAULT_RETENTION_HOURS: Final = 168
LEAST_RETENTION_HOURS: Final = 1
"""Files younger than this may belong to a running micro-batch."""


def compact(options: ArchiveOptions, *, stream: str = "") -> dict[str, Any]:
    """Merge small files of a Delta or Iceberg table into files of about `options.file_bytes`.

    Rows and what the table records about epochs stay as they are; readers of older versions keep their files until
    `vacuum`. Queries may append meanwhile. Snapshots of an Iceberg table that are older than its property
    `history.expire.max-snapshot-age-ms`, 5 days without it, are expired.

    Args:
        options: of the table.
        stream: whose table, when the path contains `{stream}`.

    Returns:
        Figures, among them `numFilesAdded` and `numFilesRemoved`.

    Raises:
        UsageError: it is a Parquet table.
        CorruptionError: a file that is to be merged is missing, or a page of it fails its checksum.
        StateError: there is no such table, or it has delete files of Iceberg.
        UnavailableError: other writers committed first many times in a row.
    """
    return open_existing(options, stream).compact()


def vacuum(
    options: ArchiveOptions,
    *,
    stream: str = "",
    retention_hours: float = DEFAULT_RETENTION_HOURS,
    dry_run: bool = False,
) -> list[str]:
    """Delete files that no reader and no query needs: of failed attempts, and of versions before a compaction.

    Args:
        options: of the table.
        stream: whose table, when the path contains `{stream}`.
        retention_hours: only files that are older, at least 1: longer than any micro-batch of a running query takes,
            and than any reader of an older version reads. A query whose files are deleted nevertheless fails before its
            commit, and repeats the micro-batch after a restart.
        dry_run: delete nothing.

    Returns:
        Names of the files, relative to the table.

    Raises:
        UsageError: `retention_hours` is below 1, or it is an Iceberg table, whose files its engine removes.
        StateError: there is no such table.
    """
    if retention_hours < LEAST_RETENTION_HOURS:
        raise usage(
            f"retention_hours is {retention_hours}: it must be at least {LEAST_RETENTION_HOURS}, because younger files "
            "may belong to a running micro-batch"
        )
    return open_existing(options, stream).vacuum(retention_hours, dry_run=dry_run)


def expire(options: ArchiveOptions, *, stream: str = "", retention_hours: float = DEFAULT_RETENTION_HOURS) -> list[int]:
    """Expire old snapshots of an Iceberg table, except those that a branch or a tag names.

    This changes metadata only: remove the files that no snapshot names any more with the engine that owns the table.
    What the table records about epochs stays.

    Args:
        options: of the table.
        stream: whose table, when the path contains `{stream}`.
        retention_hours: only snapshots that are older: longer than any reader of an older version reads.

    Returns:
        The ids of the expired snapshots.

    Raises:
        UsageError: it is not an Iceberg table.
        StateError: there is no such table.
        UnavailableError: other writers committed first many times in a row.
    """
    from bascule.lake.iceberg import maintenance, target  # noqa: PLC0415 - the package may be missing

    table = open_existing(options, stream)
    if not isinstance(table, target.IcebergTarget):
        raise usage("expire is for Iceberg tables: vacuum deletes files of Delta and Parquet tables")
    return maintenance.expire(table, retention_hours)


def coverage(options: ArchiveOptions, sources: list[Source], *, stream: str = "") -> Mapping[Source, Covered]:
    """The offsets that a table covers, for those of `sources` that it has rows of.

    Args:
        options: of the table.
        sources: partitions with their incarnations.
        stream: whose table, when the path contains `{stream}`.

    Raises:
        StateError: there is no such table.
    """
    return open_existing(options, stream).covered(sources)


def compact_if_due(table: LakeTable, options: ArchiveOptions, epoch: int) -> None:
    """Compact a table after every `compact_every` epochs. The epoch is committed: a failure is only logged."""
    if not options.compact_every or (epoch + 1) % options.compact_every:
        return
    try:
        figures = table.compact()
    except Exception:
        logger.warning("%s: compaction after epoch %d failed", table.uri, epoch, exc_info=True)
        return
    logger.info("%s: compaction merged %s files", table.uri, figures.get("numFilesRemoved"))


def open_existing(options: ArchiveOptions, stream: str) -> LakeTable:
    """The table of a stream, or the only one.

    Raises:
        UsageError: the path contains `{stream}`, and none is named, or the other way round.
        StateError: there is no such table.
    """
    if options.has_table_per_stream and not stream:
        raise usage("the path contains {stream}: name the stream whose table is meant")
    if stream and not options.has_table_per_stream:
        raise usage(
            f"stream is {stream!r}, and the path {options.path!r} has no {{stream}}, so it names one table of all its "
            "streams: leave stream out, or give the path that the archive was written with"
        )
    table = open_table(options, stream)
    if not table.exists():
        what = f"there is no {options.table_format} table in {table.uri}{f' for stream {stream}' if stream else ''}"
        raise StateError("failed_precondition", f"{what}: correct the path, or name its format")
    return table
