"""Published epochs of sinks are appended to their partitions, exactly once."""

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.engine.plane import FIRST_INCARNATION, Plane, sink, values
from tests.integration.faults.mount import mounted

FIRST = FIRST_INCARNATION


def test_a_published_epoch_is_linked_and_reported_until_the_table_shows_it(tmp_path: Path) -> None:
    with Plane(tmp_path) as plane:
        plane.publish(b"before")
        plane.set_sinks(sink())
        pieces = plane.stage([values(0, 3), values(3, 2)], task=0) + plane.stage([values(5, 1)], task=1)
        assert plane.rows() == [b"before"]
        assert plane.engine.statistics()["staged_bytes"] == 2 * 4096
        plane.set_sinks(sink(link=plane.decided(pieces, tasks=2), epoch=0))
        assert plane.linked(FIRST) == [1]
        assert plane.rows() == [b"before", *values(0, 6)]
        seen = len(plane.changes("linked"))
        plane.until("it is reported again", lambda: len(plane.changes("linked")) > seen)
        plane.set_sinks(sink(epoch=0))
        plane.until("its pieces are gone", lambda: plane.engine.statistics()["staged_bytes"] == 0)
        counted = plane.engine.statistics()
        assert (counted["linked_rows"], counted["links_waiting"]) == (6, 0)
        assert plane.changes("link_blocked") == []


def test_read_only_and_paused_targets_get_their_rows(tmp_path: Path) -> None:
    with Plane(tmp_path, partitions=2) as plane:
        plane.set_sinks(sink())
        pieces = plane.stage([values(0, 4)], task=0) + plane.stage([values(4, 4)], task=1)
        link = plane.decided(pieces, tasks=2)
        plane.open(FIRST, readonly=True)
        with pytest.raises(Exception, match="read-only"):
            plane.publish(b"refused")
        plane.engine.close_partitions([FIRST + 1])
        plane.set_sinks(sink(link=link, epoch=0))
        assert plane.linked(FIRST) == [0]
        assert plane.rows(0) == values(0, 4)
        assert {event.incarnation for event in plane.changes("linked")} == {FIRST}
        plane.open(FIRST + 1)
        assert plane.linked(FIRST + 1) == [0]
        assert plane.rows(1) == values(4, 4)


def test_two_sinks_and_publishes_between_them_keep_each_order(tmp_path: Path) -> None:
    with Plane(tmp_path) as plane:
        plane.set_sinks(sink(1), sink(2))
        pieces = {number: plane.stage([values(100 * number, 50)], sink=number) for number in (1, 2)}
        links = {number: plane.decided(pieces[number], sink=number) for number in (1, 2)}
        plane.publish(b"first")
        plane.set_sinks(*(sink(number, link=links[number], epoch=0) for number in (1, 2)))
        for _ in range(20):
            plane.publish(b"foreign")
        starts = [plane.linked(FIRST, sink=number)[0] for number in (1, 2)]
        rows = plane.rows()
        for number, start in zip((1, 2), starts, strict=True):
            expected = values(100 * number, 50)
            assert [row for row in rows if row in set(expected)] == expected
            assert rows[start] == expected[0]
        assert len(rows) == 121


def test_a_full_disk_delays_a_link_and_says_so_until_there_is_space(tmp_path: Path) -> None:
    place, rows = tmp_path / "mount", values(0, 4000, 1000)
    with mounted(place, "-o", "size=64m"), Plane(place / "data") as plane:
        plane.set_sinks(sink())
        pieces = plane.stage([rows[:1000], rows[1000:2000], rows[2000:3000], rows[3000:]])
        link = plane.decided(pieces)
        filler = place / "filler"
        with filler.open("wb", buffering=0) as file, suppress(OSError):
            while file.write(b"\0" * 4096):
                pass
        plane.set_sinks(sink(link=link, epoch=0))
        plane.until("the delay is reported", lambda: bool(plane.changes("link_blocked")))
        assert "no space left" in plane.changes("link_blocked")[0].message
        assert plane.changes("linked") == []
        assert plane.engine.statistics()["staged_bytes"] > 4_000_000, "the pieces stay"
        filler.unlink()
        assert plane.linked(FIRST) == [0]
        assert plane.rows() == rows


_CHILD = """
import os, signal, sys, time
from pathlib import Path
from tests.integration.engine.plane import FIRST_INCARNATION, Plane, sink, values

data, stop, mode = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
plane = Plane(data, durability=mode).__enter__()
plane.publish(b"before")
plane.set_sinks(sink())
pieces = [piece for task in range(4) for piece in plane.stage(
    [values(4000 * task + part * 1000, 1000, 1000) for part in range(4)], task=task)]
link = plane.decided(pieces, tasks=4)
plane.publish(b"between")
print(__import__("json").dumps(link), flush=True)
plane.set_sinks(sink(link=link, epoch=0))
while plane.engine.status([FIRST_INCARNATION])[0][3] < stop:
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("durability", ["disk", "memory"])
@pytest.mark.parametrize("stop", [3, 3000, 9000, 16_002])
def test_after_a_kill_the_link_continues_and_stores_each_row_once(tmp_path: Path, stop: int, durability: str) -> None:
    command = [sys.executable, "-c", _CHILD, str(tmp_path), str(stop), durability]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    link = json.loads(done.stdout)
    with Plane(tmp_path, sink(link=link, epoch=0), durability=durability) as plane:
        plane.publish(b"after")
        assert plane.linked(FIRST) == [2]
        foreign = {b"before", b"between", b"after"}
        rows = plane.rows()
        assert [row for row in rows if row not in foreign] == values(0, 16_000, 1000)
        assert sorted(set(rows) & foreign) == sorted(foreign)
        assert len(rows) == 16_003
