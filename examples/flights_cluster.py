"""The leader is killed again and again while the flights are published to three brokers: none is lost or doubled.

Each record is acknowledged once all replicas in sync have it on disk. Five seconds after all three are in sync, the
leader is killed with -9 and started again. In the end every broker must have every flight once, in the order of the
data set, and a chart shows how many were acknowledged when. Run it with `make demo-cluster`; a number publishes only so
many flights. Output lies in `demo-cluster/`.
"""

import json
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from flights import load_flights
from three_brokers import FOLDER, NAMES, ThreeBrokers

if TYPE_CHECKING:
    import bascule

STREAM: Final = "flights"
ROWS_PER_SECOND: Final = 8_000
"""So that the data set lasts for several kills."""
BATCH: Final = 400
KILL_SECONDS: Final = 5.0
AWAY_SECONDS: Final = 1.0
"""Between a kill and the next start of the broker."""
PUBLISH_SECONDS: Final = 60.0
"""A batch is retried for so long."""
SETTLE_SECONDS: Final = 60.0
BAR_SECONDS: Final = 0.5
BAR_WIDTH: Final = 60


@dataclass
class Course:
    """What happened when; seconds since the first record was sent."""

    began: float = field(default_factory=time.monotonic)
    acknowledged: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """Time of each answer, and its records."""
    kills: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])

    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    @property
    def longest_gap(self) -> float:
        """Longest time between two answers."""
        times = [0.0, *(at for at, _ in self.acknowledged)]
        return max(after - before for before, after in pairwise(times))


def publish(brokers: ThreeBrokers, values: list[bytes], course: Course) -> None:
    """Publish all values in order, acknowledged by all replicas in sync; each is stored once, whatever dies."""
    import bascule

    with bascule.connect(brokers.url, timeout=PUBLISH_SECONDS) as client:
        for first in range(0, len(values), BATCH):
            batch = values[first : first + BATCH]
            client.publish_many(STREAM, batch, ack="all")
            course.acknowledged.append((course.now(), len(batch)))
            time.sleep(max(0.0, first / ROWS_PER_SECOND - course.now()))


def kill_leaders(brokers: ThreeBrokers, course: Course, ended: threading.Event) -> None:
    """Kill the leader and start it again, each time after all replicas were in sync for five seconds."""
    import bascule

    with bascule.connect(brokers.url, timeout=PUBLISH_SECONDS) as client:
        while not ended.wait(KILL_SECONDS):
            leader = client.get_stream(STREAM).partitions[0].leader
            course.kills.append((course.now(), leader))
            brokers.members[leader].end(signal.SIGKILL)
            ended.wait(AWAY_SECONDS)
            brokers.members[leader].launch()
            brokers.members[leader].wait()
            wait_in_sync(client, ended)


def wait_in_sync(client: "bascule.Client", ended: threading.Event | None = None) -> None:
    """Wait until every replica is in sync, or `ended`."""
    limit = time.monotonic() + SETTLE_SECONDS
    while set(client.get_stream(STREAM).partitions[0].in_sync) != set(NAMES):
        if time.monotonic() > limit:
            sys.exit(f"demo: FAILED: not all replicas are in sync after {SETTLE_SECONDS:.0f} s")
        if ended is not None and ended.wait(0.1):
            return
        time.sleep(0.1)


def read_back(address: str) -> list[bytes | None]:
    """All values that one broker has, by its own log."""
    import bascule

    with bascule.connect(f"liftbridge://{address}", timeout=PUBLISH_SECONDS) as client:
        subscription = client.subscribe(STREAM, stop="latest", from_replica=True)
        return [record.value for batch in subscription for record in batch]


def check(brokers: ThreeBrokers, values: list[bytes]) -> None:
    """Compare what each broker has with what was published."""
    for name, member in brokers.members.items():
        found = read_back(member.address)
        if found == values:
            print(f"  {name} has {len(found):,} flights, each once and in order")
            continue
        there, wanted = Counter[bytes | None](found), Counter[bytes | None](values)
        lost, doubled = (wanted - there).total(), (there - wanted).total()
        sys.exit(f"demo: FAILED: {name} has {len(found):,} records: {lost} lost, {doubled} doubled or unknown")


def draw(course: Course) -> None:
    """Print how many records were acknowledged in each half second, and the kills."""
    bars = Counter[int]()
    for at, records in course.acknowledged:
        bars[int(at / BAR_SECONDS)] += records
    most = max(bars.values())
    kills = {int(at / BAR_SECONDS): name for at, name in course.kills}
    for number in range(max(bars) + 1):
        bar = "█" * round(BAR_WIDTH * bars[number] / most)
        killed = f"  ✗ {kills[number]} is killed" if number in kills else ""
        print(f"  {number * BAR_SECONDS:5.1f} s {bars[number] / BAR_SECONDS:8,.0f}/s {bar}{killed}")


def main() -> None:
    """Run the demo; exits with a message at the first thing that is not as it must be."""
    import bascule

    count = int(sys.argv[1]) if len(sys.argv) > 1 else None
    values = [json.dumps(row).encode() for row in load_flights()[:count]]
    print("demo: starting three brokers and three nats-servers", flush=True)
    with ThreeBrokers(FOLDER) as brokers:
        with bascule.connect(brokers.url, timeout=PUBLISH_SECONDS) as client:
            options = bascule.StreamOptions(replication_factor=3, min_isr=2)
            client.create_stream(STREAM, options=options)
            wait_in_sync(client)
        print(f"demo: publishing {len(values):,} flights, and killing the leader meanwhile", flush=True)
        course, ended = Course(), threading.Event()
        killer = threading.Thread(target=kill_leaders, args=(brokers, course, ended))
        killer.start()
        try:
            publish(brokers, values, course)
        finally:
            ended.set()
            killer.join()
        with bascule.connect(brokers.url, timeout=PUBLISH_SECONDS) as client:
            wait_in_sync(client)
        draw(course)
        print("demo: comparing what each broker has with the data set", flush=True)
        check(brokers, values)
    if not course.kills:
        sys.exit("demo: FAILED: everything was published before the first kill: publish more flights")
    print(
        f"demo: OK: {len(values):,} flights acknowledged through {len(course.kills)} kills of the leader, none lost and"
        f" none doubled; the longest time without an acknowledgement was {course.longest_gap:.1f} s"
    )


if __name__ == "__main__":
    main()
