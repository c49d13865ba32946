"""The options of a new stream."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from bascule.client._core.requests.bounds import INT32_MAX, INT64_MAX, check_bounds

__all__ = ["StreamOptions"]

_WIDE: Final = frozenset({"max_record_bytes", "retention_max_bytes", "retention_max_messages", "segment_max_bytes"})
_COUNTS: Final = (
    *sorted(_WIDE),
    "retention_max_age",
    "cleaner_interval",
    "segment_max_age",
    "compact_parallelism",
    "auto_pause_time",
    "min_isr",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamOptions:
    """What a stream is to be; `None` = as the broker's `streams.*` settings say. 0 = unlimited or never, for limits."""

    group: str = ""
    """NATS queue group; empty = none."""
    partitions: int | None = None
    """`None` = 1."""
    replication_factor: int = 1
    """−1 = all brokers."""
    retention_max_bytes: int | None = None
    retention_max_messages: int | None = None
    retention_max_age: timedelta | None = None
    cleaner_interval: timedelta | None = None
    segment_max_bytes: int | None = None
    segment_max_age: timedelta | None = None
    """0 = a segment is never closed for its age."""
    compact_enabled: bool | None = None
    """Whether only the last record of each key is kept."""
    compact_parallelism: int | None = None
    """Threads that look for old records, 0 or more; 0 = 10."""
    auto_pause_time: timedelta | None = None
    """Idle time after which a partition is paused; 0 = never."""
    auto_pause_disable_if_subscribers: bool | None = None
    """Whether a partition that somebody reads is not paused."""
    min_isr: int | None = None
    """In-sync replicas that a commit needs, 0 or more."""
    concurrency_control: bool | None = None
    """Whether expected offsets are checked."""
    encryption: bool | None = None
    """Whether it is encrypted at rest; the broker needs a master key."""
    partition_by_subject: bool | None = None
    """Whether the NATS subject of a message chooses its partition."""
    durability: Literal["disk", "memory"] | None = None
    """What an ack stands for."""
    codec: Literal["none", "lz4", "zstd"] | None = None
    """Compression of new batches."""
    nats_copy: Literal["envelope", "value", "none"] | None = None
    """How direct publishes are shown to NATS."""
    nats_acks: Literal["off", "jetstream"] | None = None
    """How plain NATS messages with a reply subject are acknowledged; one partition only."""
    max_record_bytes: int | None = None
    """Largest record that is accepted, 0 or more."""

    def __post_init__(self) -> None:
        """Check what can be checked here.

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
