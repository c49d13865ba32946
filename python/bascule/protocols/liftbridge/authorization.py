"""The rights that methods of the control plane need (liftbridge §9.3, D5), those of `bascule.admin.v1` included.

Most are one action on one field of the request, as specs/methods.toml says; those that depend on more are here. What
the handler is going to refuse as malformed needs none; an unknown method is denied whenever there is a policy.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from bascule._liftbridge_pb import message
from bascule._methods import METHODS
from bascule.control.specs import INTERNAL_STREAMS
from bascule.errors import AccessError
from bascule.metadata import DEFAULT_NAMESPACE, MAX_MEMBER_STREAMS, Stream
from bascule.protocols.liftbridge.creation import is_subject
from bascule.protocols.liftbridge.messages import parse
from bascule.protocols.liftbridge.neighbours import Neighbour, neighbours
from bascule.protocols.router import AdminRequest, Handler
from bascule.security import Access

__all__ = ["check_rights", "guarded", "stream_resource"]

Right = tuple[str, str]
"""Action and resource."""

EVERYTHING: Final = "*"
"""What FetchMetadata is allowed on: the list of all streams. A name, no wildcard."""

INTERNAL: Final = frozenset({"ResumePartition"})
"""Asked by the data plane, for a publisher or subscriber whose right it has checked."""


def guarded(
    name: str, handler: Handler, access: Access, streams: Callable[[], Collection[Stream]] = tuple[Stream]
) -> Handler:
    """The handler of a method of Liftbridge, behind a check of the client's rights. `streams`: those that exist."""

    async def guard(request: AdminRequest) -> bytes:
        if access.is_on and name not in INTERNAL:
            method = METHODS.get(name)
            is_read = method is not None and method.resource != EVERYTHING
            asked = parse(message(f"{name}Request"), request.body) if is_read else None
            check_rights(access, request, name, asked, streams)
        return await handler(request)

    return guard


def check_rights(
    access: Access, request: AdminRequest, name: str, asked: Any, streams: Callable[[], Collection[Stream]]
) -> None:
    """Check that the client may call a method.

    Args:
        access: the policy.
        request: whose caller is checked.
        name: of the method.
        asked: the request as a message; may be `None` if the method's resource is "*".
        streams: those that exist.

    Raises:
        AccessError: `permission_denied`, `unauthenticated`.
    """
    if not access.is_on:
        return
    for action, resource in _rights(name, asked):
        access.check(request.client, action, resource, request.peer)
    if name in _CREATIONS:
        _check_neighbours(access, request, _CREATIONS[name](asked), streams())


def _check_neighbours(access: Access, request: AdminRequest, asked: Any, streams: Collection[Stream]) -> None:
    """A new stream shares messages with those that listen where it does: to read and write them takes the rights to.

    Raises:
        AccessError: `permission_denied`.
    """
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


def _rights(name: str, asked: Any) -> Iterable[Right]:
    if name in _COMPUTED:
        return _COMPUTED[name](asked)
    method = METHODS.get(name)
    if method is None or method.resource in ("", "computed"):
        message = f"The client is not authorized to call {name} on resource {EVERYTHING}"
        raise AccessError("permission_denied", message, {"action": name, "resource": EVERYTHING})
    return [(method.action, EVERYTHING if method.resource == EVERYTHING else getattr(asked, method.resource))]


def _create_stream(asked: Any) -> Iterable[Right]:
    """The stream, and a subject that is not its name: who reads and writes the stream reads and writes the subject."""
    if not _is_creation(asked):
        return ()
    if asked.subject == asked.name:
        return [("CreateStream", asked.name)]
    return [("CreateStream", asked.name), ("Subscribe", asked.subject), ("PublishToSubject", asked.subject)]


def _is_creation(asked: Any) -> bool:
    return bool(asked.name and is_subject(asked.subject) and asked.name not in INTERNAL_STREAMS)


def _join_group(asked: Any) -> Iterable[Right]:
    """The group, and to read what the member is going to be given."""
    if not (asked.groupId and asked.consumerId and asked.streams) or len(asked.streams) > MAX_MEMBER_STREAMS:
        return ()
    return [("JoinConsumerGroup", asked.groupId), *(("Subscribe", stream) for stream in dict.fromkeys(asked.streams))]


def _reported_streams(asked: Any) -> Iterable[Right]:
    """To read, and to hold, what the query reads; the handler checks that no other client reports under its name."""
    names = dict.fromkeys(item.name for item in asked.streams)
    streams = [stream_resource(asked.namespace, name) for name in names] or [EVERYTHING]
    actions = ("Subscribe", "HoldRetention") if asked.hold else ("Subscribe",)
    return [(action, stream) for stream in streams for action in actions]


def _sink_targets(asked: Any) -> list[Right]:
    """To publish to every stream that is named; that the caller owns the sink is checked by the handler."""
    targets = getattr(asked, "targets", ())
    names = [*getattr(asked, "streams", ()), *(item.stream for item in targets)]
    return [("Publish", stream_resource(asked.namespace, name)) for name in dict.fromkeys(names)]


def _managed_sink(asked: Any) -> Iterable[Right]:
    return [("ManageSinks", stream_resource(asked.namespace, asked.name))]


def stream_resource(namespace: str, name: str) -> str:
    """The resource of a stream or a sink."""
    return name if namespace in ("", DEFAULT_NAMESPACE) else f"{namespace}/{name}"


def _group(action: str) -> Callable[[Any], Iterable[Right]]:
    return lambda asked: [(action, asked.groupId)] if asked.groupId and asked.consumerId else ()


_CREATIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "CreateStream": lambda asked: asked,
    "CheckCreateStream": lambda asked: asked.create,
}
"""Methods about a new stream: from their request, its CreateStreamRequest."""

_COMPUTED: Final[dict[str, Callable[[Any], Iterable[Right]]]] = {
    **{name: lambda asked, read=read: _create_stream(read(asked)) for name, read in _CREATIONS.items()},
    "JoinConsumerGroup": _join_group,
    **{
        name: _group(name)
        for name in ("LeaveConsumerGroup", "FetchConsumerGroupAssignments", "ReportConsumerGroupCoordinator")
    },
    "ReportQuery": _reported_streams,
    "ReportArchived": lambda asked: [("EditStream", stream_resource(asked.namespace, asked.name))],
    "ReleaseHold": lambda asked: [("EditStream", stream_resource(asked.namespace, asked.stream))],
    "OpenSink": lambda asked: _sink_targets(asked) or [("Publish", EVERYTHING)],
    "PublishSink": _sink_targets,
    "AbortSink": _sink_targets,
    "RenewSink": _sink_targets,
    "FetchSinkStreams": _sink_targets,
    "DeleteSink": _managed_sink,
    "SkipSink": _managed_sink,
    "SetSinkQuota": _managed_sink,
    "SetSinkOwner": _managed_sink,
}
"""Rights of the methods whose resource is "computed", from their request."""
