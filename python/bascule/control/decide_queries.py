"""Which parts of a query's report count. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bascule.control.controller import PartitionStatus
from bascule.control.query_table import Position
from bascule.metadata import State, Stream
from bascule.metadata.rejection import Rejection, RejectionCode

Positions = Mapping[str, tuple[Position, ...] | None]
"""By stream; None = as reported before."""


class RefusedPosition(NamedTuple):
    """A part of a report that is not taken; without a partition all of the stream."""

    stream: str
    partition: int | None
    rejection: Rejection


class QueryDecision(NamedTuple):
    """What becomes of a report: what is taken of each stream, and the parts that are not."""

    streams: dict[str, tuple[Position, ...] | None]
    refused: tuple[RefusedPosition, ...] = ()


def judge_report(
    state: State, namespace: str, reported: Positions, status: Mapping[int, PartitionStatus]
) -> QueryDecision:
    """Decide about each stream and partition of a report: the others are taken when one is refused.

    Args:
        state: the state.
        namespace: of the streams.
        reported: what is reported.
        status: of the partitions that are open here, by incarnation.
    """
    taken: dict[str, tuple[Position, ...] | None] = {}
    refused: list[RefusedPosition] = []
    for name, positions in reported.items():
        stream = state.stream(namespace, name)
        if stream is None:
            gone = Rejection(RejectionCode.STREAM_NOT_FOUND, f"stream {namespace}/{name} does not exist")
            refused.append(RefusedPosition(name, None, gone))
            continue
        found = _refused(stream, positions or (), status)
        refused += [RefusedPosition(name, number, rejection) for number, rejection in found.items()]
        good = tuple(each for each in positions or () if each.partition not in found)
        if positions is None or good:
            taken[name] = None if positions is None else good
    return QueryDecision(taken, tuple(refused))


def _refused(
    stream: Stream, positions: Sequence[Position], status: Mapping[int, PartitionStatus]
) -> dict[int, Rejection]:
    """Why positions are refused, by partition."""
    found = {each.partition: _refusal(stream, each, status.get(each.incarnation)) for each in positions}
    return {number: rejection for number, rejection in found.items() if rejection is not None}


def _refusal(stream: Stream, position: Position, here: PartitionStatus | None) -> Rejection | None:
    place = f"partition {position.partition} of stream {stream.name}"
    if not 0 <= position.partition < len(stream.partitions):
        return Rejection(RejectionCode.PARTITION_NOT_FOUND, f"{place} does not exist")
    known = stream.partitions[position.partition]
    if known.incarnation != position.incarnation:
        text = f"{place} has incarnation {known.incarnation}, not {position.incarnation}: it was created again"
        return Rejection(RejectionCode.INCARNATION_CHANGED, text)
    if position.next < 0 or (here is not None and position.next > here.high_watermark):
        end = "the high watermark" if here is None else f"the high watermark {here.high_watermark}"
        return Rejection(RejectionCode.INVALID, f"offset {position.next} is not between 0 and {end} of {place}")
    return None
