"""Turns ranges of offsets into Spark partitions: large ranges are split, small ones are packed.

Pure: the same ranges and packing always give the same partitions, so that a replayed micro-batch has the same tasks.
One Python task costs about 27 ms beside its rows, so small ranges share one.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from bascule.lake.archived import ArchivedFile

SMALL_TASK: Final = 20_000
"""Number of records whose reading takes as long as starting a task: the default plan makes no smaller tasks."""
LARGE_TASK: Final = 5_000_000
"""Number of records above which the default plan makes more tasks than slots, so that a lost task costs less."""
TASKS_PER_SLOT: Final = 3
"""Default maximum number of tasks per slot."""


@dataclass(frozen=True, order=True)
class Range:
    """Offsets `[start, end)` of one partition.

    `history`: an offset and the link of the batch before it, by which the broker can tell that its log is still the one
    that was planned for; None = unknown.
    `files`: of the archive, in which the records are; None = the broker has them.
    """

    stream: str
    partition: int
    start: int
    end: int
    incarnation: int
    history: tuple[int, int] | None = field(default=None, compare=False)
    files: "tuple[ArchivedFile, ...] | None" = field(default=None, compare=False)

    @property
    def size(self) -> int:
        """Number of offsets."""
        return self.end - self.start


@dataclass(frozen=True)
class Packing:
    """Options for the number of Spark partitions. 0 = not set, except for `slots`."""

    slots: int
    min_partitions: int = 0
    max_partitions: int = 0
    max_records: int = 0

    def to_document(self) -> dict[str, int]:
        """The part of an offset document."""
        return {_camel(name): value for name, value in sorted(asdict(self).items())}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Packing":
        """Decode the part of an offset document."""
        return cls(
            slots=int(document["slots"]),
            min_partitions=int(document["minPartitions"]),
            max_partitions=int(document["maxPartitions"]),
            max_records=int(document["maxRecords"]),
        )


def plan(ranges: Iterable[Range], packing: Packing) -> list[tuple[Range, ...]]:
    """Spark partitions as tuples of ranges, none empty; each tuple and the list are in order.

    `maxRecordsPerPartition` goes before `maxPartitions`, and that before `minPartitions`.
    """
    wanted = sorted(r for r in ranges if r.size > 0)
    total = sum(r.size for r in wanted)
    if not total:
        return []
    tasks = _tasks(total, packing)
    pieces = [piece for r in wanted for piece in _split(r, tasks, total, packing.max_records)]
    bins = min(len(pieces), max(tasks, _ceil(total, packing.max_records) if packing.max_records else 0))
    if bins == len(pieces):
        return [(piece,) for piece in pieces]
    return _pack(pieces, bins, packing.max_records or total)


def plan_whole(ranges: Iterable[Range], packing: Packing) -> list[tuple[Range, ...]]:
    """As `plan`, but all ranges of one partition of a stream are in one Spark partition, one after the other."""
    wanted = sorted(r for r in ranges if r.size > 0)
    parts = {key: tuple(found) for key, found in groupby(wanted, key=lambda r: (r.stream, r.partition))}
    if not parts:
        return []
    spans = [replace(found[0], end=found[-1].end) for found in parts.values()]
    total = sum(span.size for span in spans)
    packed = _pack(spans, min(len(spans), _tasks(total, packing)), total)
    return [tuple(each for span in spans for each in parts[span.stream, span.partition]) for spans in packed]


def _tasks(total: int, packing: Packing) -> int:
    """The number of tasks for `total` offsets, if no limit of a task asks for more."""
    most = packing.max_partitions or max(packing.slots * TASKS_PER_SLOT, packing.min_partitions)
    by_size = max(min(packing.slots, _ceil(total, SMALL_TASK)), _ceil(total, LARGE_TASK))
    return min(most, max(packing.min_partitions, by_size))


def _split(whole: Range, tasks: int, total: int, max_records: int) -> list[Range]:
    """Equal pieces, none larger than its share of `tasks` or than `max_records`."""
    count = _ceil(whole.size * tasks, total)
    if max_records:
        count = max(count, _ceil(whole.size, max_records))
    count = min(count, whole.size)
    cuts = [whole.start + whole.size * i // count for i in range(count + 1)]
    return [replace(whole, start=start, end=end) for start, end in pairwise(cuts)]


def _pack(pieces: Sequence[Range], bins: int, capacity: int) -> list[tuple[Range, ...]]:
    """Put the largest piece first, each into the emptiest bin; add a bin if none has room."""
    packed: list[list[Range]] = [[] for _ in range(bins)]
    loads = [0] * bins
    for piece in sorted(pieces, key=lambda p: (-p.size, p)):
        emptiest = min(range(len(packed)), key=lambda i: (loads[i], i))
        if loads[emptiest] and loads[emptiest] + piece.size > capacity:
            packed.append([])
            loads.append(0)
            emptiest = len(packed) - 1
        packed[emptiest].append(piece)
        loads[emptiest] += piece.size
    return sorted(tuple(sorted(each)) for each in packed if each)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)
