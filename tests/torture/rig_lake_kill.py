"""SP2: worker, driver and broker are killed with -9 while streams are archived, replayed and merged into tables.

At each point of the archive, of the replay, of the merge and of the link, and at random times. A turn of an archive
publishes records, waits until the table has them, and replays them into another stream; one kill comes in one of both
halves. Then every row of the table and of the stream is compared with what was published, in the partitions and in the
order of the source. A turn of a merge publishes changes, with one kill while queries merge them into a table of the
latest records and, in Delta, into one of all versions; then every row of each is compared. Archives are Delta, Iceberg
and Parquet tables, merges Delta and Iceberg tables; which format has the first kills depends on the seed.

`KILLS_PER_POINT=1 RANDOM_KILLS=10 SEED=7 python -m tests.torture SP2` runs so many.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from bascule import testing
from bascule.failpoints import NAMES, Name

from tests.torture.copying import SOURCE_PARTITIONS, read
from tests.torture.killing import WHO, Kill, Scene, asked, kill_all, result_of
from tests.torture.merging import Changes
from tests.torture.result import Result, Scale

ROW = "SP2"
KILLS: Final = {Scale.FULL: (5, 30), Scale.SHORT: (0, 2)}
"""At each point, and at random times."""
KILLS_A_SCENE: Final = 10
ROWS: Final = 300
"""Records to each partition in a turn: two epochs of the archive, and four of the replay."""
OF_ARCHIVE: Final[tuple[Name, ...]] = tuple(name for name in NAMES if name.startswith("archive."))
OF_REPLAY: Final[tuple[Name, ...]] = tuple(name for name in NAMES if name.startswith("replay."))
OF_MERGE: Final[tuple[Name, ...]] = tuple(name for name in NAMES if name.startswith("merge."))
OF_BROKER: Final = ("stage.confirmed", "link.started", "link.appended", "link.synced")
FORMATS: Final = ("delta", "iceberg", "parquet")
MERGED_FORMATS: Final = ("delta", "iceberg")


def schedule(per_point: int, at_random: int, chance: random.Random) -> list[Kill]:
    """All kills of a run. Points of replays and merges kill the driver, those of the archive a process or the driver in
    turns.
    """
    kills = [Kill("broker", point) for point in OF_BROKER for _ in range(per_point)]
    kills += [Kill("driver", point) for point in (*OF_REPLAY, *OF_MERGE) for _ in range(per_point)]
    for point in OF_ARCHIVE:
        for number in range(per_point):
            takes_driver = point != "archive.files_written" and number % 2 == 0
            kills.append(Kill("driver" if takes_driver else "worker", point))
    kills += [Kill(WHO[number % len(WHO)]) for number in range(at_random)]
    chance.shuffle(kills)
    return kills


class Replaying(Scene):
    """A stream, its archive, and a stream that takes the replays."""

    module = "tests.torture.replaying_app"
    partitions = (SOURCE_PARTITIONS, SOURCE_PARTITIONS)
    turn = 0

    def run(self, kill: Kill) -> str | None:
        """As `Scene.run`: one turn."""
        in_archive = kill.point in OF_ARCHIVE or (not kill.point and self.chance.random() < 0.5)
        first = len(self.ledger.rows[0])
        self._half(kill if in_archive else None, lambda: self.ledger.publish(ROWS))
        self.wait(
            lambda: f"the table has {self.ledger.archived()} of {self.ledger.count} rows",
            lambda: self.ledger.archived() >= self.ledger.count,
        )
        request = self.folder / f"replay-{self.turn:03}.json"
        self.turn += 1
        content = json.dumps([first, len(self.ledger.rows[0])])
        self._half(None if in_archive else kill, lambda: _place(request, content))
        self.wait(lambda: f"{request.stem} is done", request.with_suffix(".done").exists)
        return self.fault()

    def fault(self) -> str | None:
        """As `Scene.fault`."""
        copy = self.ledger.copy
        for partition, wanted in enumerate(self.ledger.rows):
            found = read(copy.address, copy.target, partition)
            if found != wanted:
                pairs = enumerate(zip(found, wanted, strict=False))
                differs = next((number for number, (a, b) in pairs if a != b), min(len(found), len(wanted)))
                return f"{copy.target}/{partition} has {len(found)} of {len(wanted)} rows; other from {differs} on"
        return self.ledger.table_fault()

    def _half(self, kill: Kill | None, begin: Callable[[], object]) -> None:
        if kill is not None:
            self.kill_after(kill, begin)
            return
        self.start()
        begin()


class Merging(Scene):
    """A stream of changes, and the tables that are kept from it."""

    module = "tests.torture.merging_app"
    partitions = (SOURCE_PARTITIONS, SOURCE_PARTITIONS)

    def __init__(self, broker: testing.TestBroker, folder: Path, table_format: str, chance: random.Random) -> None:
        super().__init__(broker, folder, table_format, chance)
        self.changes = Changes(self.ledger.copy)
        self.ledger = self.changes

    def run(self, kill: Kill) -> str | None:
        """As `Scene.run`: one turn."""
        self.kill_after(kill, lambda: self.changes.publish(ROWS))
        self.wait(
            lambda: f"the tables have {self.changes.merged()} of {self.changes.count} changes",
            lambda: self.changes.merged() >= self.changes.count,
        )
        return self.fault()

    def fault(self) -> str | None:
        """As `Scene.fault`."""
        return self.changes.fault()


def _place(path: Path, content: str) -> None:
    draft = path.with_suffix(".draft")
    draft.write_text(content)
    draft.rename(path)


def of_merges(kills: list[Kill]) -> tuple[list[Kill], list[Kill]]:
    """The kills of merges, and the others: every second one at a random time is during a merge."""
    at_random = [kill for kill in kills if not kill.point]
    merges = [kill for kill in kills if kill.point in OF_MERGE] + at_random[1::2]
    others = [kill for kill in kills if kill.point and kill.point not in OF_MERGE] + at_random[::2]
    return merges, others


def scenes(
    kills: list[Kill], formats: Sequence[str] = FORMATS, first_format: int = 0
) -> Iterator[tuple[str, list[Kill]]]:
    """A few kills each, with the format of their table: only Parquet moves files."""
    by_format: dict[str, list[Kill]] = {name: [] for name in formats}
    for number, kill in enumerate(kills, first_format):
        moves = kill.point == "archive.between_moves"
        by_format["parquet" if moves else formats[number % len(formats)]].append(kill)
    for name, part in by_format.items():
        for first in range(0, len(part), KILLS_A_SCENE):
            yield name, part[first : first + KILLS_A_SCENE]


def run(scale: Scale) -> Result:
    """Kill them."""
    per_point, at_random, seed = asked(scale, KILLS)
    kills = schedule(per_point, at_random, random.Random(seed))
    merges, others = of_merges(kills)
    count = kill_all(Replaying, scenes(others, FORMATS, seed), seed)
    if not count.failures:
        count.add(kill_all(Merging, scenes(merges, MERGED_FORMATS, seed), seed))
    title = "kill -9 of Spark's workers and driver and of the broker, archive, replay and merge"
    return result_of(ROW, title, count, kills, rows="archived and replayed, or merged")
