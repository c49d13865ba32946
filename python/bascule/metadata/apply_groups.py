"""The part of `apply` that concerns consumer groups. Pure."""

from dataclasses import replace

from bascule.metadata.activity import record_activity
from bascule.metadata.assignment import Count, add_member, drop_stream, remove_member
from bascule.metadata.commands import JoinGroup, LeaveGroup, SetGroupCoordinator
from bascule.metadata.model import (
    DEFAULT_NAMESPACE,
    MAX_MEMBER_STREAMS,
    MAX_MEMBERS,
    Activity,
    Group,
    Member,
    State,
)
from bascule.metadata.rejection import RejectionCode, check_name, invalid, rejected


def join(state: State, index: int, command: JoinGroup) -> State:
    """Add the consumer to the group, which is created with its first member."""
    check_name("group id", command.group)
    check_name("consumer id", command.consumer)
    streams = tuple(sorted(set(command.streams)))
    if not 1 <= len(streams) <= MAX_MEMBER_STREAMS or len(streams) != len(command.streams):
        raise invalid(f"{len(command.streams)} streams are none, repeat, or are more than {MAX_MEMBER_STREAMS}")
    for name in streams:
        if state.stream(DEFAULT_NAMESPACE, name) is None:
            raise rejected(RejectionCode.STREAM_NOT_FOUND, f"stream {DEFAULT_NAMESPACE}/{name} does not exist")
    known = state.groups.get(command.group)
    if known is None and command.coordinator not in state.brokers:
        raise rejected(RejectionCode.BROKER_UNKNOWN, f"broker {command.coordinator} is not known")
    if known is not None and known.member(command.consumer) is not None:
        message = f"consumer {command.consumer} is a member of group {command.group}"
        raise rejected(RejectionCode.ALREADY_MEMBER, message)
    group = known or Group(command.group, command.coordinator, 0, (), created=index)
    if len(group.members) >= MAX_MEMBERS:
        raise invalid(f"group {command.group} has {MAX_MEMBERS} members, the most it may have")
    joining = Member(command.consumer, streams, index, hands_over=command.hands_over)
    members = add_member(group.members, joining, _count(state))
    changed = _put(state, replace(group, epoch=index if known else 0, members=members))
    event = Activity(index, "join_group", command.group, consumer=command.consumer, streams=streams)
    return record_activity(changed, event)


def leave(state: State, index: int, command: LeaveGroup) -> State:
    """Remove the consumer; a group is removed with its last member."""
    group = _find(state, command.group)
    member = group.member(command.consumer)
    if member is None or member.joined != command.joined:
        message = f"consumer {command.consumer} is not a member of group {command.group}"
        raise rejected(RejectionCode.NOT_A_MEMBER, message)
    members = remove_member(group.members, member, _count(state))
    changed = _put(state, replace(group, epoch=index, members=members))
    event = Activity(index, "leave_group", command.group, consumer=command.consumer, flag=command.expired)
    return record_activity(changed, event)


def set_coordinator(state: State, index: int, command: SetGroupCoordinator) -> State:
    """Set the coordinator; assignments stay."""
    group = _find(state, command.group)
    if command.coordinator not in state.brokers:
        raise rejected(RejectionCode.BROKER_UNKNOWN, f"broker {command.coordinator} is not known")
    if group.epoch != command.epoch:
        raise invalid(f"group {command.group} is of epoch {group.epoch}, not {command.epoch}")
    return _put(state, replace(group, coordinator=command.coordinator, epoch=index))


def without_stream(state: State, index: int, name: str) -> State:
    """Remove the deleted stream `name` from all assignments."""
    changed = dict(state.groups)
    for group_id in sorted(state.groups):
        group = state.groups[group_id]
        if any(name in member.streams for member in group.members):
            members = drop_stream(group.members, name, _count(state))
            changed[group_id] = replace(group, epoch=index, members=members)
    return replace(state, groups=changed)


def _find(state: State, group_id: str) -> Group:
    group = state.groups.get(group_id)
    if group is None:
        raise rejected(RejectionCode.GROUP_NOT_FOUND, f"consumer group {group_id} does not exist")
    return group


def _put(state: State, group: Group) -> State:
    others = {key: item for key, item in state.groups.items() if key != group.id}
    return replace(state, groups={**others, group.id: group} if group.members else others)


def _count(state: State) -> Count:
    """How many partitions a stream has, 0 when it does not exist."""

    def count(name: str) -> int:
        stream = state.stream(DEFAULT_NAMESPACE, name)
        return len(stream.partitions) if stream else 0

    return count
