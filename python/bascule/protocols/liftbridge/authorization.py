"""The rights that methods of the control plane need (liftbridge §9.3, D5).

Asked before the handler sees the request. What the handler is going to refuse as malformed needs none; a method
without a line here is denied whenever there is a policy.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, cast

from bascule._json import load_json
from bascule._liftbridge_pb import message
from bascule.control.specs import INTERNAL_STREAMS
from bascule.errors import AccessError
from bascule.metadata import MAX_MEMBER_STREAMS, Stream
from bascule.protocols.liftbridge.creation import is_subject
from bascule.protocols.liftbridge.messages import MAX_OBJECT_BYTES, parse
from bascule.protocols.liftbridge.neighbours import Neighbour, neighbours
from bascule.protocols.router import AdminRequest, Handler
from bascule.security import Access

__all__ = ["RIGHTS", "guarded"]

Right = tuple[str, str]
"""Action and resource."""

EVERYTHING: Final = "*"
"""What FetchMetadata is allowed on: the list of all streams. A name, no wildcard."""


def guarded(
    name: str, handler: Handler, access: Access, streams: Callable[[], Collection[Stream]] = tuple[Stream]
) -> Handler:
    """The handler, behind a check of the client's rights. `streams`: those that exist."""

    async def guard(request: AdminRequest) -> bytes:
        if access.is_on:
            for action, resource in _rights(name, request.body):
                access.check(request.client, action, resource, request.peer)
            if name in _CREATING:
                _check_neighbours(access, request, streams())
        return await handler(request)

    return guard


def _check_neighbours(access: Access, request: AdminRequest, streams: Collection[Stream]) -> None:
    """A new stream shares messages with those that listen where it does: to read and write them takes the rights to.

    Raises:
        AccessError: `permission_denied`.
    """
    asked = parse(message("CreateStreamRequest"), request.body)
    if not _is_creation(asked):
        return
    by_subject = asked.HasField("partitionBySubject") and asked.partitionBySubject.value
    found = neighbours(streams, asked.name, asked.subject, asked.partitions or 1, by_subject=by_subject)
    for neighbour in found:
        for actions in (("Subscribe",), ("Publish", "PublishToSubject")):
            may = any(access.allows(request.client, action, neighbour.resource) for action in actions)
            if not may and not _is_excused(access, request.client, asked, neighbour):
                access.check(request.client, actions[0], neighbour.resource, request.peer)


def _is_excused(access: Access, client: str | None, asked: Any, neighbour: Neighbour) -> bool:
    """Whether a policy gives the rights on the subject itself, by name, and none on the stream is denied: it means what
    is published there, whoever stores it.
    """
    if client is None or neighbour.by_number or asked.subject == asked.name:
        return False
    named = all(access.names(client, action, asked.subject) for action in ("Subscribe", "PublishToSubject"))
    both = ("Subscribe", "Publish", "PublishToSubject")
    return named and not any(access.denies(client, action, neighbour.resource) for action in both)


def _rights(name: str, body: bytes) -> Iterable[Right]:
    needed = RIGHTS.get(name)
    if needed is None:
        message = f"The client is not authorized to call {name} on resource {EVERYTHING}"
        raise AccessError("permission_denied", message, {"action": name, "resource": EVERYTHING})
    return needed(body)


def _named(action: str, field: str = "name") -> Callable[[bytes], Iterable[Right]]:
    kind = message(f"{action}Request")
    return lambda body: [(action, getattr(parse(kind, body), field))]


def _json_named(action: str) -> Callable[[bytes], Iterable[Right]]:
    def needed(body: bytes) -> Iterable[Right]:
        if len(body) > MAX_OBJECT_BYTES:
            return ()
        try:
            asked: object = load_json(body)
        except (ValueError, RecursionError):
            return ()
        name = cast("dict[str, Any]", asked).get("name") if isinstance(asked, dict) else None
        return [(action, name)] if isinstance(name, str) else ()

    return needed


def _create_stream(body: bytes) -> Iterable[Right]:
    """The stream, and a subject that is not its name: who reads and writes the stream reads and writes the subject."""
    asked = parse(message("CreateStreamRequest"), body)
    if not _is_creation(asked):
        return ()
    if asked.subject == asked.name:
        return [("CreateStream", asked.name)]
    return [("CreateStream", asked.name), ("Subscribe", asked.subject), ("PublishToSubject", asked.subject)]


def _is_creation(asked: Any) -> bool:
    return bool(asked.name and is_subject(asked.subject) and asked.name not in INTERNAL_STREAMS)


def _join_group(body: bytes) -> Iterable[Right]:
    """The group, and to read what the member is going to be given."""
    asked = parse(message("JoinConsumerGroupRequest"), body)
    if not (asked.groupId and asked.consumerId and asked.streams) or len(asked.streams) > MAX_MEMBER_STREAMS:
        return ()
    return [("JoinConsumerGroup", asked.groupId), *(("Subscribe", stream) for stream in dict.fromkeys(asked.streams))]


def _group(action: str) -> Callable[[bytes], Iterable[Right]]:
    kind = message(f"{action}Request")

    def needed(body: bytes) -> Iterable[Right]:
        asked = parse(kind, body)
        return [(action, asked.groupId)] if asked.groupId and asked.consumerId else ()

    return needed


RIGHTS: Final[dict[str, Callable[[bytes], Iterable[Right]]]] = {
    "CreateStream": _create_stream,
    "DeleteStream": _named("DeleteStream"),
    "PauseStream": _named("PauseStream"),
    "SetStreamReadonly": _named("SetStreamReadonly"),
    "FetchMetadata": lambda _: [("FetchMetadata", EVERYTHING)],
    "FetchPartitionMetadata": _named("FetchPartitionMetadata", "stream"),
    "JoinConsumerGroup": _join_group,
    "LeaveConsumerGroup": _group("LeaveConsumerGroup"),
    "FetchConsumerGroupAssignments": _group("FetchConsumerGroupAssignments"),
    "ReportConsumerGroupCoordinator": _group("ReportConsumerGroupCoordinator"),
    "TrimPartition": _json_named("TrimPartition"),
    "PurgeStream": _json_named("PurgeStream"),
    "EditStream": _json_named("EditStream"),
    # Who may pause may resume, who may create may ask whether it would work, and who may see may see all of it.
    "ResumeStream": _json_named("PauseStream"),
    "CheckCreateStream": _create_stream,
    "FetchStreamDetails": _json_named("FetchPartitionMetadata"),
    "FetchGroupDetails": lambda _: [("FetchMetadata", EVERYTHING)],
    "FetchBrokerDetails": lambda _: [("FetchMetadata", EVERYTHING)],
    # Asked by the data plane, for a publisher or subscriber whose right it has checked.
    "ResumePartition": lambda _: (),
}
"""Rights by method, from the body of a request."""

_CREATING: Final = frozenset({"CreateStream", "CheckCreateStream"})
