"""SP1: worker, driver and broker are killed with -9 while Spark copies a stream to another stream and to a table.

At each point of the sink, the archive, the stage and the link, and at random times. The broker is killed by a failpoint
inside; Python workers kill themselves at theirs, or are held there until the driver is killed together with its JVM and
all workers. After each kill the dead are started again, the queries finish, and every row of the stream and the table
is compared with what was published: none lost, repeated, changed, invented or out of order.

`KILLS_PER_POINT=1 RANDOM_KILLS=10 SEED=7 python -m tests.torture SP1` runs so many.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from bascule.failpoints import NAMES, Name

from tests.torture.copying import SOURCE_PARTITIONS, TARGET_PARTITIONS
from tests.torture.killing import WHO, Kill, Scene, asked, kill_all, result_of
from tests.torture.result import Result, Scale

ROW = "SP1"
KILLS: Final = {Scale.FULL: (8, 80), Scale.SHORT: (0, 3)}
"""At each point, and at random times."""
KILLS_A_SCENE: Final = 8
ROWS: Final = 300
"""Records to each source partition before a kill at a point."""
RANDOM_ROWS: Final = 800
LARGE: Final = 32 << 10
"""Bytes of a value where a link is to have several groups of batches."""
OF_PIPELINE: Final[tuple[Name, ...]] = tuple(name for name in NAMES if name.startswith(("sink.", "archive.")))
OF_BROKER: Final = (
    *("stage.append", "stage.written", "stage.renamed", "stage.sealed", "stage.confirmed"),
    *("link.started", "link.group_appended", "link.appended", "link.synced"),
)
IN_TASKS: Final = {"archive.files_written", "sink.staging", "sink.staged"}
"""The others are reached by the driver's commit."""


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


class Copying(Scene):
    """A stream that is copied to another stream and to a table."""

    module = "tests.torture.copying_app"
    partitions = (SOURCE_PARTITIONS, TARGET_PARTITIONS)

    def run(self, kill: Kill) -> str | None:
        """As `Scene.run`."""
        rows = ROWS if kill.point else RANDOM_ROWS
        size = LARGE if kill.point == "link.group_appended" else 0
        self.kill_after(kill, lambda: self.ledger.publish(rows, size))
        for what, count in (("the target stream", self.ledger.copied), ("the table", self.ledger.archived)):
            self.wait(
                lambda what=what, count=count: f"{what} has {count()} of {self.ledger.count} rows",
                lambda count=count: count() >= self.ledger.count,
            )
        return self.fault()

    def fault(self) -> str | None:
        """As `Scene.fault`."""
        return self.ledger.stream_fault() or self.ledger.table_fault()


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


def run(scale: Scale) -> Result:
    """Kill them."""
    per_point, at_random, seed = asked(scale, KILLS)
    kills = schedule(per_point, at_random, random.Random(seed))
    title = "kill -9 of Spark's workers and driver and of the broker, exactly-once sink and archive"
    return result_of(ROW, title, kill_all(Copying, scenes(kills), seed), kills, rows="in each target")
