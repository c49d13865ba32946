from random import Random

from bascule.spark.admission import Backlog, admit, is_worth_starting
from bascule.spark.options import Limits
from bascule.spark.planning import Packing, Range, plan
from hypothesis import given
from hypothesis import strategies as st

sizes = st.lists(st.integers(0, 3_000_000), max_size=40)
packings = st.builds(
    Packing,
    slots=st.integers(1, 8),
    min_partitions=st.integers(0, 20),
    max_partitions=st.sampled_from([0, 20, 50]),
    max_records=st.sampled_from([0, 100_000, 1_000_000]),
)


def whole(size: list[int]) -> list[Range]:
    return [Range(f"s{i % 3}", i, 7 * i, 7 * i + n, 1) for i, n in enumerate(size)]


@given(sizes, packings)
def test_every_offset_is_in_exactly_one_task(size: list[int], packing: Packing) -> None:
    ranges = whole(size)
    tasks = plan(ranges, packing)
    assert all(tasks)
    pieces = sorted(piece for task in tasks for piece in task)
    for each in ranges:
        mine = [p for p in pieces if (p.stream, p.partition) == (each.stream, each.partition)]
        assert [p.size > 0 for p in mine] == [True] * len(mine)
        edges = [each.start, *(p.end for p in mine)]
        assert edges[:-1] == [p.start for p in mine]
        assert edges[-1] == each.end


@given(sizes, packings)
def test_bounds_on_tasks_hold(size: list[int], packing: Packing) -> None:
    tasks = plan(whole(size), packing)
    total = sum(size)
    if packing.max_records:
        assert all(sum(p.size for p in task) <= packing.max_records for task in tasks)
    else:
        assert len(tasks) <= max(packing.max_partitions or 3 * packing.slots, packing.min_partitions)
    if total > 100 * packing.min_partitions:
        assert len(tasks) >= packing.min_partitions


@given(sizes, packings, st.randoms())
def test_the_order_of_ranges_changes_nothing(size: list[int], packing: Packing, random: Random) -> None:
    ranges = whole(size)
    shuffled = list(ranges)
    random.shuffle(shuffled)
    assert plan(ranges, packing) == plan(shuffled, packing)


def test_small_ranges_share_one_task() -> None:
    assert len(plan(whole([1] * 32), Packing(slots=2))) == 1


def test_one_large_range_fills_all_slots() -> None:
    tasks = plan(whole([1_000_000]), Packing(slots=4))
    assert [task[0].size for task in tasks] == [250_000] * 4


def test_uneven_ranges_are_balanced() -> None:
    tasks = plan(whole([1_000_000, 10, 10, 10]), Packing(slots=2))
    loads = [sum(p.size for p in task) for task in tasks]
    assert max(loads) <= 500_030


def test_packing_survives_its_document() -> None:
    packing = Packing(slots=2, min_partitions=3, max_partitions=9, max_records=5)
    document = packing.to_document()
    assert document == {"maxPartitions": 9, "maxRecords": 5, "minPartitions": 3, "slots": 2}
    assert Packing.from_document(document) == packing


def test_limits_are_shared_out_by_backlog() -> None:
    backlogs = {("s", 0): Backlog(0, 900), ("s", 1): Backlog(50, 150), ("s", 2): Backlog(5, 5)}
    assert admit(backlogs, Limits(max_offsets=100)) == {("s", 0): 90, ("s", 1): 60, ("s", 2): 5}
    assert admit(backlogs, Limits()) == {("s", 0): 900, ("s", 1): 150, ("s", 2): 5}


def test_bytes_limit_by_the_mean_record_size() -> None:
    backlogs = {("s", 0): Backlog(0, 1000, record_bytes=10.0)}
    assert admit(backlogs, Limits(max_bytes=2000)) == {("s", 0): 200}


@given(st.dictionaries(st.integers(0, 30), st.integers(0, 10**12), min_size=1), st.integers(1, 10**6))
def test_admitted_ends_stay_in_the_backlog(size: dict[int, int], most: int) -> None:
    backlogs = {("s", n): Backlog(n, n + count) for n, count in size.items()}
    ends = admit(backlogs, Limits(max_offsets=most))
    taken = {key: ends[key] - backlog.start for key, backlog in backlogs.items()}
    assert all(0 <= taken[key] <= backlog.size for key, backlog in backlogs.items())
    assert all(taken[key] > 0 for key, backlog in backlogs.items() if backlog.size)
    assert sum(taken.values()) <= most + len(size)


def test_a_small_backlog_waits_for_a_limited_time() -> None:
    limits = Limits(min_offsets=10, max_delay_ms=1000)
    assert not is_worth_starting({("s", 0): Backlog(0, 9)}, limits, waited_ms=999)
    assert is_worth_starting({("s", 0): Backlog(0, 9)}, limits, waited_ms=1000)
    assert is_worth_starting({("s", 0): Backlog(0, 10)}, limits, waited_ms=0)
    assert not is_worth_starting({("s", 0): Backlog(5, 5)}, limits, waited_ms=10**9)
