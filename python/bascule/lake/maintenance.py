"""Compaction and vacuum of tables that queries write, and what a table covers. Safe while queries run."""

import logging
import math
import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from bascule.errors import StateError
from bascule.lake.commit import LakeTable
from bascule.lake.commit_record import STAGED
from bascule.lake.delta import DeltaTarget, covered_by
from bascule.lake.options import ArchiveOptions, codec_of
from bascule.lake.parquet import ParquetTarget
from bascule.lake.ranges import Covered, Source
from bascule.lake.tables import open_table
from bascule.spark.usage import usage

logger = logging.getLogger("bascule.lake")

DEFAULT_RETENTION_HOURS: Final = 168
LEAST_RETENTION_HOURS: Final = 1
"""Files younger than this may belong to a running micro-batch."""


def compact(options: ArchiveOptions, *, stream: str = "") -> dict[str, Any]:
    """Merge small files of a Delta table into files of about `options.file_bytes`.

    Rows and what the table records about epochs stay as they are; readers of older versions keep their files until
    `vacuum`. Queries may append meanwhile.

    Args:
        options: of the table.
        stream: whose table, when the path contains `{stream}`.

    Returns:
        Figures of deltalake, among them `numFilesAdded` and `numFilesRemoved`.

    Raises:
        UsageError: it is not a Delta table.
        StateError: there is no such table.
    """
    table = _opened(options, stream)
    if not isinstance(table, DeltaTarget):
        raise usage("compact is for Delta tables: a Parquet table cannot be compacted while it is read")
    return _compact(table, options)


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
        UsageError: `retention_hours` is below 1.
        StateError: there is no such table.
    """
    if retention_hours < LEAST_RETENTION_HOURS:
        raise usage(
            f"retention_hours is {retention_hours}: it must be at least {LEAST_RETENTION_HOURS}, because younger files "
            "may belong to a running micro-batch"
        )
    table = _opened(options, stream)
    if isinstance(table, DeltaTarget):
        found = table.open().vacuum(
            retention_hours=math.ceil(retention_hours), dry_run=dry_run, enforce_retention_duration=False, full=True
        )
        return sorted(str(name) for name in found)
    return _vacuum_staged(table, retention_hours, dry_run=dry_run)


def coverage(options: ArchiveOptions, sources: list[Source], *, stream: str = "") -> Mapping[Source, Covered]:
    """The offsets that a table covers, for those of `sources` that it has rows of.

    Args:
        options: of the table.
        sources: partitions with their incarnations.
        stream: whose table, when the path contains `{stream}`.

    Raises:
        StateError: there is no such table.
    """
    table = _opened(options, stream)
    if isinstance(table, DeltaTarget):
        opened = table.open()
        return {source: found for source in sources if (found := covered_by(opened, source)) is not None}
    record = table.newest()
    if record is None:
        return {}
    return {source: record.covered[source] for source in sources if source in record.covered}


def compact_if_due(table: LakeTable, options: ArchiveOptions, epoch: int) -> None:
    """Compact a Delta table after every `compact_every` epochs. The epoch is committed: a failure is only logged."""
    if not options.compact_every or (epoch + 1) % options.compact_every or not isinstance(table, DeltaTarget):
        return
    try:
        figures = _compact(table, options)
    except Exception:
        logger.warning("%s: compaction after epoch %d failed", table.storage.uri, epoch, exc_info=True)
        return
    logger.info("%s: compaction merged %s files", table.storage.uri, figures.get("numFilesRemoved"))


def _compact(table: DeltaTarget, options: ArchiveOptions) -> dict[str, Any]:
    deltalake: Any = import_module("deltalake")
    codec, level = codec_of(options.compression)
    properties = deltalake.WriterProperties(
        compression="UNCOMPRESSED" if codec == "none" else "LZ4_RAW" if codec == "lz4" else codec.upper(),
        compression_level=level,
    )
    return dict(table.open().optimize.compact(target_size=options.file_bytes, writer_properties=properties))


def _opened(options: ArchiveOptions, stream: str) -> DeltaTarget | ParquetTarget:
    if options.has_table_per_stream and not stream:
        raise usage("the path contains {stream}: name the stream whose table is meant")
    table = open_table(options, stream)
    if not isinstance(table, (DeltaTarget, ParquetTarget)) or not table.exists():
        raise StateError("failed_precondition", f"there is no {options.table_format} table in {table.storage.uri}")
    return table


def _vacuum_staged(table: ParquetTarget, retention_hours: float, *, dry_run: bool) -> list[str]:
    table.finish()
    before = time.time() - retention_hours * 3600
    old = [name for name, changed in table.storage.entries(STAGED) if changed < before]
    if not dry_run:
        table.storage.delete(old)
    return old
