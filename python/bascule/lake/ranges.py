"""Offsets that an epoch has written, and offsets that a table covers, for each partition of a stream. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

NO_INCARNATION: Final = 0
"""Incarnation of rows that have none."""
SOURCE_COLUMNS: Final = ("stream", "incarnation", "partition")
"""Columns that name the source of a row."""
POSITION: Final = (*SOURCE_COLUMNS, "offset", "timestamp")
"""Columns that say which record a row is, and which of two records of a key is the later one."""


@dataclass(frozen=True, order=True)
class Source:
    """One incarnation of a partition of a stream."""

    stream: str
    incarnation: int
    partition: int

    def __str__(self) -> str:
        return f"{self.stream}/{self.partition}"


@dataclass(frozen=True)
class Written:
    """Rows of one source in one epoch: their offsets lie in `[first, end)`.

    Attributes:
        first: the least offset; without rows, that of the planned range.
        end: the offset after the greatest one; without rows, the end of the planned range.
        rows: number of rows.
        distinct: no offset is repeated, as far as known.
        planned: the range that the epoch was planned for, which contains the rows; None = not known.
    """

    first: int
    end: int
    rows: int
    distinct: bool = True
    planned: tuple[int, int] | None = None

    @property
    def is_dense(self) -> bool:
        """Whether there is exactly one row for each offset of the range."""
        return self.distinct and self.rows == self.end - self.first


@dataclass(frozen=True)
class Covered:
    """A table has every record of a source with an offset in `[first, end)`, and no row at or after `end`.

    `writer`: number of the writer that appended last.
    """

    first: int
    end: int
    writer: int


@dataclass(frozen=True)
class Erased:
    """Rows of a source that were erased by key: `rows` of them, with offsets in `[first, end)`."""

    rows: int
    first: int
    end: int

    def __add__(self, other: "Erased") -> "Erased":
        return Erased(self.rows + other.rows, min(self.first, other.first), max(self.end, other.end))


def merge(parts: Iterable[tuple[Source, Written]]) -> dict[Source, Written]:
    """One range for each source. Parts that overlap are not distinct."""
    by_source: dict[Source, list[Written]] = {}
    for source, written in parts:
        by_source.setdefault(source, []).append(written)
    return {source: _merged(found) for source, found in sorted(by_source.items())}


def _merged(parts: list[Written]) -> Written:
    ordered = sorted(parts, key=lambda part: (part.first, part.end))
    whole = ordered[0]
    for part in ordered[1:]:
        distinct = whole.distinct and part.distinct and part.first >= whole.end
        whole = Written(whole.first, max(whole.end, part.end), whole.rows + part.rows, distinct)
    return whole


def extend(covered: Covered | None, written: Written, writer: int, *, complete: bool, follows: bool = True) -> Covered:
    """What a table covers after an epoch.

    Args:
        covered: before; None = the table had no row of this source.
        written: rows of the epoch.
        writer: number of the writer.
        complete: the rows of an epoch are all records of its range, and the writer's next epoch begins where this one
            ends, so that offsets without a row do not exist.
        follows: the table has the writer's epoch before this one, which was complete, so that nothing is missing in
            between.

    Returns:
        The longest range that ends with the epoch's last row, or with its planned range if it is complete, and is known
        to have no record missing.
    """
    first, end = written.planned if complete and written.planned is not None else (written.first, written.end)
    if covered is None:
        whole = complete or written.is_dense
        return Covered(first if whole else end, end, writer)
    if written.first < covered.end:
        end = max(covered.end, end)
        return Covered(end, end, writer)
    if not (complete or written.is_dense):
        return Covered(end, end, writer)
    continues = first <= covered.end or (complete and follows and covered.writer == writer)
    return Covered(covered.first if continues else first, end, writer)


def starting_offsets(covered: Mapping[Source, Covered]) -> dict[str, dict[str, int]]:
    """The value of the option `startingOffsets` with which a query continues after a table."""
    found: dict[str, dict[str, int]] = {}
    for source, each in sorted(covered.items()):
        found.setdefault(source.stream, {})[str(source.partition)] = each.end
    return found
