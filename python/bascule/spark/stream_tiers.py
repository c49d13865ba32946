"""Tiered streaming reads: which offsets of a micro-batch come from the archive.

The offset documents of a query name offsets, not tiers, so that a micro-batch can be repeated from either
(`docs/decisions/tiered-reads.md`). The archive is opened when a run first needs it, and read again when a reader
needs more of it: a query at the end of its streams reads the broker alone, and asks the archive nothing.
"""

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bascule.errors import BrokerError
from bascule.lake.disk_errors import read_errors
from bascule.lake.layout import table_path
from bascule.lake.options import ArchiveOptions
from bascule.lake.ranges import Covered, Source
from bascule.lake.tables import open_table
from bascule.spark.connection import PartitionStatus, StatusRequest, StreamStatus
from bascule.spark.offsets import Key
from bascule.spark.options import SourceOptions
from bascule.spark.planning import Range
from bascule.spark.reading import GONE, broker_of
from bascule.spark.resolving import partitions_of, pin_present
from bascule.spark.tier_checks import check_cuts, check_ends
from bascule.spark.tier_times import TimeSearch, may_be_archived
from bascule.spark.tiers import Archives, both_tiers, divide, extended, pin, source_of, sources_of

if TYPE_CHECKING:
    from bascule.lake.lake_table import LakeTable

logger = logging.getLogger("bascule.spark")

REFRESH_S: Final = 60.0
"""How long files of one version of the archive are planned: compaction and vacuum delete those of old versions."""
_NOTHING: Final = Archives({}, {}, {})


class StreamTiers:
    """The tiers of one run of a streaming query. Used by its planner alone, from one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._opened: dict[str, LakeTable] = {}
        self._archives = _NOTHING
        self._sources: frozenset[Source] = frozenset()
        self._pinned_at = float("-inf")
        self._parts: dict[Key, PartitionStatus] = {}
        self._times = TimeSearch(options)
        self._checked: set[tuple[Source, int]] = set()

    def at_start(self, statuses: dict[str, StreamStatus]) -> dict[str, StreamStatus]:
        """Statuses whose partitions begin and end where the tiers do, for the positions that the options name.

        Raises:
            BrokerError: as `resolving.pin_present`.
        """
        self._archives = pin_present(self._options, broker_of(self._options), statuses, opener=self._open)
        self._pinned(sources_of(statuses))
        timed = {name: self._times.answer(status, self._archives) for name, status in statuses.items()}
        return self._archived_only(both_tiers(self._options, timed, self._archives), {})

    def extended(self, statuses: dict[str, StreamStatus], marks: Mapping[Key, int]) -> dict[str, StreamStatus]:
        """Statuses whose partitions begin and end where the tiers do, for a reader at these offsets.

        Args:
            statuses: as the broker has them.
            marks: the next offset of partitions that the query has read.

        Raises:
            UsageError: the archive has no table of a stream, or a table lacks a column that is read.
        """
        self._parts = partitions_of(statuses)
        sources = sources_of(statuses)
        if self._options.tier == "archive":
            self._follow(sources)
        elif self._is_timed(statuses) or any(
            self._needs_archive(key, part, marks.get(key)) for key, part in self._parts.items()
        ):
            self._pin(sources)
        found = {
            name: replace(
                self._times.answer(status, self._archives),
                partitions={
                    number: extended(self._options, part, self._covered(name, number, part), marks.get((name, number)))
                    for number, part in status.partitions.items()
                },
            )
            for name, status in statuses.items()
        }
        return self._archived_only(found, marks)

    def divide(self, tasks: Sequence[tuple[Range, ...]]) -> list[tuple[Range, ...]]:
        """The tasks of a micro-batch, with the tier of each part of their ranges.

        Each task keeps its offsets and their order, so that a repeated one gives the same rows from another tier.

        Raises:
            StateError: `offset_out_of_range`, if neither tier has a range; `history_changed`, if the archive has
                records of another log than the broker.
            UsageError: the archive has no table of a stream, or a table lacks a column that is read.
        """
        ranges = [each for ranges in tasks for each in ranges]
        parts = {key: part for key, part in self._present(ranges).items() if part is not None}
        wanting = [each for each in ranges if self._is_archived(each, parts.get((each.stream, each.partition)))]
        if not wanting:
            return list(tasks)
        is_old = time.monotonic() - self._pinned_at > REFRESH_S
        if is_old or any(self._is_short(each, parts) for each in wanting):
            self._pin({*self._sources, *map(source_of, ranges)})
        divided = [
            tuple(
                piece
                for each in ranges
                for piece in divide(self._options, each, parts.get((each.stream, each.partition)), self._archives)
            )
            for ranges in tasks
        ]
        pieces = [piece for found in divided for piece in found if (piece.stream, piece.partition) in parts]
        try:
            check_cuts(self._options, broker_of(self._options), pieces, self._archives, self._checked)
        except BrokerError as failure:
            if failure.code not in GONE:
                raise  # otherwise the tasks report it, or skip its records
        return divided

    # -- the archive ------------------------------------------------------------------------------------------------
    def _open(self, archive: ArchiveOptions, stream: str) -> "LakeTable":
        """A table that stays open, so that a later look at it reads only what was committed since."""
        path = table_path(archive.path, stream)
        if path not in self._opened:
            self._opened[path] = open_table(archive, stream)
        return self._opened[path]

    def _pin(self, sources: Iterable[Source]) -> None:
        wanted = frozenset(sources)
        self._archives = pin(self._options, wanted, self._open, may_lack=True)
        check_ends(self._options, broker_of(self._options), self._parts, self._archives)
        self._pinned(wanted)

    def _pinned(self, sources: Iterable[Source]) -> None:
        self._sources, self._pinned_at = frozenset(sources), time.monotonic()

    def _follow(self, sources: Sequence[Source]) -> None:
        """See what was archived since, by what the tables record; their files are listed if it is more."""
        archive = self._options.archive
        assert archive is not None
        covered: dict[Source, Covered] = {}
        for stream in sorted({source.stream for source in sources}):
            table = self._open(archive, stream)
            with read_errors(table.uri):
                is_there = table.exists()
            if is_there:
                covered |= table.covered([each for each in sources if each.stream == stream])
        if covered != self._archives.covered:
            self._pin(sources)

    def _covered(self, stream: str, number: int, part: PartitionStatus) -> Covered | None:
        return self._archives.covered.get(Source(stream, part.incarnation, number))

    def _archived_only(self, statuses: dict[str, StreamStatus], marks: Mapping[Key, int]) -> dict[str, StreamStatus]:
        """With `tier=archive`, without partitions that it has nothing of yet: they are read when it has."""
        if self._options.tier != "archive":
            return statuses
        return {
            name: replace(
                status,
                partitions={
                    number: part
                    for number, part in status.partitions.items()
                    if part.high_watermark or (name, number) in marks
                },
            )
            for name, status in statuses.items()
        }

    # -- what is needed of it ---------------------------------------------------------------------------------------
    def _needs_archive(self, key: Key, part: PartitionStatus, mark: int | None) -> bool:
        """Whether a partition begins in the archive, and more of it must be known."""
        source = Source(key[0], part.incarnation, key[1])
        if mark is None:
            return self._options.tier == "auto" and source not in self._sources
        if mark >= part.log_start:
            return False
        covered = self._archives.covered.get(source)
        return covered is None or not covered.first <= mark < covered.end

    def _is_timed(self, statuses: Mapping[str, StreamStatus]) -> bool:
        """Whether the archive may have the record of a time, and was not opened yet."""
        return any(
            may_be_archived(self._options, found)
            and Source(name, status.partitions[number].incarnation, number) not in self._sources
            for name, status in statuses.items()
            for (number, _), found in status.times.items()
        )

    def _is_archived(self, planned: Range, part: PartitionStatus | None) -> bool:
        """Whether a range may have records of the archive, as far as known."""
        if self._options.tier == "archive" or _is_lost(planned, part):
            return True
        if self._options.tier == "broker":
            return False
        source = source_of(planned)
        covered = self._archives.covered.get(source)
        return source not in self._sources or (covered is not None and planned.start < covered.end)

    def _is_short(self, planned: Range, parts: Mapping[Key, PartitionStatus]) -> bool:
        """Whether a newer version of the archive is needed for a range."""
        source = source_of(planned)
        covered = self._archives.covered.get(source)
        if source not in self._sources:
            return True
        if self._options.tier == "archive":
            return covered is None or covered.end < planned.end
        part = parts.get((planned.stream, planned.partition))
        return _is_lost(planned, part) and (covered is None or not covered.first <= planned.start < covered.end)

    def _present(self, ranges: Sequence[Range]) -> dict[Key, PartitionStatus | None]:
        """The broker's partitions of some ranges; None = it does not have it. A run that begins with an unfinished
        micro-batch has not asked for them yet.
        """
        keys = {(each.stream, each.partition) for each in ranges}
        if self._options.tier == "archive":
            return dict.fromkeys(keys)
        missing = sorted({stream for stream, number in keys if (stream, number) not in self._parts})
        for stream in missing:
            numbers = sorted(number for name, number in keys if name == stream)
            try:
                statuses = broker_of(self._options).status([StatusRequest(stream, numbers)])
            except BrokerError as failure:
                if failure.code not in GONE:
                    raise
            else:
                self._parts |= partitions_of(statuses)
        return {key: self._parts.get(key) for key in keys}


def _is_lost(planned: Range, part: PartitionStatus | None) -> bool:
    """Whether retention has removed the beginning of a range."""
    return part is not None and part.incarnation == planned.incarnation and planned.start < part.log_start
