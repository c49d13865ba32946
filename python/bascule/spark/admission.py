"""Decides how much of the backlog a micro-batch reads. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from bascule.spark.offsets import Key
from bascule.spark.options import Limits


@dataclass(frozen=True)
class Backlog:
    """The backlog of one partition: offsets `[start, end)`, about `record_bytes` bytes each."""

    start: int
    end: int
    record_bytes: float = 0.0

    @property
    def size(self) -> int:
        """Number of offsets."""
        return max(self.end - self.start, 0)


def is_worth_starting(backlogs: Mapping[Key, Backlog], limits: Limits, waited_ms: float) -> bool:
    """Whether to start a micro-batch: the backlog is large enough, or the query waited long enough.

    Args:
        backlogs: by partition.
        limits: `min_offsets` and `max_delay_ms` count.
        waited_ms: time since the last micro-batch was started.
    """
    total = sum(backlog.size for backlog in backlogs.values())
    if not total:
        return False
    return total >= limits.min_offsets or waited_ms >= limits.max_delay_ms


def admit(backlogs: Mapping[Key, Backlog], limits: Limits) -> dict[Key, int]:
    """The exclusive end of each partition in the next micro-batch, `start` ≤ it ≤ `end`.

    The shares of `max_offsets` and `max_bytes` are in proportion to the backlogs, and at least one offset each.
    """
    total = sum(backlog.size for backlog in backlogs.values())
    total_bytes = sum(backlog.size * backlog.record_bytes for backlog in backlogs.values())
    share = 1.0
    if limits.max_offsets and total > limits.max_offsets:
        share = limits.max_offsets / total
    if limits.max_bytes and total_bytes > limits.max_bytes:
        share = min(share, limits.max_bytes / total_bytes)
    return {key: backlog.start + _part(backlog.size, share) for key, backlog in backlogs.items()}


def _part(size: int, share: float) -> int:
    if share >= 1.0 or not size:
        return size
    return min(max(int(size * share), 1), size)
