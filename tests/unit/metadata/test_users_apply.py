"""Users of Iggy's clients: names, rights and tokens, what is refused, and what old directories know of them."""

import json
from dataclasses import replace
from hashlib import sha256

import pytest
from bascule.metadata import (
    DEFAULT_TOKENS,
    MAX_NUMBERS,
    MAX_TOKENS,
    AccessToken,
    Command,
    CreateNamespace,
    CreateStream,
    CreateUser,
    CreateUserToken,
    DeleteNamespace,
    DeleteStream,
    DeleteUser,
    DeleteUserToken,
    GlobalRight,
    Placement,
    Rejection,
    RejectionCode,
    Rights,
    SetUserPassword,
    SetUserRights,
    State,
    StreamRight,
    StreamRights,
    StreamSettings,
    TopicRight,
    TopicRights,
    UpdateUser,
    User,
    apply,
    apply_users,
    decode_command,
    decode_snapshot,
    digest,
    encode_command,
    encode_snapshot,
    initial_state,
)

from tests.unit.metadata.test_namespaces_apply import after, refusal

RIGHTS = Rights(
    GlobalRight.READ_USERS,
    (
        StreamRights(0, StreamRight.READ_STREAM),
        StreamRights(1, 0, (TopicRights(0, TopicRight.SEND_MESSAGES), TopicRights(1, TopicRight.POLL_MESSAGES))),
    ),
)
START: list[Command] = [
    CreateNamespace("n", 5),
    CreateUser("iggy", "$hash-0", 1),
    CreateUser("ada", "$hash-1", 2, rights=RIGHTS),
    CreateUser("bob", "$hash-2", 3, is_active=False),
]


def token(name: str, expires_ns: int = 0) -> AccessToken:
    return AccessToken(name, sha256(name.encode()).hexdigest(), expires_ns)


def user(state: State, name: str) -> User:
    return state.users[name]


def test_a_user_has_a_name_a_status_and_rights_that_change_alone() -> None:
    state = after(*START)
    assert [(item.id, item.is_active, item.rights) for item in state.users.values()] == [
        (0, True, None),
        (1, True, RIGHTS),
        (2, False, None),
    ]
    renamed = after(*START, UpdateUser(1, "eve", None), UpdateUser(2, None, True))
    assert set(renamed.users) == {"iggy", "eve", "bob"}
    assert user(renamed, "eve") == replace(user(state, "ada"), name="eve")
    assert user(renamed, "bob").is_active
    assert after(*START, UpdateUser(1, None, None)).users == state.users
    assert after(*START, UpdateUser(1, "ada", None)).users == state.users, "its own name is free to it"
    assert user(after(*START, SetUserRights(1, None)), "ada").rights is None
    assert user(after(*START, SetUserPassword(1, "$hash-1", "$new")), "ada").password == "$new"


def test_a_number_is_never_used_again_and_a_name_is() -> None:
    state = after(*START, DeleteUser(2), CreateUser("bob", "$hash-3", 4))
    assert user(state, "bob").id == 3
    assert user(state, "bob").tokens == ()


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (CreateUser("ada", "$hash", 5), RejectionCode.USER_EXISTS),
        (CreateUser("eve", "", 5), RejectionCode.INVALID),
        (UpdateUser(1, "bob", None), RejectionCode.USER_EXISTS),
        (UpdateUser(1, "", None), RejectionCode.INVALID),
        (UpdateUser(0, None, False), RejectionCode.USER_IS_ROOT),
        (UpdateUser(9, None, None), RejectionCode.USER_NOT_FOUND),
        (DeleteUser(0), RejectionCode.USER_IS_ROOT),
        (DeleteUser(9), RejectionCode.USER_NOT_FOUND),
        (SetUserRights(0, None), RejectionCode.USER_IS_ROOT),
        (SetUserRights(1, Rights(1 << 10)), RejectionCode.INVALID),
        (SetUserRights(1, Rights(-1)), RejectionCode.INVALID),
        (SetUserRights(1, Rights(0, (StreamRights(1, 1 << 6),))), RejectionCode.INVALID),
        (SetUserRights(1, Rights(0, (StreamRights(1, 0), StreamRights(1, 0)))), RejectionCode.INVALID),
        (SetUserRights(1, Rights(0, (StreamRights(MAX_NUMBERS, 0),))), RejectionCode.INVALID),
        (SetUserRights(1, Rights(0, (StreamRights(1, 0, (TopicRights(0, 1 << 4),)),))), RejectionCode.INVALID),
        (SetUserPassword(1, "$hash-0", "$new"), RejectionCode.PASSWORD_CHANGED),
        (SetUserPassword(1, "$hash-1", ""), RejectionCode.INVALID),
        (CreateUserToken(1, token(""), 5), RejectionCode.INVALID),
        (DeleteUserToken(1, "none"), RejectionCode.TOKEN_NOT_FOUND),
    ],
)
def test_what_is_refused_changes_nothing(command: Command, code: RejectionCode) -> None:
    assert refusal(after(*START), command) is code


def test_tokens_have_names_of_their_user_and_a_limit_that_expired_ones_leave() -> None:
    first = CreateUserToken(1, token("b", 10), 5)
    state = after(*START, first, CreateUserToken(1, token("a"), 5), CreateUserToken(2, token("b"), 5))
    assert user(state, "ada").tokens == (token("a"), token("b", 10))
    assert refusal(state, CreateUserToken(1, token("b"), 9)) is RejectionCode.TOKEN_EXISTS
    again = after(*START, first, CreateUserToken(1, token("b"), 10))
    assert user(again, "ada").tokens == (token("b"),), "the expired one has gone"
    many = [CreateUserToken(1, token(str(number), 10), 5) for number in range(DEFAULT_TOKENS)]
    assert refusal(after(*START, *many), CreateUserToken(1, token("x"), 5)) is RejectionCode.TOO_MANY_TOKENS
    assert user(after(*START, *many, CreateUserToken(1, token("x"), 10)), "ada").tokens == (token("x"),)
    assert user(after(*START, first, DeleteUserToken(1, "b")), "ada").tokens == ()


def test_the_limit_of_tokens_is_that_of_the_proposer() -> None:
    two = after(*START, *(CreateUserToken(1, token(name), 5, most=2) for name in "ab"))
    assert refusal(two, CreateUserToken(1, token("c"), 5, most=2)) is RejectionCode.TOO_MANY_TOKENS
    assert len(user(after(*START, *(CreateUserToken(1, token(name), 5, most=3) for name in "abc")), "ada").tokens) == 3
    for most in (0, MAX_TOKENS + 1):
        assert refusal(two, CreateUserToken(1, token("c"), 5, most=most)) is RejectionCode.INVALID


def test_rights_go_with_what_they_name() -> None:
    place = (Placement(("a",), "a"),)
    topics = [CreateStream("n", name, "", "", 1, StreamSettings(), place) for name in ("first", "second")]
    state = after(*START, *topics)
    created = state.streams["n", "first"].incarnation  # pyright: ignore[reportArgumentType] - keys are tuples
    without_topic = after(*START, *topics, DeleteStream("n", "first", created))
    rights = user(without_topic, "ada").rights
    assert rights is not None
    assert [item.topics for item in rights.streams] == [(), (TopicRights(1, TopicRight.POLL_MESSAGES),)]
    rights = user(after(*START, *topics, DeleteNamespace("n", 1)), "ada").rights
    assert rights == replace(RIGHTS, streams=RIGHTS.streams[:1])


def test_all_rights_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_users, "MAX_GRANTS", RIGHTS.grants + 1)
    state = after(*START, SetUserRights(2, Rights(0, (StreamRights(5, 0),))))
    assert refusal(state, CreateUser("eve", "$hash", 5, rights=RIGHTS)) is RejectionCode.NO_ROOM
    assert user(after(*START, SetUserRights(1, RIGHTS)), "ada").rights == RIGHTS, "what it replaces does not count"
    monkeypatch.setattr(apply_users, "MAX_USERS", 3)
    assert refusal(state, CreateUser("eve", "$hash", 5)) is RejectionCode.TOO_MANY_USERS


def test_commands_and_snapshots_are_read_back_as_they_were() -> None:
    commands = [*START, UpdateUser(1, None, False), CreateUserToken(1, token("a", 9), 5), DeleteUserToken(1, "a")]
    assert [decode_command(encode_command(command)) for command in commands] == commands
    state = after(*commands[:-1])
    restored = decode_snapshot(encode_snapshot(state))
    assert (restored, digest(restored)) == (state, digest(state))


def test_users_of_an_old_directory_are_active_without_rights_and_keep_their_bytes() -> None:
    entry = b'{"body":{"created_ns":7,"name":"iggy","password":"$hash"},"type":"create_user","v":1}'
    command = decode_command(entry)
    assert encode_command(command) == entry
    state, result = apply(initial_state(), 1, command)
    assert not isinstance(result, Rejection)
    document = json.loads(encode_snapshot(state).partition(b"\n")[2])
    assert document["users"] == [{"created_ns": 7, "id": 0, "name": "iggy", "password": "$hash"}]
    assert decode_snapshot(encode_snapshot(state)).users == {"iggy": User("iggy", 0, "$hash", 7)}
