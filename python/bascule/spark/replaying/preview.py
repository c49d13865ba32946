"""What a replay would do, what it has done, and how far it is."""

from dataclasses import dataclass
from datetime import datetime

from bascule.lake.ranges import Source
from bascule.spark.replaying.options import Bounds, microseconds


@dataclass(frozen=True)
class Found:
    """Records of one source.

    Attributes:
        first: least offset.
        end: offset after the greatest one.
        rows: number of records; of a stream that is compacted, at most.
        bytes: of their row groups, uncompressed; 0 = not known.
        since: least receipt time; None = not known.
        until: greatest receipt time, inclusive.
    """

    source: Source
    first: int
    end: int
    rows: int
    bytes: int = 0
    since: datetime | None = None
    until: datetime | None = None

    def may_be_in(self, bounds: Bounds) -> bool:
        """Whether a record can have been received within bounds: false only if all times are known to be outside."""
        since, until = bounds.since_us, bounds.until_us
        late = self.until is not None and since is not None and microseconds(self.until) < since
        early = self.since is not None and until is not None and microseconds(self.since) >= until
        return not (late or early)

    def __add__(self, other: "Found") -> "Found":
        times = [each for each in (self.since, other.since) if each is not None]
        lasts = [each for each in (self.until, other.until) if each is not None]
        return Found(
            self.source,
            min(self.first, other.first),
            max(self.end, other.end),
            self.rows + other.rows,
            self.bytes + other.bytes,
            min(times, default=None),
            max(lasts, default=None),
        )


@dataclass(frozen=True)
class PartitionPreview:
    """What is replayed of one incarnation of a partition: offsets `[first, end)`, before times are compared.

    `rows` and `bytes` are those in these offsets if all are wanted, else estimated by the share of the offsets.
    """

    partition: int
    incarnation: int
    first: int
    end: int
    rows: int
    bytes: int
    since: str
    until: str


@dataclass(frozen=True)
class Preview:
    """What a replay would do; nothing was written.

    Attributes:
        stream: that is read.
        to: that would be written.
        rows: in all partitions.
        bytes: of the archive's row groups, uncompressed; 0 = not known.
        partitions: by number and incarnation.
        lost: what the target's records would not have, in sentences.
        refused: why the replay would be refused, in sentences; empty = it would begin.
    """

    stream: str
    to: str
    rows: int
    bytes: int
    partitions: list[PartitionPreview]
    lost: list[str]
    refused: list[str]


@dataclass(frozen=True)
class Progress:
    """After an epoch.

    Attributes:
        id: of the replay.
        epoch: its number.
        rows: of the epoch.
        total_rows: of all epochs, also of earlier runs.
        expected_rows: of the whole replay, as far as it was known when it began.
        rows_per_second: of this run.
        eta_s: seconds that are left at this rate; None = not known.
    """

    id: str
    epoch: int
    rows: int
    total_rows: int
    expected_rows: int
    rows_per_second: float
    eta_s: float | None


@dataclass(frozen=True)
class Outcome:
    """A replay that has reached its end.

    Attributes:
        id: of the replay.
        to: the target stream.
        rows: that all runs have written; those that were dropped or became dead letters count.
        bytes: of their content, about.
        epochs: of all runs.
        epochs_of_this_run: 0 = the replay was finished before.
        seconds: of this run.
        lost: what the target's records do not have, in sentences.
    """

    id: str
    to: str
    rows: int
    bytes: int
    epochs: int
    epochs_of_this_run: int
    seconds: float
    lost: list[str]
