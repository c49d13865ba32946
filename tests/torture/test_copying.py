"""The comparison of SP1 finds what is lost, repeated, changed or out of order; its schedule has every point."""

import random
import re
import zlib
from collections import Counter
from pathlib import Path

import pytest

from tests.torture import rig_lake_kill
from tests.torture.copying import TARGET_PARTITIONS, Row, difference, misplaced, row
from tests.torture.copying_process import Application
from tests.torture.rig_sink_kill import OF_BROKER, OF_PIPELINE, scenes, schedule

ROWS = [row(partition, number, 0) for partition in (0, 1) for number in range(50)]


def spread(rows: list[Row]) -> list[list[Row]]:
    """By partition, as a sink does that is right; rows without a key go to the first."""
    found: list[list[Row]] = [[] for _ in range(TARGET_PARTITIONS)]
    for item in rows:
        found[zlib.crc32(item.key) % TARGET_PARTITIONS if item.key is not None else 0].append(item)
    return found


def test_rows_of_a_sink_that_is_right_do_not_differ() -> None:
    assert difference(Counter(ROWS), Counter(ROWS)) is None
    assert next(misplaced(spread(ROWS)), None) is None
    assert row(1, 7, 100).place == (1, 7)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ROWS[1:], "1 lost"),
        ([*ROWS, ROWS[3]], "1 repeated"),
        ([*ROWS[1:], ROWS[0]._replace(key=b"other")], "1 lost .*, 1 invented"),
        ([*ROWS[1:], ROWS[0]._replace(headers=())], "1 lost .*, 1 invented"),
        ([], "100 lost"),
    ],
)
def test_a_difference_is_named(found: list[Row], said: str) -> None:
    text = difference(Counter(ROWS), Counter(found))
    assert text is not None
    assert re.match(said, text)


def test_rows_in_another_order_or_partition_are_named() -> None:
    found = spread(ROWS)
    found[1][0], found[1][1] = found[1][1], found[1][0]
    assert "after" in next(misplaced(found))
    found = spread(ROWS)
    found[2].append(found[1].pop())
    assert "is in partition 2" in next(misplaced(found))


def test_every_point_is_in_a_schedule_as_often_as_asked_and_in_one_scene() -> None:
    kills = schedule(8, 80, random.Random(1))
    assert Counter(kill.point for kill in kills) == {"": 80, **dict.fromkeys((*OF_BROKER, *OF_PIPELINE), 8)}
    parts = list(scenes(kills))
    assert sorted((kill for _, part in parts for kill in part), key=str) == sorted(kills, key=str)
    moves = {table_format for table_format, part in parts for kill in part if kill.point == "archive.between_moves"}
    assert moves == {"parquet"}
    assert len({kill.who for kill in kills if not kill.point}) == 3


def test_every_point_of_archive_replay_and_merge_is_in_the_schedule_of_sp2() -> None:
    kills = rig_lake_kill.schedule(5, 30, random.Random(1))
    points = (*rig_lake_kill.OF_BROKER, *rig_lake_kill.OF_ARCHIVE, *rig_lake_kill.OF_REPLAY, *rig_lake_kill.OF_MERGE)
    assert Counter(kill.point for kill in kills) == {"": 30, **dict.fromkeys(points, 5)}
    assert len(kills) == 100
    merges, others = rig_lake_kill.of_merges(kills)
    assert Counter(kill.point for kill in merges) == {"": 15, **dict.fromkeys(rig_lake_kill.OF_MERGE, 5)}
    parts = list(rig_lake_kill.scenes(others))
    assert sorted([*merges, *(kill for _, part in parts for kill in part)], key=str) == sorted(kills, key=str)
    moves = {table_format for table_format, part in parts for kill in part if kill.point == "archive.between_moves"}
    assert moves == {"parquet"}
    assert {table_format for table_format, _ in parts} == {"delta", "iceberg", "parquet"}
    merged = list(rig_lake_kill.scenes(merges, rig_lake_kill.MERGED_FORMATS))
    assert {table_format for table_format, _ in merged} == {"delta", "iceberg"}
    assert sorted((kill for _, part in merged for kill in part), key=str) == sorted(merges, key=str)


def test_the_failure_of_an_application_that_ends_at_its_start_has_its_output(tmp_path: Path) -> None:
    application = Application(tmp_path, "tests.torture.copying_app")
    with pytest.raises(AssertionError, match=r"(?s)the application ended with 1; .*No such file .*copy\.json"):
        application.start()
    application.kill()
