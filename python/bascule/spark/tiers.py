"""Tiered reads: old records from an archive in a lake, new ones from the broker, cut at one offset for each partition.

The cut is fixed when the read is planned (`docs/decisions/tiered-reads.md`). Both tiers have the same records under
the same offsets, so that another plan of the same range gives the same rows.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from bascule.errors import CorruptionError
from bascule.lake.archived import ArchivedFile, Pinned, Wanted, read_archived
from bascule.lake.options import ArchiveOptions
from bascule.lake.ranges import Covered, Source
from bascule.lake.tables import open_table
from bascule.spark.connection import PartitionStatus, StreamStatus
from bascule.spark.offsets import Key
from bascule.spark.options import SourceOptions
from bascule.spark.planning import Range
from bascule.spark.resolving import out_of_range
from bascule.spark.usage import usage

logger = logging.getLogger("bascule.spark")


@dataclass(frozen=True)
class Archives:
    """The archive of a read, at the versions that it is planned for.

    Attributes:
        tables: by stream.
        covered: by partition; only those that the archive has records of.
    """

    tables: Mapping[str, Pinned]
    covered: Mapping[Key, Covered]


def pin(options: SourceOptions, statuses: Mapping[str, StreamStatus]) -> Archives:
    """The versions of the archive's tables that are there now.

    Raises:
        UsageError: the archive has no table of a stream, or a table lacks a column that is read.
    """
    archive = options.archive
    assert archive is not None
    tables: dict[str, Pinned] = {}
    covered: dict[Key, Covered] = {}
    for name, status in sorted(statuses.items()):
        sources = {Source(name, part.incarnation, number): (name, number) for number, part in status.partitions.items()}
        tables[name] = _pinned(archive, name, list(sources), options.columns)
        covered |= {sources[source]: each for source, each in tables[name].covered.items()}
    return Archives(tables, covered)


def _pinned(archive: ArchiveOptions, stream: str, sources: list[Source], columns: tuple[str, ...]) -> Pinned:
    table = open_table(archive, stream)
    if not table.exists():
        raise usage(f"there is no {archive.table_format} table {table.uri}: archivePath names the archive of {stream}")
    found = table.pinned(sources)
    missing = [name for name in (*columns, "stream", "incarnation", "partition", "offset") if name not in found.columns]
    if missing:
        there = ", ".join(sorted(found.columns))
        raise usage(f"the archive {table.uri} has no column {missing[0]}, which is read; it has {there}")
    return found


def both_tiers(
    options: SourceOptions, statuses: Mapping[str, StreamStatus], archives: Archives
) -> dict[str, StreamStatus]:
    """Statuses whose partitions begin and end where the tiers of the read do."""
    return {
        name: replace(
            status,
            partitions={
                number: _extended(options, part, archives.covered.get((name, number)))
                for number, part in status.partitions.items()
            },
        )
        for name, status in statuses.items()
    }


def _extended(options: SourceOptions, part: PartitionStatus, covered: Covered | None) -> PartitionStatus:
    if options.tier == "archive":
        first, end = (covered.first, covered.end) if covered is not None else (0, 0)
        return replace(part, log_start=first, high_watermark=end)
    if covered is None:
        return part
    return replace(part, log_start=min(part.log_start, covered.first))


def divide(options: SourceOptions, whole: Range, part: PartitionStatus, archives: Archives) -> list[Range]:
    """A range as one of the archive and one of the broker, each if it is not empty.

    Args:
        options: of the read.
        whole: its start and end are those of the tiers.
        part: the partition as the broker has it.
        archives: of the read.

    Raises:
        StateError: `offset_out_of_range`, if retention removed records that the archive does not have yet and
            `onDataLoss` is `fail`.
    """
    covered = archives.covered.get((whole.stream, whole.partition))
    border = whole.start
    if covered is not None and covered.first <= whole.start < covered.end:
        border = min(whole.end, covered.end)
    found: list[Range] = []
    if border > whole.start:
        wanted = Wanted(Source(whole.stream, whole.incarnation, whole.partition), whole.start, border)
        files = archives.tables[whole.stream].files_of(wanted)
        found.append(replace(whole, end=border, files=files))
    if border == whole.end:
        return found
    start = border
    if start < part.log_start:
        if options.on_data_loss == "fail":
            raise out_of_range((whole.stream, whole.partition), start, part)
        start = min(part.log_start, whole.end)
        logger.warning(
            "%s/%d: offsets [%d, %d) are neither in the archive nor in the broker; skipped",
            *(whole.stream, whole.partition, border, start),
        )
    return [*found, replace(whole, start=start)] if start < whole.end else found


def read_from_archive(
    options: SourceOptions, whole: Range, files: tuple[ArchivedFile, ...], schema: Any
) -> Iterator[Any]:
    """Record batches of a range that comes from the archive, in order of offset.

    Raises:
        CorruptionError: a file is missing or damaged, and `onDataLoss` is `fail`.
    """
    pa: Any = import_module("pyarrow")
    archive = options.archive
    assert archive is not None
    store = open_table(archive, whole.stream).storage
    left, start = list(files), whole.start
    while True:
        wanted = Wanted(Source(whole.stream, whole.incarnation, whole.partition), start, whole.end)
        try:
            for batch, after in read_archived(store, left, wanted, schema.names):
                columns = [batch.column(field.name).cast(field.type) for field in schema]
                start = after
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        except CorruptionError as failure:
            broken = failure.details.get("file")
            if options.on_data_loss != "skip" or broken not in {each.name for each in left}:
                raise
            logger.warning("%s; onDataLoss is skip: its records are left out", failure)
            left = [each for each in left if each.name != broken]
        else:
            return
