"""Balancing equals the definition in liftbridge §3.15 for all histories."""

import time

import pytest
from bascule.metadata import Assignment, Member
from bascule.metadata.assignment import add_member, drop_stream, remove_member
from hypothesis import given
from hypothesis import strategies as st

NAMES = [f"s{number}" for number in range(6)]
STREAMS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True).map(lambda names: tuple(sorted(names)))
COUNTS = st.fixed_dictionaries({name: st.integers(0, 5) for name in NAMES})
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from(["a", "b", "ä", "B", "c", "d"]), STREAMS),
        st.tuples(st.just("remove"), st.integers(0, 5), st.just(())),
        st.tuples(st.just("drop"), st.sampled_from(NAMES), st.just(())),
    ),
    max_size=14,
)

Held = dict[str, dict[str, list[int]]]


class Specification:
    """A direct, slow implementation of section 3.15."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.streams: dict[str, set[str]] = {}
        self.held: Held = {}

    def balance(self, stream: str) -> None:
        subscribers = [member for member in self.streams if stream in self.streams[member]]
        for member in subscribers:
            self.held[member].pop(stream, None)
        for partition in range(self.counts[stream] if subscribers else 0):
            totals = {item: sum(map(len, self.held[item].values())) for item in subscribers}
            chosen = min(subscribers, key=lambda item: (totals[item], item.encode()))
            self.held[chosen].setdefault(stream, []).append(partition)

    def add(self, member: str, streams: tuple[str, ...]) -> None:
        self.held[member], self.streams[member] = {}, set(streams)
        for stream in sorted(streams):
            self.balance(stream)

    def remove(self, member: str) -> None:
        held = self.held.pop(member)
        del self.streams[member]
        for stream in sorted(held):
            self.balance(stream)

    def drop(self, stream: str) -> None:
        subscribers = [member for member in self.streams if stream in self.streams[member]]
        affected = {other for member in subscribers for other in self.streams[member]} - {stream}
        for member in subscribers:
            self.streams[member].discard(stream)
            self.held[member].pop(stream, None)
        for other in sorted(affected):
            self.balance(other)


def shown(members: tuple[Member, ...]) -> Held:
    return {item.id: {part.stream: list(part.partitions) for part in item.assignments} for item in members}


@given(COUNTS, STEPS)
def test_every_history_gives_the_assignments_of_the_specification(
    counts: dict[str, int], steps: list[tuple[str, str | int, tuple[str, ...]]]
) -> None:
    members: tuple[Member, ...] = ()
    expected = Specification(counts)
    for number, (step, what, streams) in enumerate(steps, start=1):
        if step == "add" and str(what) not in expected.held:
            members = add_member(members, Member(str(what), streams, number), counts.__getitem__)
            expected.add(str(what), streams)
        elif step == "remove" and members:
            leaving = members[int(what) % len(members)]
            members = remove_member(members, leaving, counts.__getitem__)
            expected.remove(leaving.id)
        elif step == "drop":
            members = drop_stream(members, str(what), counts.__getitem__)
            expected.drop(str(what))
        assert shown(members) == expected.held
        for member in members:
            assert [part.stream for part in member.assignments] == sorted(expected.held[member.id])
            assert all(isinstance(part, Assignment) and part.partitions for part in member.assignments)


@pytest.mark.alone
def test_a_join_of_a_member_with_many_streams_takes_time_in_proportion_to_them() -> None:
    def seconds(streams: int) -> float:
        names = tuple(f"stream-{number:05}" for number in range(streams))
        members: tuple[Member, ...] = ()
        for number in range(40):
            members = add_member(members, Member(f"c{number}", names, number), lambda _: 1)
        began = time.process_time()
        for number in range(40, 60):
            members = add_member(members, Member(f"c{number}", names, number), lambda _: 1)
        return time.process_time() - began

    few, many = min(seconds(100) for _ in range(3)), seconds(1600)
    assert many < 16 * few * 4, f"16 times the streams took {many / few:.0f} times as long"
