"""Users of Iggy's clients: FetchUsers, CreateUser, DeleteUser, SetUserPassword, SetUserStatus, SetUserRights,
CreateUserToken and DeleteUserToken.

The first user is never made here: a broker makes it before it serves Iggy's clients.
"""

from collections.abc import Iterable, Mapping
from enum import IntFlag
from typing import Any, Final

from bascule._admin_pb import message
from bascule.control import Controller
from bascule.metadata import (
    ROOT_ID,
    GlobalRight,
    Namespace,
    Rights,
    State,
    StreamRight,
    StreamRights,
    TopicRight,
    TopicRights,
    User,
)
from bascule.metadata.rejection import RejectionCode, rejected
from bascule.protocols.admin.requests import MethodHandler, with_sentences
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.iggy import IggyAdmin, user_number
from bascule.protocols.iggy.lookup import find_stream, find_topic
from bascule.protocols.iggy.tokens import check_token_name
from bascule.protocols.iggy.users import check_name, check_password
from bascule.protocols.liftbridge.metadata import MAX_ANSWER_BYTES
from bascule.protocols.router import AdminRequest

US_PER_MS: Final = 1000

_User, _Grant, _UserToken = message("User"), message("Grant"), message("UserToken")


class UserMethods:
    """The handlers. `iggy`: what decides about users; `None` = no broker here has any."""

    def __init__(self, controller: Controller, iggy: IggyAdmin | None) -> None:
        self._controller = controller
        self._iggy = iggy

    def handlers(self) -> dict[str, MethodHandler]:
        """Handler by method."""
        return {
            "FetchUsers": with_sentences(self.fetch_users),
            "CreateUser": with_sentences(self.create_user),
            "DeleteUser": with_sentences(self.delete_user),
            "SetUserPassword": with_sentences(self.set_user_password),
            "SetUserStatus": with_sentences(self.set_user_status),
            "SetUserRights": with_sentences(self.set_user_rights),
            "CreateUserToken": with_sentences(self.create_user_token),
            "DeleteUserToken": with_sentences(self.delete_user_token),
        }

    async def fetch_users(self, asked: Any, _: AdminRequest) -> Any:
        """FetchUsers."""
        iggy, state = self._served(), self._controller.state
        users = [iggy.users.find(asked.name)] if asked.name else state.users.values()
        answer, size = message("FetchUsersResponse")(), 0
        for user in sorted(users, key=lambda item: item.id):
            shown = self._shown(state, iggy, user)
            size += shown.ByteSize()
            if size > MAX_ANSWER_BYTES:
                text = f"the answer would have more than {MAX_ANSWER_BYTES >> 20} MiB: name a user"
                raise StatusError(Status.RESOURCE_EXHAUSTED, text)
            answer.users.append(shown)
        return answer

    async def create_user(self, asked: Any, request: AdminRequest) -> Any:
        """CreateUser."""
        iggy = self._served()
        rights = _rights(self._controller.state, asked.grants)
        if asked.dry_run:
            check_name(asked.name)
            check_password(asked.password)
            iggy.users.check_is_free(asked.name)
            return message("CreateUserResponse")()
        user = await iggy.users.create(asked.name, asked.password, rights, is_active=True, timeout_s=request.timeout_s)
        return message("CreateUserResponse")(number=user_number(user))

    async def delete_user(self, asked: Any, request: AdminRequest) -> Any:
        """DeleteUser."""
        iggy = self._served()
        user = iggy.users.find(asked.name)
        if asked.dry_run and user.id == ROOT_ID:
            raise rejected(RejectionCode.USER_IS_ROOT, f"user {user.name} is the first one, and stays")
        if not asked.dry_run:
            await iggy.users.delete(user, request.timeout_s)
        return message("DeleteUserResponse")()

    async def set_user_password(self, asked: Any, request: AdminRequest) -> Any:
        """SetUserPassword."""
        iggy = self._served()
        user = iggy.users.find(asked.name)
        check_password(asked.password)
        if not asked.dry_run:
            await iggy.users.set_password(user, None, asked.password, request.timeout_s)
        return message("SetUserPasswordResponse")()

    async def set_user_status(self, asked: Any, request: AdminRequest) -> Any:
        """SetUserStatus."""
        iggy = self._served()
        user = iggy.users.find(asked.name)
        if asked.dry_run and user.id == ROOT_ID and not asked.is_active:
            raise rejected(RejectionCode.USER_IS_ROOT, f"user {user.name} is the first one, and stays active")
        if not asked.dry_run:
            await iggy.users.update(user, None, is_active=asked.is_active, timeout_s=request.timeout_s)
        return message("SetUserStatusResponse")()

    async def set_user_rights(self, asked: Any, request: AdminRequest) -> Any:
        """SetUserRights."""
        iggy = self._served()
        user = iggy.users.find(asked.name)
        rights = _rights(self._controller.state, asked.grants)
        if asked.dry_run and user.id == ROOT_ID:
            raise rejected(RejectionCode.USER_IS_ROOT, f"user {user.name} is the first one, and may do everything")
        if not asked.dry_run:
            await iggy.users.set_rights(user, rights, request.timeout_s)
        return message("SetUserRightsResponse")()

    async def create_user_token(self, asked: Any, request: AdminRequest) -> Any:
        """CreateUserToken."""
        iggy = self._served()
        user = iggy.users.find(asked.user)
        if asked.expires_in_ms < 0:
            text = f"expires_in_ms is {asked.expires_in_ms}: it must be 0, for never, or above"
            raise StatusError(Status.INVALID_ARGUMENT, text)
        if asked.dry_run:
            check_token_name(asked.name)
            iggy.tokens.check_is_free(user, asked.name)
            return message("CreateUserTokenResponse")()
        expiry_us = asked.expires_in_ms * US_PER_MS
        token = await iggy.tokens.create(user, asked.name, expiry_us, request.timeout_s)
        return message("CreateUserTokenResponse")(token=token)

    async def delete_user_token(self, asked: Any, request: AdminRequest) -> Any:
        """DeleteUserToken."""
        iggy = self._served()
        user = iggy.users.find(asked.user)
        if all(token.name != asked.name for token in user.tokens):
            raise rejected(RejectionCode.TOKEN_NOT_FOUND, f"user {user.name} has no token {asked.name}")
        if not asked.dry_run:
            await iggy.tokens.delete(user, asked.name, request.timeout_s)
        return message("DeleteUserTokenResponse")()

    def _served(self) -> IggyAdmin:
        """What decides about users.

        Raises:
            StatusError: FAILED_PRECONDITION: Iggy's clients are not served here.
        """
        if self._iggy is None:
            text = "iggy.listen is off on this broker, so it has no users: set it, or ask a broker that serves them"
            raise StatusError(Status.FAILED_PRECONDITION, text)
        if all(user.id != ROOT_ID for user in self._controller.state.users.values()):
            raise StatusError(Status.UNAVAILABLE, "the broker has not made the first user yet: try again")
        return self._iggy

    def _shown(self, state: State, iggy: IggyAdmin, user: User) -> Any:
        return _User(
            number=user_number(user),
            name=user.name,
            is_active=user.is_active,
            created_ns=user.created_ns,
            grants=_grants(state, user.granted),
            tokens=[_UserToken(name=token.name, expires_ns=token.expires_ns) for token in iggy.tokens.valid(user)],
        )


def _rights(state: State, grants: Iterable[Any]) -> Rights | None:
    """Grants of a request as rights; those on the same place are joined. No grants = none.

    Raises:
        IggyError: a stream or topic does not exist.
        StatusError: INVALID_ARGUMENT: a right that there is not, or a topic without a stream.
    """
    everywhere = 0
    streams: dict[int, int] = {}
    topics: dict[int, dict[int, int]] = {}
    is_empty = True
    for grant in grants:
        is_empty = False
        if grant.topic and not grant.stream:
            raise StatusError(Status.INVALID_ARGUMENT, f"a grant names topic {grant.topic!r} of no stream: name it too")
        if not grant.stream:
            everywhere |= _bits(grant.rights, GlobalRight, "everywhere")
            continue
        namespace = find_stream(state, grant.stream)
        streams.setdefault(namespace.id, 0)
        if not grant.topic:
            streams[namespace.id] |= _bits(grant.rights, StreamRight, "on a stream")
            continue
        topic, found = find_topic(state, namespace, grant.topic), topics.setdefault(namespace.id, {})
        found[topic.id] = found.get(topic.id, 0) | _bits(grant.rights, TopicRight, "on a topic")
    if is_empty:
        return None
    named = [
        StreamRights(number, bits, tuple(TopicRights(*item) for item in sorted(topics.get(number, {}).items())))
        for number, bits in sorted(streams.items())
    ]
    return Rights(everywhere, tuple(named))


def _bits(names: Iterable[str], kind: type[IntFlag], where: str) -> int:
    known = {right.name.lower(): right.value for right in kind if right.name is not None}
    bits = 0
    for name in names:
        if name not in known:
            raise StatusError(
                Status.INVALID_ARGUMENT, f"{name[:80]!r} is not a right {where}: there are {', '.join(known)}"
            )
        bits |= known[name]
    return bits


def _grants(state: State, rights: Rights | None) -> list[Any]:
    if rights is None:
        return []
    found = [_Grant(rights=_names(rights.rights, GlobalRight))] if rights.rights else []
    namespaces = {item.id: item for item in state.namespaces.values()}
    for stream in rights.streams:
        namespace = namespaces.get(stream.id)
        name = namespace.name if namespace else f"#{stream.id}"
        if stream.rights:
            found.append(_Grant(stream=name, rights=_names(stream.rights, StreamRight)))
        names = _topic_names(state, namespace if stream.topics else None)
        found.extend(
            _Grant(stream=name, topic=names.get(topic.id, f"#{topic.id + 1}"), rights=_names(topic.rights, TopicRight))
            for topic in stream.topics
        )
    return found


def _topic_names(state: State, namespace: Namespace | None) -> Mapping[int, str]:
    if namespace is None:
        return {}
    return {stream.id: key.name for key, stream in state.streams.items() if key.namespace == namespace.name}


def _names(bits: int, kind: type[IntFlag]) -> list[str]:
    return [right.name.lower() for right in kind if right.name is not None and bits & right]
