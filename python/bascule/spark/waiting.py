"""Decides what an idle micro-batch waits for at the broker, so that it asks once per long poll. Pure."""

from collections.abc import Collection, Mapping
from math import ceil
from typing import Final

from bascule.spark.offsets import Key
from bascule.spark.options import Limits

NEVER: Final = 2**63 - 1
"""An offset that no partition reaches."""


def wake_offsets(high_watermarks: Mapping[Key, int], ended: Collection[Key], missing: int) -> dict[Key, int]:
    """The offset of each partition that its high watermark must pass before a micro-batch can be worth starting.

    When `missing` offsets arrive in total, at least one partition gets its equal share of them. So a query that waits
    for many offsets asks again a few times for each partition, not for every record.

    Args:
        high_watermarks: those of the last answer, by partition.
        ended: partitions in which the query reads no later records.
        missing: number of offsets that the backlog lacks, at least 1.
    """
    growing = len(high_watermarks) - len(ended)
    share = ceil(missing / growing) if growing else 0
    return {key: NEVER if key in ended else end + share - 1 for key, end in high_watermarks.items()}


def missing_offsets(limits: Limits, backlog: int, waited_ms: float) -> int:
    """How many more offsets make a micro-batch worth starting, at least 1.

    Args:
        limits: `min_offsets` and `max_delay_ms` count.
        backlog: offsets that can be read now, too few to start.
        waited_ms: time since the last micro-batch was started.
    """
    return 1 if waited_ms >= limits.max_delay_ms else max(limits.min_offsets - backlog, 1)


def wait_ms(limits: Limits, long_poll_ms: int, waited_ms: float) -> int:
    """How long to wait: `long_poll_ms`, but not past the end of `max_delay_ms`."""
    remaining_ms = limits.max_delay_ms - waited_ms
    if limits.min_offsets and 0 < remaining_ms < long_poll_ms:
        return ceil(remaining_ms)
    return long_poll_ms
