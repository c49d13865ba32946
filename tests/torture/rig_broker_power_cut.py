"""S2: power cuts of the broker's machine under load, class `disk`; load and check are those of S1.

The data directory is on a separate ext4 or xfs image; the filesystem is shut down as in S3, the broker killed, the
image mounted again and the broker started.
"""

from __future__ import annotations

import random
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bascule import testing

from tests.torture import volume
from tests.torture.result import Result, Scale
from tests.torture.rig_kill import Count, end_often

if TYPE_CHECKING:
    from bascule.testing import TestBroker

ROW = "S2"
CUTS = 500
SHORT_SECONDS = 10
"""Cuts on each filesystem."""
KINDS = ("ext4", "xfs")
IMAGE_MIB = 640


def cut_often(kind: str, cuts: int, seconds: float, seed: int) -> Count:
    """Cut the power of one broker until the number of cuts or the time is reached."""
    stop, chance = time.monotonic() + seconds, random.Random(seed)
    with volume.volume(kind, IMAGE_MIB) as mounted, tempfile.TemporaryDirectory(prefix="bascule-cut-") as home:
        Path(home, "data").symlink_to(mounted.path)
        settings = {"streams.segment_max_bytes": 1 << 20}
        with testing.broker(durability="disk", directory=Path(home), settings=settings) as broker:
            return end_often(
                broker,
                "power cut",
                lambda: lose_power(broker, mounted, chance),
                enough=lambda count: count.cycles >= cuts or time.monotonic() > stop,
                seed=seed,
            )


def lose_power(broker: TestBroker, mounted: volume.Volume, chance: random.Random) -> None:
    """Write back some pages or none, cut the power, and restore it without a broker."""
    if chance.random() < 0.5:
        mounted.write_back(chance, "**/*")
    mounted.cut(chance.choice((volume.FLUSH_JOURNAL, volume.FLUSH_NOTHING)))
    broker.kill()
    mounted.remount()


def run(scale: Scale) -> Result:
    """Cut the power."""
    for kind in KINDS:
        volume.require(kind)
    full = scale is Scale.FULL
    seed = 1 if full else time.time_ns() % 1_000_000
    cuts, seconds = (CUTS // len(KINDS), 6 * 3600) if full else (CUTS, SHORT_SECONDS)
    counts = [cut_often(kind, cuts, seconds, seed) for kind in KINDS]
    failures = [failure for count in counts for failure in count.failures]
    for failure in failures:
        print(failure)
    cycles, acked = sum(count.cycles for count in counts), sum(count.acked for count in counts)
    return Result(
        row=ROW,
        title="power cuts of a broker under load, class disk, ext4 and xfs",
        figure=f"{len(failures)} violations in {cycles:,} cuts, {acked:,} records acked",
        bar=f"0 in {CUTS:,} cuts" if full else "0",
        passed=not failures and acked > 0 and (cycles >= CUTS or not full),
        numbers={"cycles": cycles, "acked": acked, "violations": len(failures)},
    )
