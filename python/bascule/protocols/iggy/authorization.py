"""Which right each command needs, and the check before its handler is called.

Who may not look at a place does not learn whether it exists: only what lies above it counts then. Rights allow; a rule
of the policy that denies the principal `iggy:<name>`, or every client, overrides them.
"""

from collections.abc import Mapping
from typing import Final

from bascule.control.user_rights import UserAction, may
from bascule.errors import AccessError
from bascule.metadata import State, User
from bascule.protocols.iggy.commands import (
    ChangePassword,
    Command,
    Create,
    CreateTopic,
    DeleteSegments,
    Named,
    Partitions,
    UpdateStream,
    UpdateTopic,
)
from bascule.protocols.iggy.fields import Identifier
from bascule.protocols.iggy.lookup import find_stream, find_topic, find_user, topics_of
from bascule.protocols.iggy.requests import IggyRequest
from bascule.protocols.iggy.statuses import IggyError, IggyStatus
from bascule.protocols.liftbridge.authorization import stream_resource
from bascule.security import Access

__all__ = ["NEEDS", "OPEN", "POLICY", "caller", "check"]

OPEN: Final = frozenset({"LOGIN_USER", "LOGIN_WITH_PERSONAL_ACCESS_TOKEN"})
"""Commands that need no login."""

NEEDS: Final[Mapping[str, UserAction | None]] = {
    "GET_STATS": UserAction.READ_SERVERS,
    "GET_SNAPSHOT": UserAction.READ_SERVERS,
    "GET_ME": UserAction.READ_SERVERS,
    "GET_CLIENT": UserAction.READ_SERVERS,
    "GET_CLIENTS": UserAction.READ_SERVERS,
    "GET_USER": UserAction.READ_USERS,
    "GET_USERS": UserAction.READ_USERS,
    "CREATE_USER": UserAction.MANAGE_USERS,
    "DELETE_USER": UserAction.MANAGE_USERS,
    "UPDATE_USER": UserAction.MANAGE_USERS,
    "UPDATE_PERMISSIONS": UserAction.MANAGE_USERS,
    "CHANGE_PASSWORD": UserAction.MANAGE_USERS,
    "GET_CLUSTER_METADATA": None,
    "DESCRIBE_OPTIONS": None,
    "LOGOUT_USER": None,
    "GET_PERSONAL_ACCESS_TOKENS": None,
    "CREATE_PERSONAL_ACCESS_TOKEN": None,
    "DELETE_PERSONAL_ACCESS_TOKEN": None,
    "GET_STREAM": UserAction.READ_STREAM,
    "GET_STREAMS": UserAction.LIST_STREAMS,
    "CREATE_STREAM": UserAction.CREATE_STREAM,
    "DELETE_STREAM": UserAction.MANAGE_STREAM,
    "UPDATE_STREAM": UserAction.MANAGE_STREAM,
    "PURGE_STREAM": UserAction.MANAGE_STREAM,
    "GET_TOPIC": UserAction.READ_TOPIC,
    "GET_TOPICS": UserAction.LIST_TOPICS,
    "CREATE_TOPIC": UserAction.CREATE_TOPIC,
    "DELETE_TOPIC": UserAction.MANAGE_TOPIC,
    "UPDATE_TOPIC": UserAction.MANAGE_TOPIC,
    "PURGE_TOPIC": UserAction.MANAGE_TOPIC,
    "CREATE_PARTITIONS": UserAction.MANAGE_TOPIC,
    "DELETE_PARTITIONS": UserAction.MANAGE_TOPIC,
    "DELETE_SEGMENTS": UserAction.MANAGE_TOPIC,
    "GET_CONSUMER_GROUP": UserAction.READ_TOPIC,
    "GET_CONSUMER_GROUPS": UserAction.READ_TOPIC,
    "CREATE_CONSUMER_GROUP": UserAction.READ_TOPIC,
    "DELETE_CONSUMER_GROUP": UserAction.READ_TOPIC,
    "JOIN_CONSUMER_GROUP": UserAction.READ_TOPIC,
    "LEAVE_CONSUMER_GROUP": UserAction.READ_TOPIC,
}
"""By command of `DECODERS` that is not in `OPEN`; `None` = a login suffices."""

POLICY: Final[Mapping[str, str]] = {
    "GET_USER": "ManageUsers",
    "GET_USERS": "ManageUsers",
    "CREATE_USER": "ManageUsers",
    "DELETE_USER": "ManageUsers",
    "UPDATE_USER": "ManageUsers",
    "UPDATE_PERMISSIONS": "ManageUsers",
    "CHANGE_PASSWORD": "ManageUsers",
    "GET_STREAM": "FetchMetadata",
    "GET_STREAMS": "FetchMetadata",
    "GET_TOPICS": "FetchMetadata",
    "DELETE_STREAM": "DeleteStream",
    "PURGE_STREAM": "PurgeStream",
    "CREATE_TOPIC": "CreateStream",
    "GET_TOPIC": "FetchPartitionMetadata",
    "DELETE_TOPIC": "DeleteStream",
    "UPDATE_TOPIC": "EditStream",
    "PURGE_TOPIC": "PurgeStream",
    "CREATE_PARTITIONS": "EditStream",
    "DELETE_PARTITIONS": "EditStream",
    "DELETE_SEGMENTS": "TrimPartition",
    "CREATE_CONSUMER_GROUP": "FetchPartitionMetadata",
    "DELETE_CONSUMER_GROUP": "FetchPartitionMetadata",
}
"""The action that a rule of the policy denies a command by; others have none. On which resources: `_resources`."""

PRINCIPAL: Final = "iggy:"
"""What the names of users begin with in the policy."""
_CALLER: Final = "iggy:"


def caller(state: State, client: str | None) -> User | None:
    """The active user whom a request of the data plane names by number; `None` = none."""
    number = (client or "").removeprefix(_CALLER)
    if not number.isdecimal():
        return None
    wanted = int(number)
    return next((user for user in state.users.values() if user.id == wanted and user.is_active), None)


def check(state: State, access: Access, request: IggyRequest[Command], name: str) -> None:
    """Return if the caller of `request` may give the command `name`.

    Raises:
        IggyError: 40, 41.
    """
    user, command, action = request.caller, request.command, NEEDS[name]
    if action is None or _is_about(user, state, name, command):
        return
    stream, topic = _numbers(state, _place(command))
    if not may(user, action, stream, topic):
        raise IggyError(IggyStatus.UNAUTHORIZED, f"user {user.name!r} may not {name}")
    if access.is_on and name in POLICY:
        for resource in _resources(state, name, command):
            try:
                access.check_denials(f"{PRINCIPAL}{user.name}", POLICY[name], resource, request.peer)
            except AccessError as denied:
                raise IggyError(IggyStatus.UNAUTHORIZED, str(denied)) from denied


def _resources(state: State, name: str, command: Command) -> list[str]:
    """What a rule of the policy has to deny: streams, or `*` for what is about no stream."""
    place = _place(command)
    if POLICY[name] in {"ManageUsers", "FetchMetadata"}:
        return ["*"]
    try:
        namespace = find_stream(state, place[0])
        if isinstance(command, CreateTopic):
            return [stream_resource(namespace.name, command.settings.name)]
        found = [find_topic(state, namespace, place[1])] if len(place) > 1 else topics_of(state, namespace)
    except IggyError:
        return []  # what does not exist is refused by the handler
    return [stream_resource(namespace.name, stream.name) for stream in found]


def _is_about(user: User, state: State, name: str, command: Command) -> bool:
    """Whether the command is one of those that everybody may give about himself."""
    match name, command:
        case "GET_USER", Named(path=(wanted,)):
            pass
        case "CHANGE_PASSWORD", ChangePassword(user=wanted):
            pass
        case _:
            return False
    return find_user(state, wanted) == user


def _place(command: Command) -> tuple[Identifier, ...]:
    """Stream and topic of a command, as far as it names them. Those about users name neither, and need no place."""
    match command:
        case (
            Named(path=path)
            | Create(path=path)
            | UpdateTopic(path=path)
            | Partitions(path=path)
            | DeleteSegments(path=path)
        ):
            return path[:2]
        case UpdateStream(stream=stream) | CreateTopic(stream=stream):
            return (stream,)
        case _:
            return ()


def _numbers(state: State, place: tuple[Identifier, ...]) -> tuple[int | None, int | None]:
    """The ids of the namespace and the stream at a place; `None` = it names none, or there is none."""
    if not place:
        return None, None
    try:
        namespace = find_stream(state, place[0])
    except IggyError:
        return None, None
    if len(place) == 1:
        return namespace.id, None
    try:
        return namespace.id, find_topic(state, namespace, place[1]).id
    except IggyError:
        return namespace.id, None
