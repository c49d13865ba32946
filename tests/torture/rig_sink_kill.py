"""SP1: worker, driver and broker are killed with -9 while Spark copies a stream to another stream and to a table.

At each point of the sink, the archive, the stage and the link, and at random times. The broker is killed by a failpoint
inside; Python workers kill themselves at theirs, or are held there until the driver is killed together with its JVM and
all workers. After each kill the dead are started again, the queries finish, and every row of the stream and the table
is compared with what was published: none lost, repeated, changed, invented or out of order.

`KILLS_PER_POINT=1 RANDOM_KILLS=10 SEED=7 python -m tests.torture SP1` runs so many.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from bascule import StreamOptions, testing
from bascule.failpoints import NAMES, Name

from tests.failpoints import broker_failpoints
from tests.torture.copying import SOURCE_PARTITIONS, TARGET_PARTITIONS, Copy, Ledger
from tests.torture.copying_process import LIMIT_S, Application
from tests.torture.result import Result, Scale
from tests.waiting import until

ROW = "SP1"
KILLS: Final = {Scale.FULL: (8, 80), Scale.SHORT: (0, 3)}
"""At each point, and at random times."""
KILLS_A_SCENE: Final = 8
ROWS: Final = 300
"""Records to each source partition before a kill at a point."""
RANDOM_ROWS: Final = 800
LONGEST_S: Final = 4.0
"""Kills at random times come so long after the records, at most."""
LARGE: Final = 32 << 10
"""Bytes of a value where a link is to have several groups of batches."""
Who = Literal["worker", "driver", "broker"]
WHO: Final[tuple[Who, ...]] = get_args(Who)
OF_PIPELINE: Final[tuple[Name, ...]] = tuple(name for name in NAMES if name.startswith(("sink.", "archive.")))
OF_BROKER: Final = (
    *("stage.append", "stage.written", "stage.renamed", "stage.sealed", "stage.confirmed"),
    *("link.started", "link.group_appended", "link.appended", "link.synced"),
)
IN_TASKS: Final = {"archive.files_written", "sink.staging", "sink.staged"}
"""The others are reached by the driver's commit."""


@dataclass(frozen=True)
class Kill:
    """One kill: who, and at which point; an empty point = at a random time."""

    who: Who
    point: str = ""


@dataclass
class Count:
    """Counts and findings."""

    kills: Counter[str] = field(default_factory=Counter[str])
    points: Counter[str] = field(default_factory=Counter[str])
    rows: int = 0
    failures: list[str] = field(default_factory=list[str])

    @property
    def total(self) -> int:
        """Number of kills."""
        return self.kills.total()


def schedule(per_point: int, at_random: int, chance: random.Random) -> list[Kill]:
    """All kills of a run. A point of a task kills its worker; one of a commit its process or the driver, in turns."""
    kills = [Kill("broker", point) for point in OF_BROKER for _ in range(per_point)]
    for point in OF_PIPELINE:
        for number in range(per_point):
            takes_driver = point not in IN_TASKS and number % 2 == 0
            kills.append(Kill("driver" if takes_driver else "worker", point))
    kills += [Kill(WHO[number % len(WHO)]) for number in range(at_random)]
    chance.shuffle(kills)
    return kills


class Scene:
    """Streams, a table, and an application that copies; for a few kills."""

    def __init__(self, broker: testing.TestBroker, folder: Path, table_format: str, chance: random.Random) -> None:
        self.broker, self.chance = broker, chance
        name = folder.name
        copy = Copy(broker.address, str(folder), f"{name}-in", f"{name}-out", table_format)
        self.ledger = Ledger(copy)
        with broker.connect() as client:
            client.create_stream(copy.source, options=StreamOptions(partitions=SOURCE_PARTITIONS))
            client.create_stream(copy.target, options=StreamOptions(partitions=TARGET_PARTITIONS))
        copy.save(folder / "copy.json")
        self.application = Application(folder)

    def run(self, kill: Kill) -> str | None:
        """Publish, kill, start what has died, and let the queries finish; how the rows differ then."""
        if not self.application.is_running:
            self.application.start()
        if not kill.point:
            self._at_random(kill)
        elif kill.who == "broker":
            self._broker_at(kill.point)
        else:
            self._pipeline_at(kill)
        if not self.application.is_running:
            self.application.start()
        return self.settled()

    def settled(self) -> str | None:
        """Wait for all rows; how they differ."""
        self._complete("the target stream", self.ledger.copied)
        self._complete("the table", self.ledger.archived)
        return self.fault()

    def fault(self) -> str | None:
        """How the rows differ from what was published."""
        return self.ledger.stream_fault() or self.ledger.table_fault()

    def _complete(self, what: str, count: Callable[[], int]) -> None:
        try:
            until(lambda: count() >= self.ledger.count, LIMIT_S, what=f"{what} has {self.ledger.count} rows")
        except AssertionError as late:
            raise AssertionError(f"{late}; it has {count()}; {self.application.output}") from None

    def _at_random(self, kill: Kill) -> None:
        self.ledger.publish(RANDOM_ROWS)
        time.sleep(self.chance.uniform(0, LONGEST_S))  # the random moment of the kill
        if kill.who == "worker":
            self.application.kill_worker(self.chance)
        elif kill.who == "driver":
            self.application.kill()
        else:
            self.broker.kill()
            self.broker.start()

    def _broker_at(self, point: str) -> None:
        self.broker.stop()
        with broker_failpoints(f"{point}=1*return(abort)"):
            self.broker.start()
        self.ledger.publish(ROWS, LARGE if point == "link.group_appended" else 0)
        until(lambda: not self.broker.is_running, LIMIT_S, what=f"the broker is killed at {point}")
        self.broker.start()

    def _pipeline_at(self, kill: Kill) -> None:
        name: Name = next(known for known in OF_PIPELINE if known == kill.point)
        points = self.application.points
        points.arm(name, "hold" if kill.who == "driver" else "kill")
        self.ledger.publish(ROWS)
        if kill.who == "driver":
            until(lambda: points.is_held(name), LIMIT_S, what=f"a commit waits at {name}")
            self.application.kill()
        else:
            until(lambda: not points.is_armed(name), LIMIT_S, what=f"a worker is killed at {name}")


@contextmanager
def scene(broker: testing.TestBroker, home: Path, number: int, table_format: str, seed: int) -> Generator[Scene]:
    """A scene in a folder of its own; its processes end with it."""
    folder = home / f"scene-{number}"
    folder.mkdir()
    opened = Scene(broker, folder, table_format, random.Random(seed + number))
    try:
        yield opened
    finally:
        opened.application.kill()


def scenes(kills: list[Kill]) -> Iterator[tuple[str, list[Kill]]]:
    """A few kills each, with the format of their table: only Parquet moves files."""
    of_parquet = [kill for kill in kills if kill.point == "archive.between_moves"]
    others = [kill for kill in kills if kill.point != "archive.between_moves"]
    parts = [others[first : first + KILLS_A_SCENE] for first in range(0, len(others), KILLS_A_SCENE)]
    for number, part in enumerate(parts):
        table_format = "parquet" if number % 2 else "delta"
        share = len(of_parquet) // max(1, len(parts[1::2])) + 1 if table_format == "parquet" else 0
        taken, of_parquet = of_parquet[:share], of_parquet[share:]
        yield table_format, [*part, *taken]
    if of_parquet:
        yield "parquet", of_parquet


def kill_all(kills: list[Kill], seed: int) -> Count:
    """Kill until the end of the list or the first finding."""
    count = Count()
    with (
        tempfile.TemporaryDirectory(prefix="bascule-sp1-", ignore_cleanup_errors=True) as home,
        testing.broker(durability="disk") as broker,
    ):
        for number, (table_format, part) in enumerate(scenes(kills)):
            with scene(broker, Path(home), number, table_format, seed) as opened:
                for kill in part:
                    began = time.monotonic()
                    try:
                        fault = opened.run(kill)
                    except AssertionError as late:
                        fault = str(late)
                    count.kills[kill.who] += 1
                    count.points[kill.point] += bool(kill.point)
                    taken = time.monotonic() - began
                    print(f"kill {count.total}/{len(kills)}: {kill} ({table_format}): {taken:.1f} s", flush=True)
                    if fault is not None:
                        count.failures.append(f"seed {seed}, kill {count.total}, {kill}: {fault}")
                        return count
                opened.application.stop()
                if (fault := opened.fault()) is not None:
                    count.failures.append(f"seed {seed}, after the end of scene {number}: {fault}")
                    return count
                count.rows += opened.ledger.count
    return count


def run(scale: Scale) -> Result:
    """Kill them."""
    per_point, at_random = KILLS[scale]
    per_point = int(os.environ.get("KILLS_PER_POINT", str(per_point)))
    at_random = int(os.environ.get("RANDOM_KILLS", str(at_random)))
    seed = int(os.environ.get("SEED", str(1 if scale is Scale.FULL else time.time_ns() % 1_000_000)))
    kills = schedule(per_point, at_random, random.Random(seed))
    count = kill_all(kills, seed)
    for failure in count.failures:
        print(failure)
    points = len(OF_BROKER) + len(OF_PIPELINE) if per_point else 0
    asked = f"{points} points × {per_point} and {at_random} at random" if points else f"{at_random} kills at random"
    who = ", ".join(f"{count.kills[who]} of the {who}" for who in WHO)
    return Result(
        row=ROW,
        title="kill -9 of Spark's workers and driver and of the broker, exactly-once sink and archive",
        figure=f"{len(count.failures)} violations in {count.total} kills ({who}), {count.rows:,} rows in each target",
        bar=f"0 in {asked}",
        passed=not count.failures and count.total == len(kills),
        numbers={
            "kills": count.total,
            "points": len(count.points),
            "rows": count.rows,
            "violations": len(count.failures),
            **{f"kills_{who}": count.kills[who] for who in WHO},
        },
    )
