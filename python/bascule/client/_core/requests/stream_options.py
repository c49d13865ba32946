"""The options of a new stream."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from bascule.client._core.requests.bounds import INT32_MAX, INT64_MAX, check_bounds

__all__ = ["StreamOptions"]

_WIDE: Final = frozenset(
    {
        "max_record_bytes",
        "retention_after_archive_max_bytes",
        "retention_hold_max_bytes",
        "retention_max_bytes",
        "retention_max_messages",
        "segment_max_bytes",
    }
)
_COUNTS: Final = (
    *sorted(_WIDE),
    "retention_max_age",
    "retention_hold_expiry",
    "cleaner_interval",
    "segment_max_age",
    "compact_parallelism",
    "auto_pause_time",
    "min_isr",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamOptions:
    """Options of a new stream. `None` = as in the broker's `streams.*` settings; 0 = unlimited or never, for limits."""

    group: str = ""
    """NATS queue group; empty = none."""
    partitions: int | None = None
    """`None` = 1."""
    replication_factor: int = 1
    """−1 = all brokers."""
    retention_max_bytes: int | None = None
    retention_max_messages: int | None = None
    retention_max_age: timedelta | None = None
    retention_after_archive: bool | None = None
    """Whether retention removes only records that an archive has; needs `retention_after_archive_max_bytes`."""
    retention_after_archive_max_bytes: int | None = None
    """Size of a partition above which retention does not wait for the archive any more, 1 or more."""
    retention_hold_max_bytes: int | None = None
    """Size of a partition up to which queries may hold records that they have not processed, 1 or more; `None` = none
    may."""
    retention_hold_expiry: timedelta | None = None
    """Time after a query's last report at which its hold ends, 30 s to 7 days; `None` = 1 hour. Needs
    `retention_hold_max_bytes`."""
    cleaner_interval: timedelta | None = None
    segment_max_bytes: int | None = None
    segment_max_age: timedelta | None = None
    """Age at which a segment is sealed; 0 = never."""
    compact_enabled: bool | None = None
    """Whether the stream is compacted: only the last record of each key is kept."""
    compact_parallelism: int | None = None
    """Number of threads of compaction, 0 or more; 0 = 10."""
    auto_pause_time: timedelta | None = None
    """Idle time after which a partition is paused; 0 = never."""
    auto_pause_disable_if_subscribers: bool | None = None
    """Whether a partition with subscribers is not paused automatically."""
    min_isr: int | None = None
    """Minimum number of in-sync replicas for a commit, 0 or more."""
    concurrency_control: bool | None = None
    """Whether expected offsets are checked."""
    encryption: bool | None = None
    """Whether the stream is encrypted at rest; the broker needs a master key."""
    partition_by_subject: bool | None = None
    """Whether the NATS subject of a message chooses its partition."""
    durability: Literal["disk", "memory"] | None = None
    """Where a record is when it is acknowledged: synced to disk, or in the page cache."""
    codec: Literal["none", "lz4", "zstd"] | None = None
    """Compression of new batches."""
    nats_copy: Literal["envelope", "value", "none"] | None = None
    """How direct publishes are republished to NATS."""
    nats_acks: Literal["off", "jetstream"] | None = None
    """How plain NATS messages with a reply subject are acknowledged; one partition only."""
    max_record_bytes: int | None = None
    """Largest accepted record in bytes, envelope included, 0 or more."""

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            UsageError: code `invalid_argument`, naming the option, its value and the bound.
        """
        check_bounds("partitions", self.partitions or 0, 0, INT32_MAX)
        check_bounds("replication_factor", self.replication_factor, -1, INT32_MAX)
        for option in _COUNTS:
            value: int | timedelta | None = getattr(self, option)
            if isinstance(value, timedelta):
                check_bounds(option, value, timedelta(0), timedelta.max)
            elif value is not None:
                check_bounds(option, value, 0, INT64_MAX if option in _WIDE else INT32_MAX)
