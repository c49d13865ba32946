"""Users, rights and tokens of Iggy's clients: numbers, statuses, what replies show, and who may do what."""

import itertools
import struct
from dataclasses import astuple, fields, replace

import pytest
from argon2 import PasswordHasher
from bascule._seam import Request
from bascule.control.reconcile import plan
from bascule.control.user_rights import RULES, UserAction, may, user_spec
from bascule.metadata import (
    CreateNamespace,
    CreateUser,
    GlobalRight,
    Rights,
    SetUserRights,
    State,
    StreamRight,
    StreamRights,
    TopicRight,
    TopicRights,
    User,
)
from bascule.metadata.rejection import RejectedError
from bascule.protocols.iggy.authorization import NEEDS, OPEN
from bascule.protocols.iggy.commands import DECODERS, MAX_PERMISSIONS_BYTES
from bascule.protocols.iggy.fields import Identifier, identifier, long_text, short_text
from bascule.protocols.iggy.lookup import DEFAULT_NUMBER
from bascule.protocols.iggy.permissions import (
    GlobalFlags,
    Permissions,
    StreamFlags,
    TopicFlags,
    encode_permissions,
    read_permissions,
)
from bascule.protocols.iggy.statuses import IggyError
from bascule.protocols.iggy.tokens import TokenCommands

from tests.unit.control.fake_plane import until
from tests.unit.control.rig import Rig, running

MAX_U64 = (1 << 64) - 1
ROOT = 0
RIGHTS = Permissions(
    GlobalFlags(read_servers=True),
    {1: StreamFlags(read_stream=True), DEFAULT_NUMBER: StreamFlags(send_messages=True)},
    {(1, 2): TopicFlags(poll_messages=True)},
)
CHEAP_HASH = PasswordHasher(1, 8, 1).hash("root password")
_requests = itertools.count(5000)


async def call(rig: Rig, command: str, payload: bytes = b"", user: int | None = ROOT) -> tuple[int, bytes]:
    """Send one request of a user through the seam: status of Iggy and payload."""
    request_id = next(_requests)
    client = None if user is None else f"iggy:{user}"
    rig.plane.push(Request(request_id, f"iggy/{command}", payload, "127.0.0.1:5", client, None))
    await until(lambda: request_id in rig.plane.replies)
    grpc, text, body = rig.plane.replies[request_id]
    if grpc == 0:
        return 0, body
    status = rig.plane.iggy_statuses[request_id]
    assert status, text
    return status, body


def login(name: str, password: str) -> bytes:
    return short_text(name) + short_text(password) + long_text("0.6.202") + long_text("")


def block(permissions: Permissions | None) -> bytes:
    if permissions is None:
        return b"\0"
    encoded = encode_permissions(permissions)
    return b"\1" + struct.pack("<I", len(encoded)) + encoded


def new_user(name: str, password: str = "secret", status: int = 1, permissions: Permissions | None = None) -> bytes:
    return short_text(name) + short_text(password) + bytes([status]) + block(permissions)


def update(user: Identifier, name: str | None = None, status: int | None = None) -> bytes:
    named = b"\0" if name is None else b"\1" + short_text(name)
    return identifier(user) + named + (b"\0" if status is None else bytes([1, status]))


def shown(body: bytes) -> tuple[int, int, str, bytes]:
    """Number, status, name, and what follows."""
    number, _, status, size = struct.unpack_from("<IQBB", body)
    return number, status, body[14 : 14 + size].decode(), body[14 + size :]


def shown_permissions(rest: bytes) -> Permissions | None:
    if rest == bytes(4):
        return None
    has, size = struct.unpack_from("<BI", rest)
    assert (has, size) == (1, len(rest) - 5)
    return read_permissions(rest[5:])


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    """With root, whose password is `root password`, and the namespace `n` of number 1."""
    await rig.controller.propose(CreateUser("iggy", CHEAP_HASH, 0), 5.0)
    await rig.controller.propose(CreateNamespace("n", 0), 5.0)
    return rig


async def test_a_user_is_shown_as_it_was_created_and_replaced_as_a_whole(rig: Rig) -> None:
    status, body = await call(rig, "CREATE_USER", new_user("ada", permissions=RIGHTS))
    number, state, name, rest = shown(body)
    assert (status, number, state, name, shown_permissions(rest)) == (0, 2, 1, "ada", RIGHTS)
    assert shown((await call(rig, "CREATE_USER", new_user("bob", status=2)))[1])[:3] == (3, 2, "bob")
    for wanted in ("ada", 2):
        assert await call(rig, "GET_USER", identifier(wanted)) == (0, body)
    assert await call(rig, "GET_USER", identifier("absent")) == (0, b"")
    names, rest = list[str](), (await call(rig, "GET_USERS"))[1]
    while rest:
        _, _, name, rest = shown(rest)
        names.append(name)
    assert names == ["iggy", "ada", "bob"]
    assert await call(rig, "UPDATE_PERMISSIONS", identifier("ada") + block(None)) == (0, b"")
    assert shown((await call(rig, "GET_USER", identifier(2)))[1])[3] == bytes(4)
    assert await call(rig, "UPDATE_USER", update("ada", "eve", 2)) == (0, b"")
    assert await call(rig, "UPDATE_USER", update("eve")) == (0, b"")
    assert shown((await call(rig, "GET_USER", identifier(2)))[1])[:3] == (2, 2, "eve")
    assert await call(rig, "DELETE_USER", identifier("eve")) == (0, b"")
    assert await call(rig, "GET_USER", identifier(2)) == (0, b"")
    rights = shown_permissions(shown((await call(rig, "GET_USER", identifier("iggy")))[1])[3])
    assert rights == Permissions(GlobalFlags(*[True] * 10)), "the first user may do everything"


@pytest.mark.parametrize(
    ("command", "payload", "status"),
    [
        ("CREATE_USER", new_user("ab"), 43),
        ("CREATE_USER", new_user("é" * 26), 43),
        ("CREATE_USER", new_user("a\u200bbc"), 43),
        ("CREATE_USER", new_user("ada", "ab"), 44),
        ("CREATE_USER", new_user("ada", "a" * 101), 44),
        ("CREATE_USER", new_user("iggy"), 46),
        ("CREATE_USER", new_user("ada", status=3), 3),
        ("DELETE_USER", identifier("iggy"), 48),
        ("DELETE_USER", identifier(1), 48),
        ("DELETE_USER", identifier("absent"), 20),
        ("UPDATE_USER", update("iggy", status=2), 49),
        ("UPDATE_USER", update("absent", "ada"), 20),
        ("UPDATE_USER", update("iggy", "ab"), 43),
        ("UPDATE_PERMISSIONS", identifier("iggy") + b"\0", 49),
        ("UPDATE_PERMISSIONS", identifier("absent") + b"\0", 20),
        ("CHANGE_PASSWORD", identifier("iggy") + short_text("wrong") + short_text("another"), 42),
        ("CHANGE_PASSWORD", identifier("iggy") + short_text("root password") + short_text("ab"), 44),
        ("CHANGE_PASSWORD", identifier("absent") + short_text("wrong") + short_text("another"), 20),
    ],
)
async def test_what_breaks_a_rule_has_its_status_and_changes_nothing(
    rig: Rig, command: str, payload: bytes, status: int
) -> None:
    before = rig.controller.state.users
    assert await call(rig, command, payload) == (status, b"")
    assert rig.controller.state.users == before


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        bytes(10),
        bytes(9) + b"\2\0",
        bytes(10) + b"\1",
        bytes(10) + b"\1" + struct.pack("<I", 1) + bytes(7),
        bytes(10) + b"\1" + struct.pack("<I", 0) + bytes(8),
        bytes(10) + b"\1" + struct.pack("<I", DEFAULT_NUMBER - 1) + bytes(8),
        bytes(10) + b"\1" + struct.pack("<I", 1) + bytes(6) + b"\1" + struct.pack("<I", 0) + bytes(6),
        encode_permissions(RIGHTS) + b"\0",
        encode_permissions(RIGHTS)[:-1],
        bytes(MAX_PERMISSIONS_BYTES + 1),
        b"\xff" * 1000,
    ],
)
async def test_a_block_of_rights_that_is_none_is_refused_as_such(rig: Rig, garbage: bytes) -> None:
    sized = b"\1" + struct.pack("<I", len(garbage)) + garbage
    before = rig.controller.state.users
    assert await call(rig, "UPDATE_PERMISSIONS", identifier("iggy") + sized) == (3, b"")
    assert await call(rig, "CREATE_USER", new_user("ada")[:-1] + sized) == (3, b"")
    assert rig.controller.state.users == before


async def test_the_largest_block_of_rights_fits(rig: Rig) -> None:
    topics = {(1, number): TopicFlags(*[True] * 4) for number in range(1, 7_000)}
    many = Permissions(streams={1: StreamFlags()}, topics=topics)
    assert len(encode_permissions(many)) < MAX_PERMISSIONS_BYTES
    await call(rig, "CREATE_USER", new_user("ada"))
    assert await call(rig, "UPDATE_PERMISSIONS", identifier("ada") + block(many)) == (0, b"")
    assert shown_permissions(shown((await call(rig, "GET_USER", identifier("ada")))[1])[3]) == many


async def test_a_password_is_changed_with_the_current_one_by_its_user_or_a_manager(rig: Rig) -> None:
    await call(rig, "CREATE_USER", new_user("ada"))
    change = identifier("ada") + short_text("secret") + short_text("another")
    assert await call(rig, "CHANGE_PASSWORD", change, user=1) == (0, b"")
    assert await call(rig, "LOGIN_USER", login("ada", "secret"), None) == (42, b"")
    assert await call(rig, "LOGIN_USER", login("ada", "another"), None) == (0, b"\2\0\0\0")
    assert await call(rig, "CHANGE_PASSWORD", change) == (42, b"")
    root = identifier("iggy") + short_text("root password") + short_text("another")
    assert await call(rig, "CHANGE_PASSWORD", root, user=1) == (41, b"")


async def test_the_first_user_has_the_password_that_was_given_or_shown_and_is_made_once(rig: Rig) -> None:
    shown_passwords = list[str]()
    await call(rig, "UPDATE_USER", update("iggy", "chief"))
    await rig.iggy.logins.make_root(None, shown_passwords.append, 5.0)
    assert shown_passwords == [], "it exists under another name"
    assert await call(rig, "LOGIN_USER", login("chief", "root password"), None) == (0, b"\1\0\0\0")
    for wrong in (login("iggy", "root password"), login("chief", ""), login("chief", "x" * 200)):
        assert await call(rig, "LOGIN_USER", wrong, None) == (42, b"")


async def test_a_generated_password_is_shown_and_logs_in() -> None:
    async with running() as rig:
        shown_passwords = list[str]()
        await rig.iggy.logins.make_root(None, shown_passwords.append, 5.0)
        (password,) = shown_passwords
        assert len(password) == 32
        assert await call(rig, "LOGIN_USER", login("iggy", password), None) == (0, b"\1\0\0\0")
        kept = rig.controller.state.users["iggy"].password
        assert kept.startswith("$argon2id$")
        assert password not in kept


async def test_inactive_users_cannot_log_in_and_their_sessions_end(rig: Rig) -> None:
    await call(rig, "CREATE_USER", new_user("ada"))
    _, token = await call(rig, "CREATE_PERSONAL_ACCESS_TOKEN", short_text("dev") + struct.pack("<Q", 0), user=1)
    await call(rig, "UPDATE_USER", update("ada", status=2))
    assert await call(rig, "LOGIN_USER", login("ada", "secret"), None) == (47, b"")
    assert await call(rig, "LOGIN_USER", login("ada", "wrong"), None) == (42, b""), (
        "only who knows the password learns it"
    )
    assert await call(rig, "LOGIN_WITH_PERSONAL_ACCESS_TOKEN", token, None) == (47, b"")
    assert await call(rig, "GET_USER", identifier("ada"), user=1) == (40, b"")
    await call(rig, "UPDATE_USER", update("ada", status=1))
    assert await call(rig, "LOGIN_USER", login("ada", "secret"), None) == (0, b"\2\0\0\0")


def token_names(body: bytes) -> list[tuple[str, int]]:
    found = list[tuple[str, int]]()
    while body:
        size = body[0]
        found.append((body[1 : 1 + size].decode(), struct.unpack_from("<Q", body, 1 + size)[0]))
        body = body[9 + size :]
    return found


async def test_tokens_log_in_until_they_expire_or_are_deleted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await call(rig, "CREATE_USER", new_user("ada"))

    async def create(name: str, expiry_us: int) -> tuple[int, bytes]:
        return await call(rig, "CREATE_PERSONAL_ACCESS_TOKEN", short_text(name) + struct.pack("<Q", expiry_us), 1)

    _, token = await create("dev", 5)
    assert len(token) == 1 + 68
    assert token.decode()[1:] not in repr(rig.controller.state.users)
    assert [await create(name, 0) for name in ("ab", "x" * 31, "dev")] == [(50, b""), (50, b""), (51, b"")]
    for name, expiry_us in (("max", MAX_U64), ("far", MAX_U64 - 1), ("zero", 0)):
        assert (await create(name, expiry_us))[0] == 0
    listed = [("dev", 6), ("far", 0), ("max", 0), ("zero", 0)]
    assert token_names((await call(rig, "GET_PERSONAL_ACCESS_TOKENS", user=1))[1]) == listed
    assert await call(rig, "GET_PERSONAL_ACCESS_TOKENS") == (0, b""), "each user has its own"
    assert await call(rig, "LOGIN_WITH_PERSONAL_ACCESS_TOKEN", token, None) == (0, b"\2\0\0\0")
    monkeypatch.setattr(rig.controller, "_clock_ns", lambda: 6_000)
    assert await call(rig, "LOGIN_WITH_PERSONAL_ACCESS_TOKEN", token, None) == (54, b"")
    assert token_names((await call(rig, "GET_PERSONAL_ACCESS_TOKENS", user=1))[1]) == listed[1:]
    assert (await create("dev", 0))[0] == 0
    assert await call(rig, "LOGIN_WITH_PERSONAL_ACCESS_TOKEN", token, None) == (20, b""), "it has been replaced"
    assert await call(rig, "DELETE_PERSONAL_ACCESS_TOKEN", short_text("dev"), 1) == (0, b"")
    assert await call(rig, "DELETE_PERSONAL_ACCESS_TOKEN", short_text("dev"), 1) == (20, b"")
    for text, status in (("", 53), ("x" * 101, 53), ("x", 20)):
        assert await call(rig, "LOGIN_WITH_PERSONAL_ACCESS_TOKEN", short_text(text), None) == (status, b"")


async def test_a_user_has_at_most_a_hundred_tokens(rig: Rig) -> None:
    for number in range(100):
        payload = short_text(f"token-{number}") + struct.pack("<Q", 0)
        assert (await call(rig, "CREATE_PERSONAL_ACCESS_TOKEN", payload))[0] == 0
    over = short_text("token-100") + struct.pack("<Q", 0)
    assert await call(rig, "CREATE_PERSONAL_ACCESS_TOKEN", over) == (52, b"")


async def test_more_tokens_are_allowed_by_the_configuration(rig: Rig) -> None:
    user = next(iter(rig.controller.state.users.values()))
    few, many = TokenCommands(rig.controller, 2), TokenCommands(rig.controller, 3)
    for number in range(2):
        await few.create(user, f"token-{number}", 0, 5.0)
    with pytest.raises(RejectedError, match=r"has 2 tokens, and at most 2 are allowed.*iggy\.tokens_per_user"):
        await few.create(user, "token-2", 0, 5.0)
    await many.create(user, "token-2", 0, 5.0)
    with pytest.raises(IggyError, match="has 3 tokens, and at most 3"):
        many.check_is_free(rig.controller.state.users[user.name], "token-3")


async def test_a_user_without_rights_may_read_himself_and_keep_tokens(rig: Rig) -> None:
    await call(rig, "CREATE_USER", new_user("ada"))
    for wanted in ("ada", 2):
        assert shown((await call(rig, "GET_USER", identifier(wanted), 1))[1])[2] == "ada"
    assert await call(rig, "GET_PERSONAL_ACCESS_TOKENS", user=1) == (0, b"")
    for other in ("iggy", 1, "absent", 9):
        assert await call(rig, "GET_USER", identifier(other), 1) == (41, b"")
    for place in ("n", 1, "absent"):
        assert await call(rig, "GET_STREAM", identifier(place), 1) == (41, b""), "it does not learn what exists"
    rights = Rights(0, (StreamRights(1, StreamRight.READ_STREAM),))
    await rig.controller.propose(SetUserRights(1, rights), 5.0)
    assert (await call(rig, "GET_STREAM", identifier("n"), 1))[0] == 0
    assert await call(rig, "GET_TOPIC", identifier("n") + identifier("absent"), 1) == (0, b"")
    assert await call(rig, "GET_STREAM", identifier("absent"), 1) == (41, b"")


def test_every_command_that_is_decided_here_says_what_right_it_needs() -> None:
    assert DECODERS.keys() - OPEN <= NEEDS.keys()


@pytest.mark.parametrize("user", [None, 77])
async def test_who_has_not_logged_in_gets_nothing(rig: Rig, user: int | None) -> None:
    for command in ("GET_USERS", "GET_STREAMS", "GET_PERSONAL_ACCESS_TOKENS"):
        assert await call(rig, command, user=user) == (40, b"")


def user(rights: Rights | None, number: int = 5) -> User:
    return User("ada", number, "", 0, rights=rights)


@pytest.mark.parametrize("action", UserAction)
def test_each_right_of_a_rule_suffices_and_no_other_does(action: UserAction) -> None:
    rule = RULES[action]
    for right in GlobalRight:
        assert may(user(Rights(right)), action) is bool(right & rule.everywhere), right
    for on_stream in StreamRight:
        it = user(Rights(0, (StreamRights(3, on_stream),)))
        assert may(it, action, 3, 7) is bool(on_stream & rule.stream)
        assert not may(it, action, 4, 7)
        assert not may(it, action)
    for on_topic in TopicRight:
        it = user(Rights(0, (StreamRights(3, 0, (TopicRights(7, on_topic),)),)))
        assert may(it, action, 3, 7) is bool(on_topic & rule.topic)
        assert not may(it, action, 3, 8)
        assert not may(it, action, 3)
    assert not may(user(None), action, 3, 7)
    assert may(user(None, ROOT), action)


def test_the_data_plane_gets_the_outcome_of_the_rules() -> None:
    rights = Rights(
        GlobalRight.READ_TOPICS,
        (StreamRights(0, StreamRight.SEND_MESSAGES, (TopicRights(4, TopicRight.MANAGE_TOPIC),)), StreamRights(2, 0)),
    )
    poll, send, read, servers = 1, 2, 4, 8
    assert user_spec(user(rights)) == {
        "id": 5,
        "name": "ada",
        "everywhere": poll | read,
        "streams": [(0, send), (2, 0)],
        "topics": [(0, 4, poll | send | read)],
    }
    assert user_spec(user(None))["everywhere"] == 0
    assert user_spec(user(None, ROOT))["everywhere"] == poll | send | read | servers


def test_users_who_may_log_in_are_in_the_view_and_others_are_not() -> None:
    def with_users(*users: User) -> State:
        return State(users={item.name: item for item in users})

    ada, bob = user(None), replace(user(None, 6), name="bob", is_active=False)

    def changes(before: State, after: State) -> tuple[list[int], list[int]]:
        steps = plan(before, after, "a")
        return [item.id for item in steps.users], [*steps.removed_users]

    assert changes(State(), with_users(ada, bob)) == ([5], [])
    assert changes(with_users(ada, bob), with_users(ada, bob)) == ([], [])
    assert changes(with_users(ada), with_users(replace(ada, name="eve"))) == ([5], [5])
    assert changes(with_users(ada), with_users(replace(ada, is_active=False))) == ([], [5])
    assert changes(with_users(bob), with_users(replace(bob, is_active=True))) == ([6], [])
    assert changes(with_users(ada), with_users(replace(ada, id=7))) == ([7], [5]), "another one of the same name"


def test_bits_of_rights_are_in_the_order_of_the_block() -> None:
    for kind, flags in ((GlobalRight, GlobalFlags), (StreamRight, StreamFlags), (TopicRight, TopicFlags)):
        assert [item.name.upper() for item in fields(flags)] == [right.name for right in kind]
        for right in kind:
            assert right.name is not None
            one = replace(flags(), **{right.name.lower(): True})
            assert sum(1 << bit for bit, is_set in enumerate(astuple(one)) if is_set) == right
