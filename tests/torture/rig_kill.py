"""S1: the whole broker is killed with -9 under load repeatedly, and restarted on the same data.

Publishers of single records, small and large batches write to the partitions of a stream in class `disk` until the kill
at a random time; after each start new records are read. Every few kills all records are read, the checker judges the
whole history (no acked record lost, duplicated, moved, reordered or invented), and a new stream is created.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bascule import StreamOptions, testing

from tests.checker import Operation, Recorder, check
from tests.torture.publishers import Publisher, read
from tests.torture.result import Result, Scale

ROW = "S1"
KILLS = 1000
ACKED = 10_000_000
"""Total number of kills for the scoreboard."""
SHORT_SECONDS = 25
KILLS_A_STREAM = 8
PARTITIONS = 2
BATCHES = (1, 40, 1000)
"""Records per call; one publisher for each size and partition."""


@dataclass
class Count:
    """Counts and findings."""

    cycles: int = 0
    acked: int = 0
    failures: list[str] = field(default_factory=list[str])
    restart_seconds: list[float] = field(default_factory=list[float])


class Stream:
    """One stream and its publishers, over several runs of the broker."""

    def __init__(self, broker: testing.TestBroker, name: str) -> None:
        self.broker, self.name = broker, name
        self.recorder = Recorder()
        self.ends = [0] * PARTITIONS
        self.publishers = [
            Publisher(f"p{partition}-{batch}", self.recorder, name, partition, batch)
            for partition in range(PARTITIONS)
            for batch in BATCHES
        ]
        with broker.connect() as client:
            client.create_stream(name, options=StreamOptions(partitions=PARTITIONS))

    def publish_until(self, fault: str, end: Callable[[], None], seconds: float) -> None:
        """Let all publish; then `end` stops the broker; start it again and read the new records."""
        threads = [
            threading.Thread(target=one.run, args=(self.broker.address,), daemon=True) for one in self.publishers
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        healed = self.recorder.fault(fault)
        end()
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive(), "a publisher still waits after its broker has ended"
        self.broker.start()
        healed()
        for partition, start in enumerate(self.ends):
            self.ends[partition] = self._read(Operation.POLL, partition, start)

    def judge(self) -> str | None:
        """Read all records. Returns the findings of the checker, or `None`."""
        for partition in range(PARTITIONS):
            self._read(Operation.FINAL, partition, 0)
        verdict = check(self.recorder.history())
        return None if verdict.passed else str(verdict)

    def _read(self, operation: Operation, partition: int, start: int) -> int:
        return read(self.broker.address, self.recorder, operation, self.name, partition, start)

    @property
    def acked(self) -> int:
        """Records acked to all publishers."""
        return sum(one.acked for one in self.publishers)


def end_often(
    broker: testing.TestBroker, fault: str, end: Callable[[], None], *, enough: Callable[[Count], bool], seed: int
) -> Count:
    """Publish, `end` the broker at a random time, start it, check; until the goal is reached or a check fails."""
    count, chance = Count(), random.Random(seed)
    while not enough(count) and not count.failures:
        stream = Stream(broker, f"ledger-{count.cycles}")
        for _ in range(KILLS_A_STREAM):
            stream.publish_until(fault, end, chance.uniform(0.02, 0.5))
            count.restart_seconds.append(broker.ready_seconds)
            count.cycles += 1
            if enough(count):
                break
        count.acked += stream.acked
        if trouble := stream.judge():
            count.failures.append(f"seed {seed}, cycle {count.cycles}: {trouble}")
        with broker.connect() as client:
            client.delete_stream(stream.name)
    return count


def run(scale: Scale) -> Result:
    """Kill it."""
    full = scale is Scale.FULL
    stop = time.monotonic() + SHORT_SECONDS
    seed = 1 if full else time.time_ns() % 1_000_000

    def enough(count: Count) -> bool:
        return count.cycles >= KILLS if full else time.monotonic() > stop

    with testing.broker(durability="disk", settings={"streams.segment_max_bytes": 1 << 20}) as broker:
        count = end_often(broker, "kill", broker.kill, enough=enough, seed=seed)
    for failure in count.failures:
        print(failure)
    bar = f"0 in {KILLS:,} kills, {ACKED:,} acked" if full else "0"
    met = count.cycles >= KILLS and count.acked >= ACKED if full else count.acked > 0
    return Result(
        row=ROW,
        title="kill -9 of the whole broker under load",
        figure=f"{len(count.failures)} violations in {count.cycles:,} kills, {count.acked:,} records acked",
        bar=bar,
        passed=not count.failures and met,
        numbers={
            "cycles": count.cycles,
            "acked": count.acked,
            "violations": len(count.failures),
            "slowest_start_seconds": max(count.restart_seconds, default=0),
        },
    )
