"""What archives have: which reports count. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from bascule.control.dataplane import PartitionStatus
from bascule.metadata import (
    DEFAULT_NAMESPACE,
    ArchivedEnd,
    Partition,
    ReportArchived,
    State,
    Stream,
    StreamKey,
    VoidArchived,
)
from bascule.metadata.apply_archives import archive_conflict
from bascule.metadata.rejection import Rejection, RejectionCode


class ArchivedRange(NamedTuple):
    """An archive has every record of a partition with an offset in `[first, end)`."""

    partition: int
    incarnation: int
    first: int
    end: int


class ArchiveReport(NamedTuple):
    """A report about a stream."""

    stream: StreamKey
    archive: str
    ranges: tuple[ArchivedRange, ...]
    take_over: bool = False


class RefusedRange(NamedTuple):
    """A part of a report that is not stored."""

    partition: int
    rejection: Rejection


class ArchiveDecision(NamedTuple):
    """What becomes of a report.

    Attributes:
        command: stores the parts that are accepted, and forgets what a refused one shows to be lost; None = nothing
            changes.
        refused: the others.
    """

    command: ReportArchived | None
    refused: tuple[RefusedRange, ...] = ()


def report_archived(
    state: State, report: ArchiveReport, status: Mapping[int, PartitionStatus]
) -> ArchiveDecision | Rejection:
    """Decide about each partition of a report: one that is refused does not keep the others from being stored.

    Args:
        state: the state.
        report: what is reported.
        status: of the partitions that are open here, by incarnation.

    Returns:
        The decision; a rejection if there is no such stream.
    """
    namespace, name = report.stream.namespace, report.stream.name
    stream = state.stream(namespace, name)
    if stream is None:
        there = name if namespace == DEFAULT_NAMESPACE else f"{namespace}/{name}"
        return Rejection(RejectionCode.STREAM_NOT_FOUND, f"stream {there} does not exist")
    found = [(item, _judged(stream, report, item, status.get(item.incarnation))) for item in report.ranges]
    refused = tuple(RefusedRange(item.partition, refusal) for item, refusal in found if refusal is not None)
    accepted = [item for item, refusal in found if refusal is None]
    lost = [item for item, refusal in found if refusal is not None and _has_lost(stream, report, item, refusal)]
    if not lost and all(_is_known(stream.partitions[item.partition], report, item) for item in accepted):
        return ArchiveDecision(None, refused)
    ends = [ArchivedEnd(item.partition, item.incarnation, item.end) for item in accepted]
    ends += [ArchivedEnd(item.partition, item.incarnation, 0) for item in lost]
    command = ReportArchived(
        namespace, name, stream.incarnation, report.archive, tuple(ends), take_over=report.take_over
    )
    return ArchiveDecision(command, refused)


def _has_lost(stream: Stream, report: ArchiveReport, item: ArchivedRange, refusal: Rejection) -> bool:
    """Whether the archive had reported records that it does not have any more: its table was made again."""
    if refusal.code is not RejectionCode.ARCHIVE_GAP:
        return False
    known = stream.partitions[item.partition]
    return known.archive == report.archive and known.archived_to > 0


def _is_known(known: Partition, report: ArchiveReport, item: ArchivedRange) -> bool:
    return known.archive == report.archive and item.end == known.archived_to


def _judged(
    stream: Stream, report: ArchiveReport, item: ArchivedRange, here: PartitionStatus | None
) -> Rejection | None:
    """Why a partition of a report is refused."""
    place = f"partition {item.partition} of stream {stream.name}"
    if not 0 <= item.partition < len(stream.partitions):
        return Rejection(RejectionCode.PARTITION_NOT_FOUND, f"{place} does not exist")
    known = stream.partitions[item.partition]
    if known.incarnation != item.incarnation:
        text = f"{place} has incarnation {known.incarnation}, not {item.incarnation}"
        return Rejection(RejectionCode.INCARNATION_CHANGED, f"{text}: it was purged or created again")
    if refusal := _range_refusal(place, item, here):
        return refusal
    return None if report.take_over else archive_conflict(stream.name, known, report.archive)


def _range_refusal(place: str, item: ArchivedRange, here: PartitionStatus | None) -> Rejection | None:
    if here is None:
        return Rejection(RejectionCode.NOT_OPEN, f"{place} is not open here: it is paused, or another broker leads it")
    if not 0 <= item.first <= item.end <= here.high_watermark:
        text = f"offsets {item.first} to {item.end} of {place} are not between 0 and the high watermark"
        return Rejection(RejectionCode.INVALID, f"{text} {here.high_watermark}")
    # A table that is whole begins at or below the log start, which only grows. An earlier report under this name is no
    # proof: the table may have been made again.
    if item.first > here.log_start:
        text = f"the archive begins at offset {item.first} of {place} and lacks those from {here.log_start} on"
        remedy = "archive from the earliest record, or trim the stream first"
        return Rejection(RejectionCode.ARCHIVE_GAP, f"{text}: {remedy}")
    return None


def void_archived(state: State, incarnation: int, archived_to: int) -> VoidArchived | None:
    """The command that forgets what an archive has of a partition; None = it is gone, or other by now."""
    for stream in state.streams.values():
        for partition in stream.partitions:
            if partition.incarnation == incarnation and partition.archived_to == archived_to:
                place = (stream.namespace, stream.name, stream.incarnation, partition.number, incarnation)
                return VoidArchived(*place, archived_to)
    return None
