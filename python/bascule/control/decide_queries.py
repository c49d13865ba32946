"""Which parts of a query's report count. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bascule.control.dataplane import PartitionStatus
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


class Here(NamedTuple):
    """This broker: its id, and the partitions that are open in it, by incarnation."""

    broker_id: str
    status: Mapping[int, PartitionStatus]


def judge_report(
    state: State, namespace: str, reported: Positions, here: Here, held: Mapping[str, Sequence[Position]] | None
) -> QueryDecision:
    """Decide about each stream and partition of a report: the others are taken when one is refused.

    Args:
        state: the state.
        namespace: of the streams.
        reported: what is reported.
        here: the broker that holds the records.
        held: for a query that holds records: by stream, where it stands as far as it is known; else None.
    """
    taken: dict[str, tuple[Position, ...] | None] = {}
    refused: list[RefusedPosition] = []
    for name, given in reported.items():
        stream = state.stream(namespace, name)
        if stream is None:
            gone = Rejection(RejectionCode.STREAM_NOT_FOUND, f"stream {namespace}/{name} does not exist")
            refused.append(RefusedPosition(name, None, gone))
            continue
        positions = given or (held or {}).get(name)
        judged = [(each, _refusal(stream, each, here, holds=held is not None)) for each in positions or ()]
        refused += [RefusedPosition(name, each.partition, refusal) for each, refusal in judged if refusal is not None]
        good = tuple(each for each, refusal in judged if refusal is None)
        if positions is None or good:
            taken[name] = good or None
    return QueryDecision(taken, tuple(refused))


def _refusal(stream: Stream, position: Position, here: Here, *, holds: bool) -> Rejection | None:
    place = f"partition {position.partition} of stream {stream.name}"
    if not 0 <= position.partition < len(stream.partitions):
        return Rejection(RejectionCode.PARTITION_NOT_FOUND, f"{place} does not exist")
    known = stream.partitions[position.partition]
    if known.incarnation != position.incarnation:
        text = f"{place} has incarnation {known.incarnation}, not {position.incarnation}: it was created again"
        return Rejection(RejectionCode.INCARNATION_CHANGED, text)
    status = here.status.get(position.incarnation)
    if holds and (status is None or known.leader != here.broker_id):
        text = f"{place} is paused" if known.paused else f"{place} is not led by this broker, or not open yet"
        return Rejection(RejectionCode.NOT_OPEN, f"{text}: nothing is held there")
    if position.next < 0 or (status is not None and position.next > status.high_watermark):
        end = "the high watermark" if status is None else f"the high watermark {status.high_watermark}"
        return Rejection(RejectionCode.INVALID, f"offset {position.next} is not between 0 and {end} of {place}")
    return None
