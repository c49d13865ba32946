"""When partitions are scrubbed."""

import asyncio
import time
from typing import Any

import pytest
from bascule.control.scrub import Scrubber, due
from bascule.errors import error

DAY_MS = 86_400_000
NOW = 100 * DAY_MS * 1_000_000


@pytest.mark.parametrize(
    ("days_ago", "period_days", "expected"),
    [
        ({}, 7, []),
        ({1: 8, 2: 9, 3: 7, 4: 6}, 7, [2, 1, 3]),
        ({1: 6, 2: 5}, 7, []),
        ({1: 7}, 7, [1]),
        ({2: 100, 1: 100}, 7, [1, 2]),
        ({1: 100}, 0, []),
    ],
)
def test_the_one_that_waits_longest_comes_first(
    days_ago: dict[int, int], period_days: int, expected: list[int]
) -> None:
    ended = {incarnation: NOW - days * DAY_MS * 1_000_000 for incarnation, days in days_ago.items()}
    assert due(ended, NOW, period_days * DAY_MS) == expected


class Plane:
    """Partitions that are scrubbed at once; 3 fails."""

    def __init__(self) -> None:
        self.ended = {1: 0, 2: 5, 3: 9}
        self.unsealed: set[int] = set()
        self.scrubbed: list[tuple[int, int]] = []
        self.asked = 0

    def scrub(self, incarnation: int, bytes_per_second: int) -> tuple[int, int, int, bool]:
        self.scrubbed.append((incarnation, bytes_per_second))
        self.ended[incarnation] = time.time_ns()
        if incarnation == 3:
            raise error("storage_failed", "the disk is gone")
        return 1, 100, 0, True

    def damage(self, incarnations: list[int]) -> list[dict[str, Any]]:
        self.asked += 1
        sealed = {n: int(n not in self.unsealed) for n in incarnations}
        return [{"incarnation": n, "scrubbed_ns": self.ended[n], "sealed_segments": sealed[n]} for n in incarnations]


def test_each_is_scrubbed_once_in_a_period_and_a_failure_does_not_end_it() -> None:
    plane = Plane()
    plane.ended[4] = 10
    scrubber = Scrubber(plane, lambda: [1, 2, 3, 4], period_ms=DAY_MS, bytes_per_second=7)
    for _ in range(3):
        asyncio.run(scrubber.round())
    assert plane.scrubbed == [(1, 7), (2, 7), (3, 7), (4, 7)]
    assert plane.asked == 3, "the state of all partitions was asked for more than once in a round"


def test_a_partition_with_nothing_to_read_waits_for_its_first_sealed_segment() -> None:
    plane = Plane()
    plane.unsealed = {1, 2}
    scrubber = Scrubber(plane, lambda: [1, 2], period_ms=DAY_MS, bytes_per_second=7)
    asyncio.run(scrubber.round())
    assert plane.scrubbed == []
    plane.unsealed = {2}
    asyncio.run(scrubber.round())
    assert plane.scrubbed == [(1, 7)]


@pytest.mark.parametrize(("period_ms", "rate"), [(0, 7), (DAY_MS, 0)])
def test_nothing_is_scrubbed_when_it_is_off(period_ms: int, rate: int) -> None:
    plane = Plane()
    asyncio.run(Scrubber(plane, lambda: [1], period_ms=period_ms, bytes_per_second=rate).run())
    assert plane.scrubbed == []
