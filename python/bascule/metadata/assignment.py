"""The assignment of partitions to members of a group (liftbridge §3.15). Pure.

To balance one stream its subscribers give up what they have of it; then its partitions, in ascending order, each go to
the subscriber with the fewest partitions of all streams together, equals by the bytewise smallest id. The result
depends on history, so it is part of the state and never computed again from members and streams alone.

A change of a group takes time in proportion to what its members subscribe to, and to the partitions that it deals.
"""

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from bascule.metadata.model import Assignment, Member

K = TypeVar("K")

Count = Callable[[str], int]
"""Partitions of a stream; 0 = it does not exist."""


def add_member(members: tuple[Member, ...], joining: Member, count: Count) -> tuple[Member, ...]:
    """The members with `joining` as the last, balanced over each of its streams in ascending order."""
    return _balanced((*members, joining), joining.streams, count)


def remove_member(members: tuple[Member, ...], leaving: Member, count: Count) -> tuple[Member, ...]:
    """The members without `leaving`, balanced over the streams that it had partitions of."""
    rest = tuple(item for item in members if item.id != leaving.id)
    return _balanced(rest, tuple(item.stream for item in leaving.assignments), count)


def drop_stream(members: tuple[Member, ...], stream: str, count: Count) -> tuple[Member, ...]:
    """The members without `stream`, balanced over every other stream that one of its subscribers subscribes to."""
    affected = {other for item in members if stream in item.streams for other in item.streams} - {stream}
    rest = tuple(_without(item, stream) for item in members)
    return _balanced(rest, sorted(affected), count)


def _balanced(members: tuple[Member, ...], streams: Sequence[str], count: Count) -> tuple[Member, ...]:
    """`members` after balancing `streams` one after the other; the order of members stays."""
    if not streams:
        return members
    dealing = _Dealing(members, streams)
    for stream in streams:
        dealing.deal(stream, count(stream))
    return tuple(replace(item, assignments=_assignments(dealing.held[item.id])) for item in members)


class _Dealing:
    """Deals partitions of one stream after another.

    Streams with the same subscribers, one after another, share a heap of (total, id as bytes, id), in which an entry
    whose total has changed since is passed over. Members with the same streams are taken together.

    Attributes:
        held: what each member has, by its id and by stream.
    """

    def __init__(self, members: tuple[Member, ...], streams: Sequence[str]) -> None:
        self.held: Final = {item.id: {part.stream: part.partitions for part in item.assignments} for item in members}
        self._totals: Final = {key: sum(map(len, parts.values())) for key, parts in self.held.items()}
        self._order: Final = {item.id: item.id.encode() for item in members}
        alike: dict[tuple[str, ...], list[str]] = {}
        for item in members:
            alike.setdefault(item.streams, []).append(item.id)
        self._alike: Final = tuple(alike.values())
        self._subscribers: Final = _invert(streams, enumerate(alike))
        self._holders: Final = _invert(streams, ((key, tuple(parts)) for key, parts in self.held.items()))
        self._heap: list[tuple[int, bytes, str]] = []
        self._heap_of: list[int] = []

    def deal(self, stream: str, partitions: int) -> None:
        """Give partitions 0 to `partitions` − 1 of `stream` to its subscribers."""
        subscribers = self._subscribers[stream]
        if subscribers != self._heap_of:
            self._heap_of = subscribers
            self._heap = [self._entry(item) for number in subscribers for item in self._alike[number]]
            heapq.heapify(self._heap)
        for member_id in self._holders[stream]:
            self._totals[member_id] -= len(self.held[member_id].pop(stream))
            heapq.heappush(self._heap, self._entry(member_id))
        given: dict[str, list[int]] = {}
        for partition in range(partitions if subscribers else 0):
            given.setdefault(self._next(), []).append(partition)
        for member_id, numbers in given.items():
            self.held[member_id][stream] = tuple(numbers)

    def _next(self) -> str:
        """The subscriber that gets the next partition; its total grows."""
        while self._heap[0][0] != self._totals[self._heap[0][2]]:
            heapq.heappop(self._heap)
        member_id = self._heap[0][2]
        self._totals[member_id] += 1
        heapq.heapreplace(self._heap, self._entry(member_id))
        return member_id

    def _entry(self, member_id: str) -> tuple[int, bytes, str]:
        return self._totals[member_id], self._order[member_id], member_id


def _invert(streams: Iterable[str], holders: Iterable[tuple[K, tuple[str, ...]]]) -> dict[str, list[K]]:
    """The keys by each of `streams`, in order, out of pairs of a key and its streams."""
    found: dict[str, list[K]] = {stream: [] for stream in streams}
    for key, names in holders:
        for name in names:
            if name in found:
                found[name].append(key)
    return found


def _without(member: Member, stream: str) -> Member:
    if stream not in member.streams:
        return member
    return replace(
        member,
        streams=tuple(item for item in member.streams if item != stream),
        assignments=tuple(item for item in member.assignments if item.stream != stream),
    )


def _assignments(held: Mapping[str, tuple[int, ...]]) -> tuple[Assignment, ...]:
    return tuple(Assignment(stream, held[stream]) for stream in sorted(held))
