"""Requests of members of consumer groups, and their answers. No I/O."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from bascule._liftbridge_pb import message
from bascule.client._core.requests.bounds import check_id
from bascule.client._core.types import Group
from bascule.errors import StateError

__all__ = [
    "USUAL_TIMEOUT",
    "Assigned",
    "Joined",
    "fetch_assignments",
    "group_metadata",
    "join_group",
    "leave_group",
    "read_assignments",
    "read_group",
    "read_joined",
    "report_coordinator",
]

_UNKNOWN_GROUP: Final = 1
USUAL_TIMEOUT: Final = 15.0
"""Default seconds after which a silent member is expelled and a silent coordinator is reported."""


def group_metadata(group: str) -> bytes:
    """A FetchMetadataRequest for a group. It also names one stream, because no stream means all of them."""
    return message("FetchMetadataRequest")(streams=["__cursors"], groups=[check_id("group", group)]).SerializeToString()


def read_group(answer: bytes) -> Group:
    """The group of a FetchMetadataResponse.

    Raises:
        StateError: code `not_found`: the group does not exist.
    """
    (found,) = message("FetchMetadataResponse").FromString(answer).groupMetadata
    if found.error == _UNKNOWN_GROUP:
        text = f'consumer group "{found.groupId}" does not exist: it has no members'
        raise StateError("not_found", text, {"group": found.groupId})
    return Group(found.groupId, found.coordinator, found.epoch, found.generation)


class Joined(NamedTuple):
    """The broker's answer to a new member. Timeouts are in seconds."""

    coordinator: str
    epoch: int
    consumer_timeout: float
    coordinator_timeout: float
    generation: int = 0
    """As `epoch`, but unique among all groups of this id; 0 = the broker does not say."""
    joined: int = 0
    """Generation that the membership began with; identifies it. 0 = the broker does not say."""


def join_group(group: str, consumer: str, streams: Sequence[str]) -> bytes:
    """A JoinConsumerGroupRequest of a member that supports hand-over."""
    return message("JoinConsumerGroupRequest")(
        groupId=group, consumerId=consumer, streams=streams, handsOver=True
    ).SerializeToString()


def read_joined(answer: bytes) -> Joined:
    """Decode a JoinConsumerGroupResponse. Missing timeouts are `USUAL_TIMEOUT`."""
    found = message("JoinConsumerGroupResponse").FromString(answer)
    consumer, coordinator = (
        nanos / 1e9 if nanos > 0 else USUAL_TIMEOUT for nanos in (found.consumerTimeout, found.coordinatorTimeout)
    )
    return Joined(found.coordinator, found.epoch, consumer, coordinator, found.generation, found.joined)


def fetch_assignments(  # noqa: PLR0913 (what a request holds)
    group: str, consumer: str, joined: Joined, held: Iterable[tuple[str, int]] = (), *, seen: int = 0, wait: float = 0
) -> bytes:
    """A FetchConsumerGroupAssignmentsRequest.

    Args:
        group: the group's id.
        consumer: the member's id.
        joined: its membership, with the group's epoch as known to the member.
        held: stream and partition of each partition that the member reads or may read.
        seen: version of the last answer that it received; 0 = none.
        wait: seconds for which the broker may wait for a newer version.
    """
    request = message("FetchConsumerGroupAssignmentsRequest")(
        groupId=group,
        consumerId=consumer,
        epoch=joined.epoch,
        joined=joined.joined,
        seenVersion=seen,
        waitMillis=round(wait * 1000),
    )
    by_stream: dict[str, list[int]] = {}
    for stream, partition in sorted(held):
        by_stream.setdefault(stream, []).append(partition)
    for stream, partitions in by_stream.items():
        request.held.add(stream=stream, partitions=partitions)
    return request.SerializeToString()


class Assigned(NamedTuple):
    """The assignment of a member, as answered by its coordinator."""

    partitions: list[tuple[str, int]]
    version: int
    """0 = the broker does not support hand-over."""
    streams: frozenset[str]
    """Streams that the group still reads for the member; undefined if `version` is 0."""


def read_assignments(answer: bytes) -> Assigned:
    """Decode a FetchConsumerGroupAssignmentsResponse."""
    response = message("FetchConsumerGroupAssignmentsResponse").FromString(answer)
    found = [(part.stream, partition) for part in response.assignments for partition in part.partitions]
    return Assigned(found, response.version, frozenset(response.streams))


def report_coordinator(group: str, consumer: str, coordinator: str, epoch: int) -> bytes:
    """A ReportConsumerGroupCoordinatorRequest."""
    return message("ReportConsumerGroupCoordinatorRequest")(
        groupId=group, consumerId=consumer, coordinator=coordinator, epoch=epoch
    ).SerializeToString()


def leave_group(group: str, consumer: str, joined: int = 0) -> bytes:
    """A LeaveConsumerGroupRequest, of the membership that began with generation `joined`; 0 = any."""
    return message("LeaveConsumerGroupRequest")(
        groupId=check_id("group", group), consumerId=check_id("consumer", consumer), joined=joined
    ).SerializeToString()
