"""LB-kill: the broker is killed with -9 while Liftbridge clients use all its features, and restarted on the same data.

Publishers with all three methods on logs that are kept, retained and compacted, a live reader, cursors, groups whose
members join and leave, streams that are created, paused, made read-only and deleted. After each start everything is
read again. `liftbridge_ledger` checks that no acked record, cursor or group change was lost and no answer is wrong; the
rig measures the time from the kill until a record can be read.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bascule import testing

from tests.conformance.api import Api
from tests.torture.liftbridge_ledger import Judge, Ledger
from tests.torture.liftbridge_load import (
    DEADLINE_S,
    MADE_TO_GO,
    RETAINED,
    Cursors,
    Groups,
    Life,
    Log,
    Publisher,
    Reader,
    Streams,
    Worker,
    first_record,
    until_killed,
)
from tests.torture.result import Result, Scale

ROW = "LB-kill"
KILLS: Final = {Scale.FULL: 100, Scale.SHORT: 3}
SHORT_SECONDS: Final = 45.0
"""Time limit of the short share, with at least one kill, because a busy machine starts a broker slowly."""
LIVES_OF_A_SCENE: Final = 10
LONGEST_LIFE_S: Final = {Scale.FULL: 2.0, Scale.SHORT: 0.8}
READABLE_S: Final = 2.0
"""Maximum time from the kill until a record was read; a bar of the full run on an idle machine."""
SETTINGS: Final = {
    "cursors.partitions": 2,
    "activity.enabled": True,
    "groups.consumer_timeout_ms": 600_000,
    "streams.retention_min_age_ms": 0,
    "streams.cleaner_interval_ms": 50,
    "streams.segment_max_bytes": 32_768,
}


@dataclass
class Scene:
    """Streams and their users, for some runs of the broker."""

    number: int
    logs: list[Log] = field(default_factory=list[Log])
    workers: list[Worker] = field(default_factory=list[Worker])
    streams: list[Streams] = field(default_factory=list[Streams])

    def prepare(self, api: Api, ledger: Ledger) -> None:
        """Create the streams."""
        kept, retained, compacted = (f"{name}-{self.number}" for name in ("kept", "retained", "compacted"))
        api.create(kept, partitions=2)
        api.create(retained, retentionMaxMessages={"value": RETAINED}, **MADE_TO_GO)
        api.create(compacted, compactEnabled={"value": True}, **MADE_TO_GO)
        first, second = Log(kept), Log(kept, 1)
        bounded, keyed = Log(retained, policy="retain"), Log(compacted, policy="compact")
        self.logs = [first, second, bounded, keyed]
        self.workers = [
            Publisher("unary", first, "unary"),
            Publisher("subject", first, "subject"),
            Publisher("stream", first, "stream"),
            Publisher("stream", second, "stream"),
            Publisher("unary", bounded, "unary"),
            Publisher("stream", bounded, "stream"),
            Publisher("stream", keyed, "stream"),
            Reader(second),
            Cursors(kept),
            Groups(retained, 1, f"one-{self.number}"),
            Groups(kept, 2, f"two-{self.number}"),
        ]
        self.streams = [Streams(f"changing-{self.number}"), Streams(f"other-{self.number}")]
        for item in [*self.logs, *self.workers, *self.streams]:
            if isinstance(item, Log | Cursors | Groups | Streams):
                item.declare(ledger)
        api.publish(kept, b"unary:0 ")
        self.workers[0] = Publisher("unary", first, "unary", next_number=1)
        first.sent(ledger, "unary:0")
        first.acked(ledger, "unary:0", 0)

    def live(self, broker: testing.TestBroker, ledger: Ledger, chance: random.Random, longest_s: float) -> float:
        """Run, kill, restart, record the state. Returns the seconds from the kill until a record was read."""
        life = Life(broker.address, ledger, random.Random(chance.random()))
        working = [*self.workers, *self.streams]
        threads = [threading.Thread(target=until_killed, args=(one, life), daemon=True) for one in working]
        for thread in threads:
            thread.start()
        time.sleep(chance.uniform(0.05, longest_s))  # the time of the kill
        life.dying.set()
        killed = time.monotonic()
        broker.kill()
        broker.start()
        first_record(broker.address, self.logs[0])
        readable = time.monotonic() - killed
        for thread in threads:
            thread.join(2 * DEADLINE_S)
            assert not thread.is_alive(), "a call still waits although its broker has ended"
        with Api(broker.address) as api:
            self._look(api, life)
        return readable

    def _look(self, api: Api, life: Life) -> None:
        for log in self.logs:
            log.look(api, life.ledger)
        for worker in [*self.workers, *self.streams]:
            worker.look(api, life)
        for stream in self.streams:
            stream.look_into(api, life)

    def clear(self, api: Api) -> None:
        """Delete its streams."""
        for name in sorted({log.stream for log in self.logs}):
            api.call("DeleteStream", DEADLINE_S, name=name)


@dataclass
class Starts:
    """Measurements of each start."""

    readable: list[float] = field(default_factory=list[float])
    """Seconds from the kill until a record was read."""
    load: list[float] = field(default_factory=list[float])
    """Load average of the machine over one minute."""


def kill_often(scale: Scale, seed: int) -> tuple[Judge, Starts]:
    """Kill it until the goal is reached or a check fails. Returns the judge and the starts."""
    judge, chance, starts = Judge(), random.Random(seed), Starts()
    kills = KILLS[scale]
    stop = time.monotonic() + (SHORT_SECONDS if scale is Scale.SHORT else float("inf"))
    with (
        tempfile.TemporaryDirectory(prefix="bascule-ledger-") as aside,
        Ledger(Path(aside) / "ledger") as ledger,
        testing.broker(durability="disk", settings=SETTINGS) as broker,
    ):
        while len(starts.readable) < kills and not judge.verdict.violations and time.monotonic() < stop:
            scene = Scene(len(starts.readable))
            with Api(broker.address) as api:
                scene.prepare(api, ledger)
            for _ in range(min(LIVES_OF_A_SCENE, kills - len(starts.readable))):
                starts.readable.append(scene.live(broker, ledger, chance, LONGEST_LIFE_S[scale]))
                starts.load.append(os.getloadavg()[0])
                judge.follow(ledger.take())
                if judge.verdict.violations or time.monotonic() > stop:
                    break
            with Api(broker.address) as api:
                scene.clear(api)
    return judge, starts


def run(scale: Scale) -> Result:
    """Kill it."""
    full = scale is Scale.FULL
    kills = KILLS[scale]
    seed = 1 if full else time.time_ns() % 1_000_000
    judge, starts = kill_often(scale, seed)
    verdict, readable, load = judge.verdict, starts.readable, statistics.median(starts.load)
    for detail in verdict.details:
        print(f"seed {seed}: {detail}")
    slow = sum(seconds > READABLE_S for seconds in readable)
    acked = {what: verdict.acked.get(what, 0) for what in ("record", "cursor", "group", "stream")}
    removed = {policy: verdict.removed.get(policy, 0) for policy in ("retain", "compact")}
    used = len(readable) == kills and all(acked.values()) and all(removed.values()) and not slow
    return Result(
        row=ROW,
        title="kill -9 under Liftbridge clients: publishes, cursors, groups, pauses, deletions, retention, compaction",
        figure=f"{verdict.violations} violations in {len(readable)} kills ({acked['record']:,} records, "
        f"{acked['cursor']:,} cursors, {acked['group']:,} group changes, {acked['stream']:,} stream changes acked); "
        f"readable after {max(readable):.1f} s at most, {slow} times over {READABLE_S:g} s, at a load of {load:.1f}",
        bar=f"0 in {kills} kills; <= {READABLE_S:g} s each" if full else "0",
        passed=not verdict.violations and (used or not full),
        numbers={
            "kills": len(readable),
            "violations": verdict.violations,
            **{f"acked_{what}s": count for what, count in acked.items()},
            **{f"removed_by_{policy}": count for policy, count in removed.items()},
            "readable_seconds_worst": round(max(readable), 3),
            "readable_seconds_median": round(statistics.median(readable), 3),
            "load_average": round(load, 1),
        },
    )
