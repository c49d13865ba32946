"""Decisions about consumer groups: a state and a request in, a command or a rejection out. Pure."""

from bascule.metadata import DEFAULT_NAMESPACE, Group, JoinGroup, LeaveGroup, SetGroupCoordinator, State
from bascule.metadata.rejection import Rejection, RejectionCode


def join_group(
    state: State, group: str, consumer: str, streams: tuple[str, ...], *, hands_over: bool
) -> JoinGroup | Rejection:
    """The command that makes `consumer` a member; a new group is coordinated by the least loaded broker."""
    wanted = tuple(sorted(set(streams)))
    known = state.groups.get(group)
    if known is not None and known.member(consumer) is not None:
        return Rejection(RejectionCode.ALREADY_MEMBER, f"consumer {consumer} is a member of group {group}")
    for name in wanted:
        if state.stream(DEFAULT_NAMESPACE, name) is None:
            return Rejection(RejectionCode.STREAM_NOT_FOUND, f"stream {name} does not exist")
    return JoinGroup(group, consumer, wanted, known.coordinator if known else _idlest(state, ""), hands_over)


def leave_group(state: State, group: str, consumer: str, *, expired: bool, joined: int = 0) -> LeaveGroup | Rejection:
    """The command that ends the membership of `consumer` that began with entry `joined`; 0 = the present one."""
    known = state.groups.get(group)
    if known is None:
        return Rejection(RejectionCode.GROUP_NOT_FOUND, f"consumer group {group} does not exist")
    member = known.member(consumer)
    if member is None or joined not in (0, member.joined):
        return Rejection(RejectionCode.NOT_A_MEMBER, f"consumer {consumer} is not a member of group {group}")
    return LeaveGroup(group, consumer, member.joined, expired)


def check_report(state: State, group: str, consumer: str, coordinator: str, epoch: int) -> Group | Rejection:
    """The group that a member complains of, when its complaint is about the present coordinator."""
    known = state.groups.get(group)
    if known is None:
        return Rejection(RejectionCode.STALE_COORDINATOR, f"No such consumer group {group}")
    if (known.coordinator, known.epoch) != (coordinator, epoch):
        message = (
            f"Coordinator generation mismatch, current coordinator: {known.coordinator} epoch: {known.epoch}, "
            f"got coordinator: {coordinator} epoch: {epoch}"
        )
        return Rejection(RejectionCode.STALE_COORDINATOR, message)
    if known.member(consumer) is None:
        message = f"Consumer {consumer} is not a member of consumer group {group}"
        return Rejection(RejectionCode.STALE_COORDINATOR, message)
    return known


def replace_coordinator(state: State, group: Group) -> SetGroupCoordinator | Rejection:
    """The command that gives the group another coordinator."""
    chosen = _idlest(state, group.coordinator)
    if not chosen:
        return Rejection(RejectionCode.NO_COORDINATOR, "No group coordinator candidates")
    return SetGroupCoordinator(group.id, chosen, group.epoch)


def is_quorum(reports: int, members: int) -> bool:
    """Whether so many distinct members of so many are enough to replace a coordinator."""
    return reports > members // 2


def _idlest(state: State, other_than: str) -> str:
    """The broker that coordinates the fewest groups, equals in order of id; empty = there is none."""
    coordinated = {broker_id: 0 for broker_id in sorted(state.brokers) if broker_id != other_than}
    for group in state.groups.values():
        if group.coordinator in coordinated:
            coordinated[group.coordinator] += 1
    return min(coordinated, key=coordinated.__getitem__, default="")
