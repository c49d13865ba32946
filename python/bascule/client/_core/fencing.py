"""Refusals by which a broker fences a member of a group: another member reads the partition. No I/O.

Usually a heartbeat reports soon that the partition was revoked or that the member was expelled. If heartbeats succeed
and report nothing of the kind, the refusal is an error that the application must see.
"""

from typing import Final

from bascule.client._core.membership import Assignment, Membership, MembershipState
from bascule.errors import BrokerError, error

__all__ = ["Fencing", "is_fenced"]

_ANSWERS: Final = 2
"""Heartbeats to wait for: the first one may have begun before the refusal."""


def is_fenced(failure: BrokerError) -> bool:
    """Whether another member has taken over the partition."""
    return failure.reason == "not_assigned"


class Fencing:
    """The partitions in which a member is being refused. For one thread."""

    def __init__(self, membership: Membership, group: str) -> None:
        self._membership: Final = membership
        self._group: Final = group
        self._since: Final[dict[Assignment, tuple[MembershipState, int]]] = {}

    def clear(self, place: Assignment) -> None:
        """The broker accepted a request for `place`."""
        self._since.pop(place, None)

    def is_explained(self, place: Assignment, followed: MembershipState) -> bool:
        """Whether heartbeats may still report why `place` was refused to the member, which follows `followed`."""
        known = self._since.get(place)
        if known is None or known[0] != followed or self._membership.state != followed:
            self._since[place] = (followed, self._membership.answers)
            return True
        return self._membership.answers < known[1] + _ANSWERS

    def error(self, place: Assignment, failure: BrokerError) -> BrokerError:
        """`failure`, with what it means for the member."""
        text = (
            f'consumer "{self._membership.consumer}" of group "{self._group}" is fenced off from partition '
            f'{place.partition} of stream "{place.stream}": it was expelled, or another process uses its id; positions '
            "of records that it received are not stored, and others read them again"
        )
        fenced = error("failed_precondition", text, {**failure.details, **place._asdict()})
        fenced.__cause__ = failure
        return fenced
