"""Who in a group reads which partitions (Liftbridge specification §3.15). Pure.

To balance one stream its subscribers give up what they have of it; then its partitions, in ascending order, each go to
the subscriber with the fewest partitions of all streams together, equals by the bytewise smallest id. The result
depends on history, so it is part of the state and never computed anew from members and streams alone.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import replace

from bascule.metadata.model import Assignment, Member

Counts = Mapping[str, int]
"""Partitions of each stream that exists; others count as having none."""


def add_member(members: tuple[Member, ...], joining: Member, counts: Counts) -> tuple[Member, ...]:
    """The members with `joining` as the last, balanced over each of its streams in ascending order."""
    return _balanced((*members, joining), joining.streams, counts)


def remove_member(members: tuple[Member, ...], leaving: Member, counts: Counts) -> tuple[Member, ...]:
    """The members without `leaving`, balanced over the streams that it had partitions of."""
    rest = tuple(item for item in members if item.id != leaving.id)
    return _balanced(rest, (item.stream for item in leaving.assignments), counts)


def drop_stream(members: tuple[Member, ...], stream: str, counts: Counts) -> tuple[Member, ...]:
    """The members without `stream`, balanced over every other stream that one of its subscribers subscribes to."""
    affected = {other for item in members if stream in item.streams for other in item.streams} - {stream}
    rest = tuple(_without(item, stream) for item in members)
    return _balanced(rest, sorted(affected), counts)


def _balanced(members: tuple[Member, ...], streams: Iterable[str], counts: Counts) -> tuple[Member, ...]:
    """`members` after balancing `streams` one after the other; the order of members stays."""
    held = {item.id: {part.stream: part.partitions for part in item.assignments} for item in members}
    for stream in streams:
        subscribers = [item.id for item in members if stream in item.streams]
        given = _deal(stream, subscribers, held, counts.get(stream, 0))
        for member_id, partitions in given.items():
            held[member_id].pop(stream, None)
            if partitions:
                held[member_id][stream] = tuple(partitions)
    return tuple(replace(item, assignments=_assignments(held[item.id])) for item in members)


def _deal(
    stream: str, subscribers: Iterable[str], held: Mapping[str, Mapping[str, tuple[int, ...]]], count: int
) -> dict[str, list[int]]:
    """The partitions of `stream` by subscriber."""
    given: dict[str, list[int]] = {member_id: [] for member_id in subscribers}
    totals = [
        (sum(len(partitions) for other, partitions in held[item].items() if other != stream), item.encode(), item)
        for item in given
    ]
    heapq.heapify(totals)
    if not totals:
        return given
    for partition in range(count):
        total, order, member_id = totals[0]
        given[member_id].append(partition)
        heapq.heapreplace(totals, (total + 1, order, member_id))
    return given


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
