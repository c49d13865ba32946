"""When partitions are scrubbed: every one once in a period, the one that waits longest first, one at a time.

The data plane reads and checks at the configured rate, and remembers with each partition when its last scrub ended, so
that a restart does not begin again. A partition without a sealed segment has nothing to scrub yet.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from bascule.errors import BrokerError
from bascule.logs import emit
from bascule.metadata import State

__all__ = ["Scrubber", "due", "incarnations"]

LOOK_S: Final = 60.0
NANOSECONDS: Final = 1_000_000


class ScrubPlane(Protocol):
    """The part of `bascule.engine` that scrubs."""

    def scrub(self, incarnation: int, bytes_per_second: int) -> tuple[int, int, int, bool]:
        """Check a partition; (segments, bytes, damaged ranges, complete). Blocks."""
        ...

    def damage(self, incarnations: list[int]) -> list[dict[str, Any]]:
        """`incarnation`, `scrubbed_ns`, `sealed_segments` and `damaged` of those that are open."""
        ...


def incarnations(state: State) -> list[int]:
    """All partitions; the data plane knows which of them are open here."""
    return [item.incarnation for stream in state.streams.values() for item in stream.partitions]


def due(ended_ns: Mapping[int, int], now_ns: int, period_ms: int) -> list[int]:
    """The incarnations whose last scrub ended at least `period_ms` ago, the one that waits longest first.

    Args:
        ended_ns: when the last whole scrub of each open partition ended, 0 = never.
        now_ns: time of day, ns since 1970.
        period_ms: how often each is scrubbed; 0 = never.
    """
    if period_ms == 0:
        return []
    latest = now_ns - period_ms * NANOSECONDS
    waiting = [incarnation for incarnation, ended in ended_ns.items() if ended <= latest]
    return sorted(waiting, key=lambda incarnation: (ended_ns[incarnation], incarnation))


class Scrubber:
    """Scrubs what is due until it is cancelled."""

    def __init__(
        self, plane: ScrubPlane, open_partitions: Callable[[], list[int]], *, period_ms: int, bytes_per_second: int
    ) -> None:
        """Make one; `open_partitions` gives the incarnations that this broker serves."""
        self._plane = plane
        self._open = open_partitions
        self._period_ms = period_ms
        self._rate = bytes_per_second

    async def run(self) -> None:
        """Scrub until cancelled; with a period or a rate of 0 do nothing."""
        if self._period_ms == 0 or self._rate == 0:
            return
        pause_s = min(LOOK_S, self._period_ms / 1000)
        # A start has more urgent things to read.
        await asyncio.sleep(pause_s)
        while True:
            await self.round()
            await asyncio.sleep(pause_s)

    async def round(self) -> None:
        """Scrub each partition that is due, once. One that cannot be read whole is due again in the next round."""
        known = self._plane.damage(self._open())
        ended = {item["incarnation"]: item["scrubbed_ns"] for item in known if item["sealed_segments"]}
        for incarnation in due(ended, time.time_ns(), self._period_ms):
            await self._scrub(incarnation)

    async def _scrub(self, incarnation: int) -> None:
        try:
            segments, size, damaged, _ = await asyncio.to_thread(self._plane.scrub, incarnation, self._rate)
        except BrokerError as failure:
            emit(30, "control.scrub", f"a scrub failed: {failure}", incarnation=incarnation, code=failure.code)
            return
        level = 40 if damaged else 10
        fields = {"incarnation": incarnation, "segments": segments, "bytes": size, "damaged": damaged}
        emit(level, "control.scrub", "a partition was scrubbed", **fields)
