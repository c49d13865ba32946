"""Lanes of a replay: order of incarnations, bounds, positions."""

from bascule.lake.ranges import Source
from bascule.spark.replaying.lanes import Position, Share, from_document, lanes_of, share_of, to_document
from bascule.spark.replaying.options import Bounds

OLD, NEW, OTHER = Source("s", 3, 0), Source("s", 8, 0), Source("s", 4, 1)


def test_a_lane_has_the_incarnations_of_a_partition_oldest_first() -> None:
    lanes = lanes_of([(NEW, 0, 5), (OTHER, 7, 9), (OLD, 10, 20)], Bounds())
    assert [lane.partition for lane in lanes] == [0, 1]
    assert [(part.source, part.first, part.end) for part in lanes[0].parts] == [(OLD, 10, 20), (NEW, 0, 5)]
    assert (lanes[0].start, lanes[0].end) == (Position(0, 10), Position(2, 0))


def test_bounds_cut_offsets_and_leave_out_what_is_empty() -> None:
    lanes = lanes_of([(OLD, 0, 20), (OTHER, 0, 5)], Bounds(first=5, end=12))
    assert [(part.first, part.end) for lane in lanes for part in lane.parts] == [(5, 12)]
    assert lanes_of([(OLD, 0, 20)], Bounds(first=20)) == ()


def test_between_two_positions_are_the_rests_of_the_parts() -> None:
    (lane,) = lanes_of([(OLD, 10, 20), (NEW, 0, 5)], Bounds())

    def shown(start: Position, end: Position) -> list[tuple[int, int, int]]:
        return [(number, part.first, part.end) for number, part in lane.between(start, end)]

    assert shown(lane.start, lane.end) == [(0, 10, 20), (1, 0, 5)]
    assert shown(Position(0, 15), Position(1, 2)) == [(0, 15, 20), (1, 0, 2)]
    assert shown(Position(0, 15), Position(0, 17)) == [(0, 15, 17)]
    assert shown(Position(0, 15), Position(1, 0)) == [(0, 15, 20)]
    assert shown(Position(1, 4), lane.end) == [(1, 4, 5)]
    assert shown(lane.end, lane.end) == []


def test_a_position_at_the_end_of_a_part_is_the_start_of_the_next() -> None:
    (lane,) = lanes_of([(OLD, 10, 20), (NEW, 2, 5)], Bounds())
    assert lane.normal(0, 19) == Position(0, 19)
    assert lane.normal(0, 20) == Position(1, 2)
    assert lane.normal(1, 5) == lane.end


def test_a_plan_survives_its_document() -> None:
    lanes = lanes_of([(OLD, 10, 20), (NEW, 2, 5), (OTHER, 1, 2)], Bounds())
    assert from_document(to_document(lanes)) == lanes


def test_the_shares_of_lanes_keep_to_the_bounds_of_an_epoch() -> None:
    assert share_of(3, 100, 1000) == Share(33, 333)
    assert share_of(7, 3, 5) == Share(1, 1)
