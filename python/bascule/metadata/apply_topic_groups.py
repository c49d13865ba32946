"""The part of `apply` that concerns consumer groups of Iggy's clients. Pure."""

from dataclasses import replace

from bascule.metadata.apply_streams import find
from bascule.metadata.commands import CreateTopicGroup, DeleteTopicGroup
from bascule.metadata.iggy import MAX_TOPIC_GROUPS, TopicGroup
from bascule.metadata.model import MAX_NUMBERS, State, Stream
from bascule.metadata.rejection import RejectionCode, check_name, invalid, rejected


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


def _put(state: State, stream: Stream) -> State:
    return replace(state, streams={**state.streams, stream.key: stream})
