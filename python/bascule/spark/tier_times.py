"""Positions by time in reads of an archive: the first record at or after a time, in whichever tier it is.

Timestamps never decrease within a partition. So the archive is searched below the broker's answer: retention may have
removed earlier records that are late enough, and so may compaction, wherever it left a hole.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from bascule.errors import CorruptionError
from bascule.lake.archived import ArchivedFile, Wanted
from bascule.lake.archived_times import first_at_or_after
from bascule.lake.ranges import Source
from bascule.spark.connection import PartitionStatus, StatusRequest, StreamStatus
from bascule.spark.options import SourceOptions
from bascule.spark.reading import broker_of
from bascule.spark.tiers import Archives, without_broken

if TYPE_CHECKING:
    from bascule.lake.storage import FileStore


def may_be_archived(options: SourceOptions, found: int | None) -> bool:
    """Whether the archive may have the first record at or after a time.

    Args:
        options: of the read.
        found: the broker's answer; None = it has no such record.
    """
    return options.tier == "archive" or (options.tier == "auto" and found != 0)


class TimeSearch:
    """Answers times in both tiers, and remembers what it has searched the archive for. Belongs to one thread."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._searched: dict[tuple[Wanted, int], int | None] = {}

    def answer(self, status: StreamStatus, archives: Archives) -> StreamStatus:
        """A status whose answers to times are those of the tiers that are read.

        Args:
            status: as the broker has answered.
            archives: of the read.

        Raises:
            CorruptionError: a file of the archive is missing or damaged, and `onDataLoss` is not `skip`.
        """
        times = {
            (number, time_ns): self._found(status.stream, number, part, time_ns, found, archives)
            if (part := status.partitions.get(number)) is not None and may_be_archived(self._options, found)
            else found
            for (number, time_ns), found in status.times.items()
        }
        return replace(status, times=times)

    def _found(  # noqa: PLR0913, PLR0917 - one look-up
        self, stream: str, number: int, part: PartitionStatus, time_ns: int, found: int | None, archives: Archives
    ) -> int | None:
        source = Source(stream, part.incarnation, number)
        covered = archives.covered.get(source)
        if self._options.tier == "archive":
            return (
                None if covered is None else self._search(Wanted(source, covered.first, covered.end), time_ns, archives)
            )
        if covered is None or (found is not None and covered.first >= found):
            return found
        end = covered.end if found is None else min(covered.end, found)
        archived = self._search(Wanted(source, covered.first, end), time_ns, archives)
        if archived is not None or found is None:
            return archived
        if end < part.log_start and found == self._first(stream, number, part):
            return end  # records between the tiers are lost, and may be late enough: the plan reports it
        return found

    def _first(self, stream: str, number: int, part: PartitionStatus) -> int | None:
        """The offset of the broker's first record, which compaction may have left above the log start."""
        earliest = (number, 0)
        status = broker_of(self._options).status([StatusRequest(stream, [number], times=[earliest])])[stream]
        same = status.partitions[number].incarnation == part.incarnation
        return status.times[earliest] if same else part.log_start

    def _search(self, wanted: Wanted, time_ns: int, archives: Archives) -> int | None:
        key = (wanted, time_ns)
        if key not in self._searched:
            store = archives.opened[wanted.source.stream].storage
            files = list(archives.tables[wanted.source.stream].files_of(wanted))
            self._searched[key] = self._search_files(store, files, wanted, -(-time_ns // 1000))
        return self._searched[key]

    def _search_files(self, store: "FileStore", files: list[ArchivedFile], wanted: Wanted, time_us: int) -> int | None:
        while True:
            try:
                return first_at_or_after(store, files, wanted, time_us)
            except CorruptionError as failure:
                files = without_broken(self._options, files, failure)
