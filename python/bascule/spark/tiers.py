"""Tiered reads: old records from an archive in a lake, new ones from the broker, cut at one offset for each partition.

The cut is fixed when the read is planned (`docs/decisions/tiered-reads.md`). Both tiers have the same records under
the same offsets, so that another plan of the same range gives the same rows.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bascule.errors import BrokerError, CorruptionError, error
from bascule.lake.archived import ArchivedFile, Pinned, Wanted, read_archived
from bascule.lake.disk_errors import read_errors
from bascule.lake.options import ArchiveOptions
from bascule.lake.ranges import POSITION, Covered, Source
from bascule.lake.tables import open_table
from bascule.spark.connection import Broker, PartitionStatus, StatusRequest, StreamStatus
from bascule.spark.erased_rows import report_erased
from bascule.spark.options import SourceOptions
from bascule.spark.planning import Range
from bascule.spark.positions import Positions
from bascule.spark.resolving import checks, out_of_range
from bascule.spark.subjects import with_subject
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from bascule.lake.lake_table import LakeTable

logger = logging.getLogger("bascule.spark")

Opener = Callable[[ArchiveOptions, str], "LakeTable"]
"""Opens the table of a stream."""


@dataclass(frozen=True)
class Archives:
    """The archive of a read, at the versions that it is planned for.

    Attributes:
        tables: by stream; those that are there.
        covered: by partition and incarnation; only those that the archive has records of.
        opened: by stream; the tables themselves.
    """

    tables: Mapping[str, Pinned]
    covered: Mapping[Source, Covered]
    opened: "Mapping[str, LakeTable]"


def source_of(planned: Range) -> Source:
    """The partition of a range, with its incarnation."""
    return Source(planned.stream, planned.incarnation, planned.partition)


def sources_of(statuses: Mapping[str, StreamStatus]) -> list[Source]:
    """The partitions of streams, with their present incarnations."""
    return [
        Source(name, part.incarnation, number)
        for name, status in sorted(statuses.items())
        for number, part in sorted(status.partitions.items())
    ]


def pin(
    options: SourceOptions, sources: Iterable[Source], opener: Opener = open_table, *, may_lack: bool = False
) -> Archives:
    """The versions of the archive's tables that are there now.

    Args:
        options: of the read.
        sources: the partitions whose coverage is needed.
        opener: opens the table of a stream; a streaming read keeps its tables open.
        may_lack: a stream without a table is logged: it may be so new that nothing of it is archived yet.

    Raises:
        UsageError: the archive has no table of a stream, or a table lacks a column that is read.
        UnavailableError: the object store of a table refused the request or did not answer.
    """
    archive = options.archive
    assert archive is not None
    by_stream: dict[str, list[Source]] = {}
    for source in sources:
        by_stream.setdefault(source.stream, []).append(source)
    tables: dict[str, Pinned] = {}
    covered: dict[Source, Covered] = {}
    opened: dict[str, LakeTable] = {}
    for name, wanted in sorted(by_stream.items()):
        table = opener(archive, name)
        with read_errors(table.uri):
            found = table.found(wanted)
        if found is None:
            what = f"there is no table {table.uri}: archivePath names the archive of {name}"
            if not may_lack:
                raise usage(what)
            logger.warning("%s; its records are read from the broker", what)
            continue
        _check_columns(table, found, options.needed_columns)
        tables[name], opened[name] = found, table
        report_erased(table.uri, found)
        covered |= found.covered
    return Archives(tables, covered, opened)


def _check_columns(table: "LakeTable", found: Pinned, columns: tuple[str, ...]) -> None:
    missing = [name for name in (*columns, *POSITION) if name not in found.columns]
    if missing:
        there = ", ".join(sorted(found.columns))
        raise usage(f"the archive {table.uri} has no column {missing[0]}, which is read; it has {there}")


def both_tiers(
    options: SourceOptions, statuses: Mapping[str, StreamStatus], archives: Archives
) -> dict[str, StreamStatus]:
    """Statuses whose partitions begin and end where the tiers of a read with these starts do."""
    return {
        name: replace(
            status,
            partitions={
                number: extended(
                    options,
                    part,
                    archives.covered.get(Source(name, part.incarnation, number)),
                    _named_offset(options.starting, name, number),
                )
                for number, part in status.partitions.items()
            },
        )
        for name, status in statuses.items()
    }


def _named_offset(positions: Positions, stream: str, number: int) -> int | None:
    place = positions.of(stream, number)
    return place.value if place.kind == "offset" else None


def extended(
    options: SourceOptions, part: PartitionStatus, covered: Covered | None, place: int | None
) -> PartitionStatus:
    """A partition that begins and ends where the tiers of a read do.

    Args:
        options: of the read.
        part: as the broker has it.
        covered: what the archive has of it.
        place: the offset that is read next, where one is known: without one, an archive that is read only for what
            was lost adds nothing.
    """
    if options.tier == "archive":
        first, end = (covered.first, covered.end) if covered is not None else (0, 0)
        return replace(part, log_start=first, high_watermark=end, bytes=round(part.record_bytes * (end - first)))
    is_readable = options.tier == "auto" if place is None else covered is not None and place < covered.end
    if covered is None or not is_readable or covered.first >= part.log_start:
        return part
    size = round(part.record_bytes * (part.high_watermark - covered.first))
    return replace(part, log_start=covered.first, bytes=size)


def divide(options: SourceOptions, whole: Range, part: PartitionStatus | None, archives: Archives) -> list[Range]:
    """A range as one of the archive and one of the broker, each if it is not empty.

    Args:
        options: of the read. With `tier=broker`, only what retention has removed comes from the archive.
        whole: its start and end are those of the tiers.
        part: the partition as the broker has it; None = the broker does not have it, or has another incarnation.
        archives: of the read.

    Raises:
        StateError: `offset_out_of_range`, if retention removed records that the archive does not have, and
            `onDataLoss` is not `skip`.
    """
    covered = archives.covered.get(source_of(whole))
    if part is not None and part.incarnation != whole.incarnation:
        part = None
    if options.tier == "archive":
        return _of_archive_alone(options, whole, covered, archives)
    log_start = 0 if part is None else part.log_start
    start = whole.start
    if covered is not None and start < covered.first < min(log_start, whole.end):
        _lose(options, whole, (start, covered.first), part)
        start = covered.first
    border = _border(options, replace(whole, start=start), log_start, covered)
    found = [_archived(replace(whole, start=start, end=border), archives)] if border > start else []
    begin = min(max(border, log_start), whole.end)
    if begin > border:
        _lose(options, whole, (border, begin), part)
    return [*found, replace(whole, start=begin)] if begin < whole.end else found


def _border(options: SourceOptions, whole: Range, log_start: int, covered: Covered | None) -> int:
    """The end of the part of a range that comes from the archive; its start = none does."""
    if covered is None or not covered.first <= whole.start < covered.end:
        return whole.start
    end = min(whole.end, covered.end)
    return end if options.tier == "auto" else max(whole.start, min(end, log_start))


def _of_archive_alone(options: SourceOptions, whole: Range, covered: Covered | None, archives: Archives) -> list[Range]:
    first, end = (covered.first, covered.end) if covered is not None else (whole.end, whole.end)
    start, end = min(max(whole.start, first), whole.end), min(whole.end, end)
    kept = replace(whole, start=start, end=end)
    if (kept.start, kept.end) != (whole.start, whole.end):
        what = (
            f"of the offsets [{whole.start}, {whole.end}) of {whole.stream}/{whole.partition} the archive has "
            f"[{start}, {max(start, end)})"
        )
        if options.on_data_loss != "skip":
            raise error(
                "offset_out_of_range",
                f"{what}: the table was rolled back or replaced; restore it, or set onDataLoss to skip to read what "
                "is there",
                {"stream": whole.stream, "partition": whole.partition, "offset": whole.start},
            )
        logger.warning("%s; the others are skipped", what)
    return [_archived(kept, archives)] if kept.size > 0 else []


def _archived(part: Range, archives: Archives) -> Range:
    """A range with the files that have its rows."""
    wanted = Wanted(source_of(part), part.start, part.end)
    return replace(part, files=archives.tables[part.stream].files_of(wanted))


def _lose(options: SourceOptions, whole: Range, lost: tuple[int, int], part: PartitionStatus | None) -> None:
    """End the read, or log the offsets that neither tier has."""
    assert part is not None
    if options.on_data_loss != "skip":
        raise out_of_range((whole.stream, whole.partition), lost[0], part)
    logger.warning(
        "%s/%d: offsets [%d, %d) are neither in the archive nor in the broker; skipped",
        *(whole.stream, whole.partition, *lost),
    )


def divide_after_loss(options: SourceOptions, broker: Broker, failure: BrokerError, rest: Range) -> list[Range]:
    """What remains of a range of the broker, after retention has removed its beginning before it was read.

    Args:
        options: of the read, with `onDataLoss=archive`.
        broker: of the read.
        failure: of the broker.
        rest: what was not read yet.

    Raises:
        BrokerError: `failure`, if another loss was its cause; `history_changed`, if the archive has records of another
            log than the broker; `offset_out_of_range`, if the archive does not have the removed records either.
    """
    part = broker.status([StatusRequest(rest.stream, [rest.partition])])[rest.stream].partitions[rest.partition]
    if part.incarnation != rest.incarnation or rest.start >= part.log_start:
        raise failure
    archives = pin(options, [source_of(rest)])
    checks().check_ends(options, broker, {(rest.stream, rest.partition): part}, archives)
    found = divide(options, rest, part, archives)
    checks().check_cuts(options, broker, found, archives, set())
    logger.warning(
        "%s/%d: retention removed offsets from %d on before they were read; onDataLoss is archive: those before %d are "
        "read from there",
        *(rest.stream, rest.partition, rest.start, found[0].end),
    )
    return found


def read_from_archive(
    options: SourceOptions, whole: Range, files: tuple[ArchivedFile, ...], schema: Any
) -> Iterator[Any]:
    """Record batches of a range that comes from the archive, in order of offset.

    Raises:
        CorruptionError: a file is missing or damaged, and `onDataLoss` is not `skip`.
    """
    pa: Any = import_module("pyarrow")
    archive = options.archive
    assert archive is not None
    store = open_table(archive, whole.stream).storage
    names = schema.names if options.subject is None else list(dict.fromkeys((*schema.names, "subject")))
    left, start = list(files), whole.start
    while True:
        wanted = Wanted(source_of(whole), start, whole.end)
        try:
            for batch, after in read_archived(store, left, wanted, names):
                rows = batch if options.subject is None else with_subject(batch, options.subject)
                start = after
                if not rows.num_rows:
                    continue
                columns = [rows.column(field.name).cast(field.type) for field in schema]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
        except CorruptionError as failure:
            left = without_broken(options, left, failure)
        else:
            return


def without_broken(options: SourceOptions, files: list[ArchivedFile], failure: CorruptionError) -> list[ArchivedFile]:
    """The files that are left without the one that is missing or damaged.

    Raises:
        CorruptionError: `failure`, if `onDataLoss` is not `skip` or it is about another file.
    """
    broken = failure.details.get("file")
    left = [each for each in files if each.name != broken]
    if options.on_data_loss != "skip" or len(left) == len(files):
        raise failure
    logger.warning("%s; onDataLoss is skip: its records are left out", failure)
    return left
