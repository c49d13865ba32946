"""Hand-over of partitions from one member of a group to the next. Pure: no clock, no timer, no I/O.

Who reads a partition is decided by the state (`bascule.metadata.assignment`). A member that declared at its join that
it hands over names with each heartbeat the partitions that it still reads. A partition that is assigned to another
member by now is withheld from that one until it is named no more, its reader's membership has ended, or its reader was
waited for long enough. Members that did not declare it are neither waited for nor made to wait (liftbridge §3.15).

A broker that begins to coordinate a group does not know what its members read. Until each of those that hand over was
heard, or has gone, a member gets of what nobody is known to read only what it names itself.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from bascule.metadata import Assignment, Group, Member

__all__ = ["Handover", "Membership", "Place", "Sign"]


class Place(NamedTuple):
    """A partition of a stream of the namespace `default`."""

    stream: str
    partition: int


class Membership(NamedTuple):
    """One membership: a consumer that leaves and joins again has another one."""

    group: str
    consumer: str
    joined: int


class Sign(NamedTuple):
    """What a member reports with a heartbeat; ignored for members that do not hand over."""

    held: frozenset[Place] = frozenset()
    """What it reads, or may read by an answer that it has got."""
    seen_version: int = 0
    """Version of the last answer that it has got."""


@dataclass(slots=True)
class _Hold:
    """A partition that a member may be reading."""

    member: Membership
    version: int
    """Of the answer that gave it."""
    moved_s: float | None = None
    """Since when it has been assigned to another member."""


class Handover:
    """Who may still read which partitions of one group, as its coordinator knows it.

    Attributes:
        version: of what members are answered; a number that is never used twice in a run of the broker.
    """

    def __init__(self, group: Group, version: int, *, is_new: bool) -> None:
        """Begin.

        Args:
            group: as it is now.
            version: the first one.
            is_new: nobody can be reading for it yet.
        """
        self.version = version
        self._group = group
        self._owners: dict[Place, Membership] = _owners(group)
        self._holds: Final[dict[Place, _Hold]] = {}
        self._unheard = set[Membership]() if is_new else {_of(group, item) for item in group.members if item.hands_over}

    def follow(self, group: Group, version: int, now_s: float) -> None:
        """The group has changed."""
        self._group, self.version = group, version
        self._owners = _owners(group)
        present = {_of(group, item) for item in group.members}
        self._unheard &= present
        for place, hold in tuple(self._holds.items()):
            owner = self._owners.get(place)
            if hold.member not in present or owner is None:
                del self._holds[place]
            elif owner == hold.member:
                hold.moved_s = None
            elif hold.moved_s is None:
                hold.moved_s = now_s

    def hear(self, member: Member, sign: Sign, next_version: int, now_s: float) -> bool:
        """Process a heartbeat. Returns whether others may get more by it; then the version is `next_version`."""
        if not member.hands_over:
            return False
        who = _of(self._group, member)
        released = [
            place
            for place, hold in self._holds.items()
            if hold.member == who and place not in sign.held and hold.version <= sign.seen_version
        ]
        for place in released:
            del self._holds[place]
        changed = any(self._owners[place] != who for place in released)
        if who in self._unheard:
            self._unheard.remove(who)
            self._learn(who, sign.held, now_s)
            changed = True
        if changed:
            self.version = next_version
        return changed

    def assignments(self, member: Member, sign: Sign) -> tuple[Assignment, ...]:
        """What `member` may read now, ascending by stream."""
        if not member.hands_over:
            return member.assignments
        who = _of(self._group, member)
        given: list[Assignment] = []
        for part in member.assignments:
            numbers = tuple(n for n in part.partitions if self._may_read(who, Place(part.stream, n), sign.held))
            for number in numbers:
                self._holds.setdefault(Place(part.stream, number), _Hold(who, self.version))
            if numbers:
                given.append(Assignment(part.stream, numbers))
        return tuple(given)

    def next_due_s(self, patience_s: float) -> float | None:
        """When the member that has been waited for longest is not waited for any more; None = nobody is."""
        moved = [hold.moved_s for hold in self._holds.values() if hold.moved_s is not None]
        return min(moved) + patience_s if moved else None

    def give_up(self, patience_s: float, next_version: int, now_s: float) -> dict[Place, Membership]:
        """Wait no more for who was waited for since `patience_s`; those, by what they held. When there are any, the
        version is `next_version`.
        """
        late = {
            place: hold.member
            for place, hold in self._holds.items()
            if hold.moved_s is not None and hold.moved_s + patience_s <= now_s
        }
        for place in late:
            del self._holds[place]
        if late:
            self.version = next_version
        return late

    def _may_read(self, who: Membership, place: Place, held: Collection[Place]) -> bool:
        hold = self._holds.get(place)
        if hold is not None:
            return hold.member == who
        return place in held or self._unheard <= {who}

    def _learn(self, who: Membership, held: Iterable[Place], now_s: float) -> None:
        """A member that read already when this broker began to coordinate."""
        for place in held:
            owner = self._owners.get(place)
            if owner is not None and place not in self._holds:
                self._holds[place] = _Hold(who, self.version, None if owner == who else now_s)


def _of(group: Group, member: Member) -> Membership:
    return Membership(group.id, member.id, member.joined)


def _owners(group: Group) -> dict[Place, Membership]:
    return {
        Place(part.stream, number): _of(group, member)
        for member in group.members
        for part in member.assignments
        for number in part.partitions
    }
