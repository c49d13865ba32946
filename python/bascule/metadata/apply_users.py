"""The part of `apply` that concerns users of Iggy's clients. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from bascule.metadata.model import MAX_NUMBERS, State
from bascule.metadata.rejection import RejectionCode, check_name, invalid, rejected
from bascule.metadata.user_commands import (
    CreateUser,
    CreateUserToken,
    DeleteUser,
    DeleteUserToken,
    SetUserPassword,
    SetUserRights,
    UpdateUser,
    UserCommand,
)
from bascule.metadata.users import (
    MAX_GRANTS,
    MAX_TOKENS,
    MAX_USERS,
    ROOT_ID,
    GlobalRight,
    Rights,
    StreamRight,
    StreamRights,
    TopicRight,
    User,
)


def create(state: State, _: int, command: CreateUser) -> State:
    """Add a user."""
    check_name("name of a user", command.name)
    _check_password(command.password)
    _check_is_free(state, command.name)
    if len(state.users) >= MAX_USERS:
        raise rejected(RejectionCode.TOO_MANY_USERS, f"{MAX_USERS} users exist: delete some")
    user = User(command.name, state.next_user_id, command.password, command.created_ns, command.is_active)
    user = _with_rights(state, user, command.rights)
    return replace(state, users={**state.users, user.name: user}, next_user_id=user.id + 1)


def update(state: State, _: int, command: UpdateUser) -> State:
    """Rename a user, or change whether it may log in."""
    user = _find(state, command.id)
    changed = user
    if command.name is not None and command.name != user.name:
        check_name("name of a user", command.name)
        _check_is_free(state, command.name)
        changed = replace(changed, name=command.name)
    if command.is_active is not None:
        if user.id == ROOT_ID and not command.is_active:
            raise rejected(RejectionCode.USER_IS_ROOT, f"user {user.name} is the first one, and stays active")
        changed = replace(changed, is_active=command.is_active)
    return _put(state, user, changed)


def delete(state: State, _: int, command: DeleteUser) -> State:
    """Remove a user; its number is not used again."""
    user = _find(state, command.id)
    if user.id == ROOT_ID:
        raise rejected(RejectionCode.USER_IS_ROOT, f"user {user.name} is the first one, and stays")
    return replace(state, users={name: item for name, item in state.users.items() if name != user.name})


def set_rights(state: State, _: int, command: SetUserRights) -> State:
    """Replace the rights of a user."""
    user = _find(state, command.id)
    if user.id == ROOT_ID:
        raise rejected(RejectionCode.USER_IS_ROOT, f"user {user.name} is the first one, and may do everything")
    return _put(state, user, _with_rights(state, user, command.rights))


def set_password(state: State, _: int, command: SetUserPassword) -> State:
    """Replace the password of a user, unless it is another one than what was checked."""
    user = _find(state, command.id)
    _check_password(command.password)
    if command.seen is not None and command.seen != user.password:
        raise rejected(RejectionCode.PASSWORD_CHANGED, f"the password of user {user.name} has changed meanwhile")
    return _put(state, user, replace(user, password=command.password))


def create_token(state: State, _: int, command: CreateUserToken) -> State:
    """Add a token to those of the user that are valid."""
    user, token = _find(state, command.id), command.token
    check_name("name of a token", token.name)
    if not token.digest:
        raise invalid(f"token {token.name} has no digest")
    valid = [item for item in user.tokens if item.is_valid_at(command.created_ns)]
    if any(item.name == token.name for item in valid):
        raise rejected(RejectionCode.TOKEN_EXISTS, f"user {user.name} has a token {token.name}")
    if not 1 <= command.most <= MAX_TOKENS:
        raise invalid(f"a bound of {command.most} tokens is not between 1 and {MAX_TOKENS}")
    if len(valid) >= command.most:
        raise rejected(RejectionCode.TOO_MANY_TOKENS, too_many_tokens(user, len(valid), command.most))
    tokens = sorted((*valid, token), key=lambda item: item.name)
    return _put(state, user, replace(user, tokens=tuple(tokens)))


def delete_token(state: State, _: int, command: DeleteUserToken) -> State:
    """Remove a token."""
    user = _find(state, command.id)
    rest = tuple(item for item in user.tokens if item.name != command.name)
    if rest == user.tokens:
        raise rejected(RejectionCode.TOKEN_NOT_FOUND, f"user {user.name} has no token {command.name}")
    return _put(state, user, replace(user, tokens=rest))


USER_CHANGES: Final[dict[type[UserCommand], Callable[[State, int, Any], State]]] = {
    CreateUser: create,
    UpdateUser: update,
    DeleteUser: delete,
    SetUserRights: set_rights,
    SetUserPassword: set_password,
    CreateUserToken: create_token,
    DeleteUserToken: delete_token,
}
"""By the kind of the entry; the same at every level."""


def without_stream(state: State, namespace: int, stream: int) -> State:
    """The state without rights on a stream, by the numbers of its namespace and its own."""

    def rest(item: StreamRights) -> StreamRights:
        if item.id != namespace or all(topic.id != stream for topic in item.topics):
            return item
        return replace(item, topics=tuple(topic for topic in item.topics if topic.id != stream))

    return _with_streams(state, lambda streams: tuple(rest(item) for item in streams))


def without_namespace(state: State, namespace: int) -> State:
    """The state without rights on a namespace and its streams, by its number."""
    return _with_streams(state, lambda streams: tuple(item for item in streams if item.id != namespace))


def _with_streams(state: State, change: Callable[[tuple[StreamRights, ...]], tuple[StreamRights, ...]]) -> State:
    users = dict(state.users)
    for name, user in state.users.items():
        if user.rights is not None and (streams := change(user.rights.streams)) != user.rights.streams:
            users[name] = replace(user, rights=replace(user.rights, streams=streams))
    return state if users == state.users else replace(state, users=users)


def too_many_tokens(user: User, count: int, most: int) -> str:
    """The text of the rejection of one more token."""
    text = f"user {user.name} has {count} tokens, and at most {most} are allowed: delete some"
    return f"{text}, or raise iggy.tokens_per_user" if most < MAX_TOKENS else text


def _find(state: State, number: int) -> User:
    found = next((user for user in state.users.values() if user.id == number), None)
    if found is None:
        raise rejected(RejectionCode.USER_NOT_FOUND, f"user {number} does not exist")
    return found


def _put(state: State, before: User, after: User) -> State:
    users = {name: user for name, user in state.users.items() if name != before.name}
    return replace(state, users={**users, after.name: after})


def _check_is_free(state: State, name: str) -> None:
    if name in state.users:
        raise rejected(RejectionCode.USER_EXISTS, f"user {name} exists")


def _check_password(hashed: str) -> None:
    if not hashed:
        raise invalid("a user has no password")


def _with_rights(state: State, user: User, rights: Rights | None) -> User:
    """The user with these rights.

    Raises:
        RejectedError: a bit has no meaning, a number is out of bounds or not above the one before, or all rights
            together name too much.
    """
    if rights is not None:
        _check_bits(rights.rights, GlobalRight)
        _check_numbers(item.id for item in rights.streams)
        for stream in rights.streams:
            _check_bits(stream.rights, StreamRight)
            _check_numbers(item.id for item in stream.topics)
            for topic in stream.topics:
                _check_bits(topic.rights, TopicRight)
        others = sum(item.rights.grants for item in state.users.values() if item.rights and item.id != user.id)
        if others + rights.grants > MAX_GRANTS:
            count = others + rights.grants
            text = f"the rights of all users name {count} streams and topics, and at most {MAX_GRANTS} are kept"
            raise rejected(RejectionCode.NO_ROOM, f"{text}: give rights on whole streams, or delete users")
    return replace(user, rights=rights)


def _check_bits(bits: int, kind: type[GlobalRight | StreamRight | TopicRight]) -> None:
    if not 0 <= bits < 1 << len(kind):
        raise invalid(f"rights {bits} have bits beyond the {len(kind)} of {kind.__name__}")


def _check_numbers(numbers: Iterable[int]) -> None:
    last = -1
    for number in numbers:
        if not last < number < MAX_NUMBERS:
            raise invalid(f"number {number} in rights is not between {last + 1} and {MAX_NUMBERS - 1}")
        last = number
