"""What is replayed: for each partition of the source one lane, and how far each epoch reads it. Pure.

The records of a lane are written in order, by one task of each epoch: so records of one key keep their order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bascule.lake.ranges import Source
from bascule.spark.replaying.options import Bounds


@dataclass(frozen=True)
class Part:
    """Offsets `[first, end)` of one incarnation of a partition, not empty."""

    source: Source
    first: int
    end: int


@dataclass(frozen=True)
class Lane:
    """One partition of the source: its incarnations in order, the oldest first."""

    partition: int
    parts: tuple[Part, ...]

    @property
    def start(self) -> "Position":
        """Before its first record."""
        return Position(0, self.parts[0].first)

    @property
    def end(self) -> "Position":
        """After its last record."""
        return Position(len(self.parts), 0)

    def normal(self, part: int, offset: int) -> "Position":
        """The position at an offset of a part; at its end that of the next part."""
        if part < len(self.parts) and offset < self.parts[part].end:
            return Position(part, offset)
        following = part + 1
        return Position(following, self.parts[following].first) if following < len(self.parts) else self.end

    def between(self, start: "Position", end: "Position") -> list[tuple[int, Part]]:
        """The parts from one position to another, each with its number."""
        found: list[tuple[int, Part]] = []
        for number, part in enumerate(self.parts):
            first = start.offset if number == start.part else part.first
            last = end.offset if number == end.part else part.end
            if start.part <= number <= end.part and first < last:
                found.append((number, replace(part, first=first, end=last)))
        return found


@dataclass(frozen=True, order=True)
class Position:
    """The next record of a lane: number of its part, and offset there."""

    part: int
    offset: int


@dataclass(frozen=True)
class Share:
    """The bounds of one lane in one epoch: rows and bytes, at least one row."""

    rows: int
    bytes: int


def lanes_of(found: Iterable[tuple[Source, int, int]], bounds: Bounds) -> tuple[Lane, ...]:
    """The lanes of sources with their offsets `[first, end)`, cut to `bounds`; those without records are left out."""
    parts: dict[int, list[Part]] = {}
    for source, first, end in sorted(found):
        low = first if bounds.first is None else max(first, bounds.first)
        high = end if bounds.end is None else min(end, bounds.end)
        if low < high:
            parts.setdefault(source.partition, []).append(Part(source, low, high))
    return tuple(Lane(partition, tuple(each)) for partition, each in sorted(parts.items()))


def share_of(lanes: int, rows: int, size: int) -> Share:
    """The bounds of each of some lanes, so that all together keep to those of an epoch."""
    return Share(max(rows // lanes, 1), max(size // lanes, 1))


def to_document(lanes: Sequence[Lane]) -> list[dict[str, Any]]:
    """Lanes as JSON."""
    return [
        {
            "partition": lane.partition,
            "parts": [
                {
                    "stream": part.source.stream,
                    "incarnation": part.source.incarnation,
                    "first": part.first,
                    "end": part.end,
                }
                for part in lane.parts
            ],
        }
        for lane in lanes
    ]


def from_document(document: Sequence[dict[str, Any]]) -> tuple[Lane, ...]:
    """Lanes from JSON, as `to_document` made it."""
    return tuple(_lane(each) for each in document)


def _lane(document: dict[str, Any]) -> Lane:
    number, parts = int(document["partition"]), document["parts"]
    return Lane(number, tuple(_part(number, each) for each in parts))


def _part(partition: int, document: dict[str, Any]) -> Part:
    first, end, incarnation = (int(str(document[name])) for name in ("first", "end", "incarnation"))
    return Part(Source(str(document["stream"]), incarnation, partition), first, end)
