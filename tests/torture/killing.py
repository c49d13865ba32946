"""Kills of Spark's workers and driver and of the broker, at points or at random times, and a comparison after each."""

from __future__ import annotations

import os
import random
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from bascule import StreamOptions, testing
from bascule.failpoints import NAMES, Name

from tests.failpoints import broker_failpoints
from tests.torture.copying import Copy, Ledger
from tests.torture.copying_process import LIMIT_S, Application
from tests.torture.result import Result, Scale
from tests.waiting import until

LONGEST_S: Final = 4.0
"""Kills at random times come so long after the records, at most."""
Who = Literal["worker", "driver", "broker"]
WHO: Final[tuple[Who, ...]] = get_args(Who)


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

    def add(self, other: Count) -> None:
        """Add the counts and findings of other scenes."""
        self.kills += other.kills
        self.points += other.points
        self.rows += other.rows
        self.failures += other.failures

    @property
    def total(self) -> int:
        """Number of kills."""
        return self.kills.total()


class Scene(ABC):
    """Streams, a table, and an application that works on them; for a few kills.

    Attributes:
        broker: of all scenes.
        chance: for random moments.
        folder: of this scene.
        ledger: what was published.
        application: Spark's processes.
    """

    module: str
    """Module of the application."""
    partitions: tuple[int, int]
    """Of the source and of the target."""

    def __init__(self, broker: testing.TestBroker, folder: Path, table_format: str, chance: random.Random) -> None:
        self.broker, self.chance, self.folder = broker, chance, folder
        copy = Copy(broker.address, str(folder), f"{folder.name}-in", f"{folder.name}-out", table_format)
        self.ledger = Ledger(copy)
        with broker.connect() as client:
            for name, count in zip((copy.source, copy.target), self.partitions, strict=True):
                client.create_stream(name, options=StreamOptions(partitions=count))
        copy.save(folder / "copy.json")
        self.application = Application(folder, self.module)

    @abstractmethod
    def run(self, kill: Kill) -> str | None:
        """Publish, kill, start what has died, and let all finish; how the rows differ then."""

    @abstractmethod
    def fault(self) -> str | None:
        """How the rows differ from what was published."""

    def kill_after(self, kill: Kill, begin: Callable[[], object]) -> None:
        """Begin something, kill once while it runs, and start again what has died.

        Args:
            kill: who and where.
            begin: makes the application work, for example by records.
        """
        self.start()
        if not kill.point:
            begin()
            self._at_random(kill)
        elif kill.who == "broker":
            self._broker_at(kill.point, begin)
        else:
            self._pipeline_at(kill, begin)
        self.start()

    def start(self) -> None:
        """Start the application if it does not run."""
        if not self.application.is_running:
            self.application.start()

    def wait(self, what: Callable[[], str], is_met: Callable[[], bool]) -> None:
        """Wait for a condition of the application; the error says what is so, and has the application's output."""
        until(is_met, LIMIT_S, what=lambda: f"{what()}; {self.application.diagnosis}")

    def _at_random(self, kill: Kill) -> None:
        time.sleep(self.chance.uniform(0, LONGEST_S))  # the random moment of the kill
        if kill.who == "worker":
            self.application.kill_worker(self.chance)
        elif kill.who == "driver":
            self.application.kill()
        else:
            self.broker.kill()
            self.broker.start()

    def _broker_at(self, point: str, begin: Callable[[], object]) -> None:
        self.broker.stop()
        with broker_failpoints(f"{point}=1*return(abort)"):
            self.broker.start()
        begin()
        self.wait(lambda: f"the broker is killed at {point}", lambda: not self.broker.is_running)
        self.broker.start()

    def _pipeline_at(self, kill: Kill, begin: Callable[[], object]) -> None:
        name: Name = next(known for known in NAMES if known == kill.point)
        points = self.application.points
        points.arm(name, "hold" if kill.who == "driver" else "kill")
        begin()
        if kill.who == "driver":
            self.wait(lambda: f"the application waits at {name}", lambda: points.is_held(name))
            self.application.kill()
        else:
            self.wait(lambda: f"a worker is killed at {name}", lambda: not points.is_armed(name))


@contextmanager
def _scene(
    kind: type[Scene], broker: testing.TestBroker, folder: Path, table_format: str, seed: int
) -> Generator[Scene]:
    """A scene in a folder of its own; its processes end with it."""
    folder.mkdir()
    opened = kind(broker, folder, table_format, random.Random(seed))
    try:
        yield opened
    finally:
        opened.application.kill()


def kill_all(kind: type[Scene], scenes: Iterable[tuple[str, list[Kill]]], seed: int) -> Count:
    """Kill until the end of the scenes, each a table's format with its kills, or the first finding."""
    count = Count()
    with (
        tempfile.TemporaryDirectory(prefix="bascule-kills-", ignore_cleanup_errors=True) as home,
        testing.broker(durability="disk") as broker,
    ):
        for number, (table_format, part) in enumerate(scenes):
            with _scene(kind, broker, Path(home) / f"scene-{number}", table_format, seed + number) as opened:
                for kill in part:
                    if (fault := _timed(opened, kill, count, table_format)) is not None:
                        count.failures.append(f"seed {seed}, kill {count.total}, {kill}: {fault}")
                        return count
                opened.application.stop()
                if (fault := opened.fault()) is not None:
                    count.failures.append(f"seed {seed}, after the end of scene {number}: {fault}")
                    return count
                count.rows += opened.ledger.count
    return count


def _timed(opened: Scene, kill: Kill, count: Count, table_format: str) -> str | None:
    began = time.monotonic()
    try:
        fault = opened.run(kill)
    except AssertionError as late:
        fault = str(late)
    count.kills[kill.who] += 1
    count.points[kill.point] += bool(kill.point)
    taken = time.monotonic() - began
    print(f"kill {count.total}: {kill} ({table_format}): {taken:.1f} s", flush=True)
    return fault


def asked(scale: Scale, usual: dict[Scale, tuple[int, int]]) -> tuple[int, int, int]:
    """Kills at each point, at random times, and the seed: from KILLS_PER_POINT, RANDOM_KILLS, SEED, or as usual."""
    per_point, at_random = usual[scale]
    per_point = int(os.environ.get("KILLS_PER_POINT", str(per_point)))
    at_random = int(os.environ.get("RANDOM_KILLS", str(at_random)))
    seed = int(os.environ.get("SEED", str(1 if scale is Scale.FULL else time.time_ns() % 1_000_000)))
    return per_point, at_random, seed


def result_of(row: str, title: str, count: Count, kills: list[Kill], *, rows: str) -> Result:
    """The row of the scoreboard.

    Args:
        row: its id.
        title: of the fault.
        count: of the run.
        kills: that were asked for.
        rows: what happened to the rows, as `in each target`.
    """
    for failure in count.failures:
        print(failure)
    points = Counter(kill.point for kill in kills)
    at_random = points.pop("", 0)
    each = max(points.values(), default=0)
    wanted = f"{len(points)} points × {each} and {at_random} at random" if points else f"{at_random} kills at random"
    who = ", ".join(f"{count.kills[who]} of the {who}" for who in WHO)
    return Result(
        row=row,
        title=title,
        figure=f"{len(count.failures)} violations in {count.total} kills ({who}), {count.rows:,} rows {rows}",
        bar=f"0 in {wanted}",
        passed=not count.failures and count.total == len(kills),
        numbers={
            "kills": count.total,
            "points": len(count.points),
            "rows": count.rows,
            "violations": len(count.failures),
            **{f"kills_{who}": count.kills[who] for who in WHO},
        },
    )
