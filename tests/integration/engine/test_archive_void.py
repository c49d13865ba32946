"""What an archive has is void when the log ends before it: the log lost its end, or is an older copy."""

import json
from pathlib import Path
from typing import Any

from bascule._seam import PartitionChange

from tests.integration.engine.plane import FIRST_INCARNATION, Plane
from tests.waiting import until

CUT: dict[str, Any] = {
    "retention_messages": 1, "cleaner_interval_ms": 50, "segment_bytes": 4000, "archive_wait_bytes": 1 << 20,
}  # fmt: skip


BESIDE = FIRST_INCARNATION + 1
"""A partition that does not wait."""


def fill(plane: Plane, incarnation: int = FIRST_INCARNATION, count: int = 50) -> None:
    for _ in range(count):
        plane.engine.append(incarnation, [b"x" * 1000], 10_000)


def log_start(plane: Plane, incarnation: int = FIRST_INCARNATION) -> int:
    ((_, log_start, *_),) = plane.engine.status([incarnation])
    return log_start


def voids(plane: Plane) -> list[int]:
    """What was reported as void of the first partition so far."""
    plane.events += [event for event in plane.engine.poll(1000) if isinstance(event, PartitionChange)]
    found = [event for event in plane.events if event.incarnation == FIRST_INCARNATION]
    return [json.loads(event.fields)["archived_to"] for event in found if event.change == "archive_void"]


def waits(plane: Plane, before: int) -> None:
    """Retention removes nothing, while it cuts the partition beside it three times."""
    plane.open(BESIDE, archive_wait_bytes=0)
    for _ in range(3):
        was = log_start(plane, BESIDE)
        fill(plane, BESIDE, 10)
        until(lambda was=was: log_start(plane, BESIDE) > was, 20)
    assert log_start(plane) == before


def test_what_lies_beyond_the_log_does_not_count_also_when_the_log_has_grown_past_it(tmp_path: Path) -> None:
    with Plane(tmp_path, partitions=2, archived_to=30, **CUT) as plane:
        until(lambda: voids(plane) == [30], 20)
        fill(plane)
        waits(plane, 0)
        plane.open(FIRST_INCARNATION)
        waits(plane, 0)
        plane.open(FIRST_INCARNATION, archived_to=20)
        until(lambda: 15 < log_start(plane) <= 20, 20)
        plane.open(FIRST_INCARNATION, archived_to=30)
        until(lambda: 25 < log_start(plane) <= 30, 20)
        assert voids(plane) == [30]


def test_what_the_log_has_counts_from_the_start(tmp_path: Path) -> None:
    with Plane(tmp_path, partitions=2, **CUT) as plane:
        fill(plane)
        waits(plane, 0)
    with Plane(tmp_path, partitions=2, archived_to=30, **CUT) as plane:
        until(lambda: 25 < log_start(plane) <= 30, 20)
        assert voids(plane) == []
