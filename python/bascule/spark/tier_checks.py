"""Compares an archive with the broker's log: whether both have the same history of a partition.

An archive of the same incarnation may still be one of another log: the log lost its end, or an older copy of it was
restored. Then the same offsets have other records, and a frame of both tiers would mix two histories.
"""

import logging
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from bascule.errors import BrokerError, CorruptionError, error
from bascule.lake.archived import Pinned, Wanted, read_archived
from bascule.lake.ranges import Source
from bascule.spark.connection import Broker, PartitionStatus, StatusRequest, StreamStatus
from bascule.spark.offsets import UNKNOWN, Key, Predecessor
from bascule.spark.options import SourceOptions
from bascule.spark.planning import Range
from bascule.spark.resolving import identify, partitions_of
from bascule.spark.tiers import Archives, source_of

if TYPE_CHECKING:
    from bascule.lake.lake_table import LakeTable

logger = logging.getLogger("bascule.spark")

_REMEDY = "read one of the two histories with tier set to archive or to broker, and archive the stream to a new table"


def warn_of_earlier(options: SourceOptions, table: Pinned, status: StreamStatus) -> None:
    """Log the incarnations of a stream's partitions that the archive has and the broker does not. They are not read."""
    chosen = None if options.selection.assigned is None else status.partitions.keys()
    present = {part.incarnation for part in status.partitions.values()}
    earlier = sorted(table.incarnations(status.stream, chosen) - present)
    if earlier:
        logger.warning(
            "the archive of %s has records of earlier incarnations (%s), from before the stream was purged or deleted "
            "and created again; they are not read: to see them, read the table itself and filter by its column "
            "incarnation",
            *(status.stream, ", ".join(map(str, earlier))),
        )


def check_ends(
    options: SourceOptions, broker: Broker, parts: Mapping[Key, PartitionStatus], archives: Archives
) -> None:
    """Compare the ends of the archive with the broker's, in reads of both tiers.

    The broker is asked again if the archive ends beyond it: an archiver may have committed newer records meanwhile.

    Args:
        options: of the read.
        broker: of the read.
        parts: partitions as the broker had them before the archive was opened.
        archives: of the read.

    Raises:
        StateError: `history_changed`, if the archive has records beyond a high watermark.
    """
    streams = {source.stream for source, *_ in _beyond(parts, archives)}
    if options.tier == "archive" or not streams:
        return
    later = partitions_of(broker.status([StatusRequest(stream) for stream in sorted(streams)]))
    for source, end, part in _beyond(later, archives):
        raise _changed(
            f"the archive has {source} up to offset {end}, which is beyond the high watermark {part.high_watermark}: "
            "an older copy of the log was restored, or its end was lost; if the leader has just changed, repeat the "
            f"read. Otherwise {_REMEDY}",
            {
                "stream": source.stream,
                "partition": source.partition,
                "offset": end,
                "high_watermark": part.high_watermark,
            },
        )


def _beyond(parts: Mapping[Key, PartitionStatus], archives: Archives) -> list[tuple[Source, int, PartitionStatus]]:
    """The partitions whose archive ends beyond the high watermark, each with the end of the archive."""
    return [
        (source, covered.end, part)
        for source, covered in sorted(archives.covered.items())
        if (part := parts.get((source.stream, source.partition))) is not None
        and part.incarnation == source.incarnation
        and covered.end > part.high_watermark
    ]


def check_cuts(
    options: SourceOptions,
    broker: Broker,
    pieces: Iterable[Range],
    archives: Archives,
    checked: set[tuple[Source, int]],
) -> None:
    """Compare the tiers where they are joined: the last archived record with the broker's record of its offset.

    Args:
        options: of the read.
        broker: asked once, if there is something to compare.
        pieces: from `tiers.divide`. Of those of the archive that are followed by the broker's, or end where the archive
            does, the partition is compared.
        archives: of the read.
        checked: partitions with the end of their archive that were compared before; those compared here are added.

    Raises:
        StateError: `history_changed`, if two records were received at different microseconds.
        CorruptionError: the file with the record is missing or damaged, and `onDataLoss` is not `skip`.
    """
    if options.tier == "archive":
        return
    found = {source_of(each): archives.covered[source_of(each)] for each in pieces if _is_cut(options, each, archives)}
    wanted = {source: covered.end for source, covered in found.items() if (source, covered.end) not in checked}
    if not wanted:
        return
    known = identify(broker, (((source.stream, source.partition), end) for source, end in wanted.items()))
    for source, end in sorted(wanted.items()):
        there = known.get(((source.stream, source.partition), end), Predecessor())
        table = (archives.opened[source.stream], archives.tables[source.stream])
        _check_last(options, table, Wanted(source, end - 1, end), there)
        checked.add((source, end))


def _is_cut(options: SourceOptions, piece: Range, archives: Archives) -> bool:
    """Whether a range of the archive is joined with the broker's records, which need not be in the same plan."""
    if piece.files is None:
        return False
    return options.tier == "broker" or piece.end == archives.covered[source_of(piece)].end


def _check_last(options: SourceOptions, table: tuple["LakeTable", Pinned], last: Wanted, found: Predecessor) -> None:
    """Compare one record. One that retention or compaction removed from the broker is unknown, and is accepted."""
    if found.timestamp_ns == UNKNOWN:
        return
    there = _timestamp_us(options, table, last)
    if there is None or there == found.timestamp_ns // 1000:
        return
    source, offset = last.source, last.first
    raise _changed(
        f"the log of {source} is not the one that was archived, for example an older copy was restored: the archive's "
        f"record {offset} was received {there} us after 1970, and the broker's {found.timestamp_ns // 1000} us; "
        f"{_REMEDY}",
        {"stream": source.stream, "partition": source.partition, "offset": offset},
    )


def _timestamp_us(options: SourceOptions, table: tuple["LakeTable", Pinned], last: Wanted) -> int | None:
    """When a record was received; None = the archive has no row of its offset."""
    pa: Any = import_module("pyarrow")
    opened, version = table
    try:
        batches = [batch for batch, _ in read_archived(opened.storage, version.files_of(last), last, ("timestamp",))]
    except CorruptionError:
        if options.on_data_loss != "skip":
            raise
        return None  # the read itself logs the file
    if not batches:
        return None
    return int(batches[0].column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())[0].as_py())


def _changed(message: str, details: dict[str, Any]) -> BrokerError:
    return error("history_changed", message, details)
