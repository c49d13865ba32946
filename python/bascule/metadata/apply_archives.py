"""The part of `apply` about what archives have. Pure."""

from dataclasses import replace

from bascule.metadata.commands import ReportArchived, VoidArchived
from bascule.metadata.model import Partition, State, Stream, StreamKey
from bascule.metadata.rejection import MAX_ARCHIVE_BYTES, RejectedError, Rejection, RejectionCode, invalid, rejected


def report(state: State, _: int, command: ReportArchived) -> State:
    """Set up to where an archive has the records; with `take_over` replace it."""
    if not 1 <= len(command.archive.encode()) <= MAX_ARCHIVE_BYTES:
        raise invalid(f"the name of an archive has {len(command.archive.encode())} bytes, not 1 to {MAX_ARCHIVE_BYTES}")
    stream = _find(state, command)
    partitions = list(stream.partitions)
    for item in command.partitions:
        known = _partition(stream, item.number, item.incarnation)
        if item.end < 0:
            raise invalid(f"offset {item.end} is below 0")
        if not command.take_over and (conflict := archive_conflict(stream.name, known, command.archive)):
            raise RejectedError(conflict)
        partitions[item.number] = replace(known, archived_to=item.end, archive=command.archive)
    return _put(state, replace(stream, partitions=tuple(partitions)))


def archive_conflict(name: str, known: Partition, archive: str) -> Rejection | None:
    """Why an archive that does not take over cannot report about a partition of a stream: another one does."""
    if known.archive in ("", archive):
        return None
    text = (
        f"partition {known.number} of stream {name} is archived by {known.archive}, which has it up to offset "
        f"{known.archived_to}: let one archive report, or take over (reportTakeOver)"
    )
    return Rejection(RejectionCode.ARCHIVE_CONFLICT, text)


def void(state: State, _: int, command: VoidArchived) -> State:
    """Forget up to where an archive has the records, unless it was reported again since."""
    stream = _find(state, command)
    known = _partition(stream, command.partition, command.partition_incarnation)
    if known.archived_to != command.archived_to:
        return state
    partitions = list(stream.partitions)
    partitions[command.partition] = replace(known, archived_to=0)
    return _put(state, replace(stream, partitions=tuple(partitions)))


def _find(state: State, command: ReportArchived | VoidArchived) -> Stream:
    stream = state.stream(command.namespace, command.name)
    if stream is None or stream.incarnation != command.incarnation:
        text = f"stream {command.namespace}/{command.name} does not exist"
        raise rejected(RejectionCode.STREAM_NOT_FOUND, text)
    return stream


def _partition(stream: Stream, number: int, incarnation: int) -> Partition:
    if not 0 <= number < len(stream.partitions):
        text = f"partition {number} of stream {stream.name} does not exist"
        raise rejected(RejectionCode.PARTITION_NOT_FOUND, text)
    known = stream.partitions[number]
    if known.incarnation != incarnation:
        text = f"partition {number} of stream {stream.name} has incarnation {known.incarnation}, not {incarnation}"
        raise rejected(RejectionCode.INCARNATION_CHANGED, f"{text}: it was purged or created again")
    return known


def _put(state: State, stream: Stream) -> State:
    return replace(state, streams={**state.streams, StreamKey(stream.namespace, stream.name): stream})
