"""The part of `apply` that concerns consumer groups of Iggy's clients. Pure."""

from dataclasses import replace

from bascule.metadata.apply_streams import find
from bascule.metadata.commands import CreateTopicGroup, DeleteTopicGroup
from bascule.metadata.iggy import MAX_TOPIC_GROUPS, MAX_TOPIC_MEMBERS, TopicGroup, TopicMember
from bascule.metadata.model import MAX_NUMBERS, State, Stream, StreamKey
from bascule.metadata.partition_changes import run_of
from bascule.metadata.rejection import RejectionCode, check_name, invalid, rejected
from bascule.metadata.topic_commands import JoinTopicGroup, LeaveTopicGroup

MAX_CLIENTS = 1 << 32


def create(state: State, index: int, command: CreateTopicGroup) -> State:
    """Add the group; numbers that are chosen automatically are above all that were used in the stream."""
    stream = find(state, command)
    check_name("name of a group", command.group)
    number = stream.next_group_id if command.id is None else command.id
    if not 0 <= number < MAX_NUMBERS:
        raise invalid(f"number {number} of a group is not between 0 and {MAX_NUMBERS - 1}")
    for group in stream.topic_groups:
        if group.name == command.group:
            raise rejected(RejectionCode.GROUP_EXISTS, f"group {group.name} exists in stream {stream.name}")
        if group.id == number:
            raise rejected(RejectionCode.NUMBER_IN_USE, f"group {group.name} has the number {number}")
    if len(stream.topic_groups) >= MAX_TOPIC_GROUPS:
        raise rejected(RejectionCode.NO_ROOM, f"stream {stream.name} has {MAX_TOPIC_GROUPS} groups: delete some")
    groups = sorted((*stream.topic_groups, TopicGroup(number, command.group, index)), key=lambda item: item.id)
    changed = replace(stream, topic_groups=tuple(groups), next_group_id=max(stream.next_group_id, number + 1))
    return _put(state, changed)


def delete(state: State, _: int, command: DeleteTopicGroup) -> State:
    """Remove the group."""
    stream = find(state, command)
    rest = tuple(item for item in stream.topic_groups if item.created != command.created)
    if rest == stream.topic_groups:
        raise rejected(RejectionCode.GROUP_NOT_FOUND, f"the group does not exist in stream {stream.name} any more")
    return _put(state, replace(stream, topic_groups=rest))


def join(state: State, index: int, command: JoinTopicGroup) -> State:
    """Make a connection the last member of the group; one that is a member stays where it is."""
    stream = find(state, command)
    run_of(state, command.broker_id, command.boot_epoch, {"registered", "confirmed"})
    if not 1 <= command.client < MAX_CLIENTS:
        raise invalid(f"number {command.client} of a connection is not between 1 and {MAX_CLIENTS - 1}")
    group = next((item for item in stream.topic_groups if item.created == command.created), None)
    if group is None:
        raise rejected(RejectionCode.GROUP_NOT_FOUND, f"the group does not exist in stream {stream.name} any more")
    member = TopicMember(command.broker_id, command.boot_epoch, command.client)
    if member in group.members:
        return state
    if len(group.members) >= MAX_TOPIC_MEMBERS:
        raise rejected(RejectionCode.NO_ROOM, f"group {group.name} has {MAX_TOPIC_MEMBERS} members")
    return _put(state, _with_members(stream, group, (*group.members, member), index))


def leave(state: State, index: int, command: LeaveTopicGroup) -> State:
    """End the membership; the stream may have another name by now."""
    member = TopicMember(command.broker_id, command.boot_epoch, command.client)
    for stream in state.streams.values():
        for group in stream.topic_groups:
            if group.created == command.created and member in group.members:
                rest = tuple(item for item in group.members if item != member)
                return _put(state, _with_members(stream, group, rest, index))
    raise rejected(RejectionCode.NOT_A_MEMBER, "the connection is not a member of the group")


def without_members(state: State, index: int, broker_id: str) -> State:
    """The state after a run of a broker: its connections have ended, and with them their memberships."""
    changed: dict[StreamKey, Stream] = {}
    for key, stream in state.streams.items():
        for group in stream.topic_groups:
            rest = tuple(item for item in group.members if item.broker != broker_id)
            if rest != group.members:
                changed[key] = _with_members(changed.get(key, stream), group, rest, index)
    return replace(state, streams={**state.streams, **changed}) if changed else state


def reassigned(stream: Stream, index: int) -> Stream:
    """The stream after another number of partitions: members of its groups read others."""
    groups = tuple(replace(item, changed=index) if item.members else item for item in stream.topic_groups)
    return stream if groups == stream.topic_groups else replace(stream, topic_groups=groups)


def _with_members(stream: Stream, group: TopicGroup, members: tuple[TopicMember, ...], index: int) -> Stream:
    changed = replace(group, members=members, changed=index)
    return replace(
        stream,
        topic_groups=tuple(changed if item.created == group.created else item for item in stream.topic_groups),
    )


def _put(state: State, stream: Stream) -> State:
    return replace(state, streams={**state.streams, stream.key: stream})
