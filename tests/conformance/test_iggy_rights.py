"""Every command × every role against a real broker: what each right of a user allows, and what it does not."""

import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from bascule.protocols.iggy.fields import Identifier, identifier, long_text, short_text
from bascule.protocols.iggy.permissions import (
    GlobalFlags,
    Permissions,
    StreamFlags,
    TopicFlags,
    encode_permissions,
)
from bascule.testing import broker

from tests.conformance import iggy_raw as iggy
from tests.conformance.iggy_raw import Raw, connected, path, to_partition
from tests.conformance.iggy_transports import TRANSPORTS, address_of, settings_of

PASSWORD = "a password of the test"
OWN = "its own password"
STREAM, TOPIC, OTHER_STREAM = 7, 3, 8
GROUP = "g"
UNAUTHENTICATED, UNAUTHORIZED = 40, 41

GLOBAL = [*GlobalFlags.__dataclass_fields__]
OF_STREAM = [*StreamFlags.__dataclass_fields__]
OF_TOPIC = [*TopicFlags.__dataclass_fields__]

ROLES: Mapping[str, Permissions | None] = {
    "nothing": None,
    "all elsewhere": Permissions(
        streams={OTHER_STREAM: StreamFlags(*[True] * 6), STREAM: StreamFlags()},
        topics={(OTHER_STREAM, TOPIC): TopicFlags(*[True] * 4), (STREAM, TOPIC + 1): TopicFlags(*[True] * 4)},
    ),
    **{f"g {flag}": Permissions(GlobalFlags(**{flag: True})) for flag in GLOBAL},
    **{f"s {flag}": Permissions(streams={STREAM: StreamFlags(**{flag: True})}) for flag in OF_STREAM},
    **{
        f"t {flag}": Permissions(streams={STREAM: StreamFlags()}, topics={(STREAM, TOPIC): TopicFlags(**{flag: True})})
        for flag in OF_TOPIC
    },
}


@dataclass(frozen=True)
class Case:
    """A command, the request that is made, and the flags of which one suffices: `None` = a login does."""

    code: int
    payload: Callable[[], bytes]
    flags: str | None


def case(code: int, payload: bytes | Callable[[], bytes], flags: str | None) -> Case:
    return Case(code, payload if callable(payload) else lambda: payload, flags)


PLACE = path(STREAM, TOPIC)
CONSUMER = b"\1" + identifier(1)
SETTINGS = struct.pack("<BQQB", 1, 0, 0, 0) + short_text("t")

SERVERS = "g manage_servers, g read_servers"
READ_USERS = "g manage_users, g read_users"
USERS = "g manage_users"
LIST_STREAMS = "g manage_streams, g read_streams"
READ_STREAM = f"{LIST_STREAMS}, s manage_stream, s read_stream"
MANAGE_STREAM = "g manage_streams, s manage_stream"
LIST_TOPICS = f"{READ_STREAM}, g manage_topics, g read_topics, s manage_topics, s read_topics"
READ_TOPIC = f"{LIST_TOPICS}, t manage_topic, t read_topic"
CREATE_TOPIC = f"{MANAGE_STREAM}, g manage_topics, s manage_topics"
MANAGE_TOPIC = f"{CREATE_TOPIC}, t manage_topic"
POLL = f"{READ_TOPIC}, g poll_messages, s poll_messages, t poll_messages"
SEND = f"{MANAGE_TOPIC}, g send_messages, s send_messages, t send_messages"

CASES: Mapping[str, Case] = {
    "PING": case(1, b"", None),
    "GET_STATS": case(10, b"", SERVERS),
    "GET_SNAPSHOT": case(11, b"\1\1\1", SERVERS),
    "GET_ME": case(20, b"", SERVERS),
    "GET_CLIENT": case(21, struct.pack("<I", 1), SERVERS),
    "GET_CLIENTS": case(22, b"", SERVERS),
    "GET_USER": case(31, identifier("iggy"), READ_USERS),
    "GET_USERS": case(32, b"", READ_USERS),
    "CREATE_USER": case(33, short_text("iggy") + short_text("secret") + b"\1\0", USERS),
    "DELETE_USER": case(34, identifier("absent"), USERS),
    "UPDATE_USER": case(35, identifier("absent") + b"\0\0", USERS),
    "UPDATE_PERMISSIONS": case(36, identifier("absent") + b"\0", USERS),
    "CHANGE_PASSWORD": case(37, identifier("absent") + short_text("secret") + short_text("another"), USERS),
    "GET_PERSONAL_ACCESS_TOKENS": case(41, b"", None),
    "CREATE_PERSONAL_ACCESS_TOKEN": case(42, short_text("a") + bytes(8), None),
    "DELETE_PERSONAL_ACCESS_TOKEN": case(43, short_text("absent"), None),
    "POLL_MESSAGES": case(100, CONSUMER + PLACE + struct.pack("<IBQIB", 1, 3, 0, 1, 1), POLL),
    "SEND_MESSAGES": case(101, PLACE + to_partition(1) + bytes(20) + struct.pack("<I", 1) + b"x", SEND),
    "FLUSH_UNSAVED_BUFFER": case(102, PLACE + struct.pack("<IB", 1, 1), SEND),
    "GET_CONSUMER_OFFSET": case(120, CONSUMER + PLACE + struct.pack("<I", 1), POLL),
    "STORE_CONSUMER_OFFSET": case(121, CONSUMER + PLACE + struct.pack("<IQ", 1, 0), POLL),
    "DELETE_CONSUMER_OFFSET": case(122, CONSUMER + PLACE + struct.pack("<I", 1), POLL),
    "GET_STREAM": case(200, identifier(STREAM), READ_STREAM),
    "GET_STREAMS": case(201, b"", LIST_STREAMS),
    "CREATE_STREAM": case(202, struct.pack("<I", 0) + short_text("s"), "g manage_streams"),
    "DELETE_STREAM": case(203, identifier(STREAM), MANAGE_STREAM),
    "UPDATE_STREAM": case(204, identifier(STREAM) + short_text("s"), MANAGE_STREAM),
    "PURGE_STREAM": case(205, identifier(STREAM), MANAGE_STREAM),
    "GET_TOPIC": case(300, PLACE, READ_TOPIC),
    "GET_TOPICS": case(301, identifier(STREAM), LIST_TOPICS),
    "CREATE_TOPIC": case(302, identifier(STREAM) + struct.pack("<II", 0, 1) + SETTINGS, CREATE_TOPIC),
    "DELETE_TOPIC": case(303, PLACE, MANAGE_TOPIC),
    "UPDATE_TOPIC": case(304, PLACE + SETTINGS, MANAGE_TOPIC),
    "PURGE_TOPIC": case(305, PLACE, MANAGE_TOPIC),
    "CREATE_PARTITIONS": case(402, PLACE + struct.pack("<I", 1001), MANAGE_TOPIC),
    "DELETE_PARTITIONS": case(403, PLACE + struct.pack("<I", 1001), MANAGE_TOPIC),
    "GET_CONSUMER_GROUP": case(600, PLACE + identifier(GROUP), READ_TOPIC),
    "GET_CONSUMER_GROUPS": case(601, PLACE, READ_TOPIC),
    "CREATE_CONSUMER_GROUP": case(602, PLACE + struct.pack("<I", 0) + short_text(GROUP), READ_TOPIC),
    "DELETE_CONSUMER_GROUP": case(603, PLACE + identifier("absent"), READ_TOPIC),
    "JOIN_CONSUMER_GROUP": case(604, PLACE + identifier(GROUP), READ_TOPIC),
    "LEAVE_CONSUMER_GROUP": case(605, PLACE + identifier(GROUP), READ_TOPIC),
}
"""Every command but logins and logout. What is allowed either works, or breaks a rule of its own: both are not 41."""

SINCE_V1B: Mapping[str, Case] = {"DELETE_SEGMENTS": case(503, PLACE + struct.pack("<II", 1, 0), MANAGE_TOPIC)}
"""The same, of commands that v1 has not."""
V1B: Final = "0.7.0"


@pytest.fixture(scope="module", params=TRANSPORTS)
def address(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD)
    with broker(settings=settings_of(file)) as running:
        yield address_of(running, request.param)


@pytest.fixture
def root(address: str) -> Iterator[Raw]:
    with connected(address, PASSWORD) as raw:
        yield raw


def block(permissions: Permissions | None) -> bytes:
    if permissions is None:
        return b"\0"
    encoded = encode_permissions(permissions)
    return b"\1" + struct.pack("<I", len(encoded)) + encoded


def create_user(root: Raw, name: str, permissions: Permissions | None = None) -> None:
    root.good(33, short_text(name) + short_text(OWN) + b"\1" + block(permissions))


@contextmanager
def logged_in(address: str, name: str, version: str = "0.6.202") -> Generator[Raw]:
    with connected(address) as raw:
        raw.login(OWN, name, version=version)
        yield raw


def make_place(root: Raw) -> None:
    """The stream, the topic and the group that the commands name, if they are not there."""
    if not root.good(iggy.GET_STREAM, identifier(STREAM)):
        root.good(iggy.CREATE_STREAM, struct.pack("<I", STREAM) + short_text("s"))
    if not root.good(iggy.GET_TOPIC, PLACE):
        root.good(iggy.CREATE_TOPIC, identifier(STREAM) + struct.pack("<II", TOPIC, 1) + SETTINGS)
    if not root.good(iggy.GET_GROUP, PLACE + identifier(GROUP)):
        root.create_group((STREAM, TOPIC), GROUP)


def set_rights(root: Raw, user: Identifier, permissions: Permissions | None) -> None:
    root.good(36, identifier(user) + block(permissions))


REMOVES = {"DELETE_STREAM", "DELETE_TOPIC"}
"""Rights go with what they name, so they are given again afterwards."""


def test_every_command_by_every_role(address: str, root: Raw) -> None:
    root.good(iggy.CREATE_STREAM, struct.pack("<I", OTHER_STREAM) + short_text("other"))
    wrong = list[str]()
    for number, (role, permissions) in enumerate(ROLES.items()):
        name = f"user-{number}"
        make_place(root)
        create_user(root, name, permissions)
        with logged_in(address, name) as raw:
            for command, it in CASES.items():
                status, _ = raw.ask(it.code, it.payload())
                is_allowed = it.flags is None or role in it.flags.split(", ")
                if status == UNAUTHENTICATED or (status != UNAUTHORIZED) is not is_allowed:
                    wrong.append(f"{command} by {role}: status {status}, {is_allowed=}")
                if is_allowed and command in REMOVES:
                    make_place(root)
                    set_rights(root, name, permissions)
    assert wrong == []


def test_every_command_of_v1b_by_every_role(address: str, root: Raw) -> None:
    make_place(root)
    wrong = list[str]()
    for number, (role, permissions) in enumerate(ROLES.items()):
        create_user(root, f"user-v1b-{number}", permissions)
        with logged_in(address, f"user-v1b-{number}", V1B) as raw:
            for command, it in SINCE_V1B.items():
                status, body = raw.ask(it.code, it.payload())
                expected = 0 if it.flags is None or role in it.flags.split(", ") else UNAUTHORIZED
                wrong += [f"{command} by {role}: status {status}"] if (status, body) != (expected, b"") else []
    assert wrong == []


def test_the_first_user_may_give_every_command_and_nobody_who_has_not_logged_in(address: str, root: Raw) -> None:
    make_place(root)
    with connected(address) as stranger:
        for command, it in CASES.items():
            expected = 0 if command == "PING" else UNAUTHENTICATED
            assert stranger.ask(it.code, it.payload())[0] == expected, command
    for command, it in CASES.items():
        make_place(root)
        assert root.ask(it.code, it.payload())[0] not in {UNAUTHENTICATED, UNAUTHORIZED}, command


def test_a_change_of_rights_counts_on_open_connections(address: str, root: Raw) -> None:
    make_place(root)
    create_user(root, "changing")
    send, poll = CASES["SEND_MESSAGES"], CASES["POLL_MESSAGES"]
    with logged_in(address, "changing") as raw:
        assert raw.ask(send.code, send.payload())[0] == UNAUTHORIZED
        set_rights(root, "changing", ROLES["t send_messages"])
        assert raw.ask(send.code, send.payload())[0] == 0
        assert raw.ask(poll.code, poll.payload())[0] == UNAUTHORIZED
        set_rights(root, "changing", ROLES["s poll_messages"])
        assert raw.ask(send.code, send.payload())[0] == UNAUTHORIZED
        assert raw.ask(poll.code, poll.payload())[0] == 0
        root.good(35, identifier("changing") + b"\1" + short_text("renamed") + b"\0")
        assert raw.ask(poll.code, poll.payload())[0] == 0, "the session is the user's, whatever its name is"


def test_users_who_are_deleted_or_deactivated_are_cut(address: str, root: Raw) -> None:
    make_place(root)
    everything = Permissions(GlobalFlags(*[True] * 10))
    create_user(root, "deleted", everything)
    create_user(root, "inactive", everything)
    with ExitStack() as stack:
        first, second = (stack.enter_context(logged_in(address, name)) for name in ("deleted", "inactive"))
        for raw in (first, second):
            raw.good(iggy.JOIN_GROUP, PLACE + identifier(GROUP))
        assert len(root.members((STREAM, TOPIC), GROUP)) == 2
        root.good(34, identifier("deleted"))
        root.good(35, identifier("inactive") + b"\0\1\2")
        for raw in (first, second):
            for it in (CASES["SEND_MESSAGES"], CASES["GET_STREAMS"]):
                assert raw.ask(it.code, it.payload())[0] == UNAUTHENTICATED
            assert raw.ask(iggy.PING)[0] == 0
        assert root.members((STREAM, TOPIC), GROUP) == {}, "they have left their groups"
        assert [first.ask(38, login("deleted"))[0], second.ask(38, login("inactive"))[0]] == [42, 47]
        create_user(root, "deleted")
        assert first.ask(38, login("deleted"))[0] == 0
        assert first.ask(iggy.GET_STREAMS)[0] == UNAUTHORIZED, "another user of the same name"


def login(name: str) -> bytes:
    return short_text(name) + short_text(OWN) + long_text("0.6.202") + long_text("")


def test_a_session_stands_until_a_logout_and_begins_again_with_a_login(address: str, root: Raw) -> None:
    create_user(root, "session", ROLES["g read_streams"])
    with logged_in(address, "session") as raw:
        assert raw.ask(38, login("absent"))[0] == 42
        assert raw.ask(iggy.GET_STREAMS)[0] == 0, "a login that fails changes nothing"
        assert raw.ask(38, login("session"))[0] == 0
        assert [raw.ask(iggy.LOGOUT_USER)[0] for _ in range(2)] == [0, UNAUTHENTICATED]
        assert raw.ask(iggy.GET_STREAMS)[0] == UNAUTHENTICATED
        assert raw.ask(38, login("session"))[0] == 0
        assert raw.ask(iggy.GET_STREAMS)[0] == 0


def test_the_first_user_cannot_lose_what_it_may(root: Raw) -> None:
    for user in ("iggy", 1):
        assert root.ask(34, identifier(user))[0] == 48
        assert root.ask(36, identifier(user) + b"\0")[0] == 49
        assert root.ask(35, identifier(user) + b"\0\1\2")[0] == 49
    assert root.ask(iggy.GET_STREAMS)[0] == 0


def test_a_garbage_block_of_rights_is_refused_and_the_connection_stays(address: str, root: Raw) -> None:
    create_user(root, "garbage", ROLES["g read_users"])
    whole = encode_permissions(ROLES["all elsewhere"] or Permissions())
    blocks = [whole[:length] for length in range(len(whole))]
    blocks += [bytes([byte]) * 5000 for byte in (1, 2, 255)]
    blocks += [bytes(at) + b"\2" + bytes(10 - at) for at in range(11)]
    for broken in blocks:
        for length in (len(broken), len(broken) + 1, (1 << 32) - 1):
            sized = b"\1" + struct.pack("<I", length) + broken
            assert root.ask(36, identifier("garbage") + sized)[0] == iggy.INVALID_COMMAND
    assert root.ask(36, identifier("garbage") + block(Permissions()) + b"\0")[0] == iggy.INVALID_COMMAND
    with logged_in(address, "garbage") as raw:
        assert raw.ask(32)[0] == 0, "the rights are what they were"
        assert raw.ask(36, identifier("garbage") + b"\1\xff\xff\xff\xff")[0] == iggy.INVALID_COMMAND
        assert raw.ask(36, identifier("garbage") + b"\0")[0] == UNAUTHORIZED


def test_tokens_log_in_on_a_connection_of_their_own(address: str, root: Raw) -> None:
    create_user(root, "tokens", ROLES["g read_streams"])
    with logged_in(address, "tokens") as raw, connected(address) as other:
        token = raw.good(42, short_text("dev") + bytes(8))
        number = raw.good(31, identifier("tokens"))[:4]
        assert other.ask(44, token) == (0, number)
        assert other.ask(iggy.GET_STREAMS)[0] == 0
        assert other.ask(32)[0] == UNAUTHORIZED
        assert other.ask(44, short_text("wrong"))[0] == 20
        assert other.ask(iggy.GET_STREAMS)[0] == 0, "the session before stays"
        raw.good(43, short_text("dev"))
        assert other.ask(39)[0] == 0
        assert other.ask(44, token)[0] == 20
        brief = raw.good(42, short_text("brief") + struct.pack("<Q", 1))
        assert other.ask(44, brief)[0] == 54
        assert raw.good(41) == b"", "what has expired is not listed"


def test_users_rights_and_tokens_survive_a_restart(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(PASSWORD)
    settings = {"iggy.listen": "127.0.0.1:0", "iggy.root_password_file": str(tmp_path / "password")}
    with (
        broker(directory=tmp_path / "broker", settings=settings) as running,
        connected(running.iggy_address, PASSWORD) as raw,
    ):
        create_user(raw, "ada", ROLES["all elsewhere"])
        before = raw.good(31, identifier("ada"))
        with logged_in(running.iggy_address, "ada") as own:
            token = own.good(42, short_text("dev") + bytes(8))
    with broker(directory=tmp_path / "broker", settings=settings) as running, connected(running.iggy_address) as raw:
        assert raw.ask(44, token)[0] == 0
        assert raw.good(31, identifier("ada")) == before
        assert raw.ask(iggy.GET_STREAMS)[0] == UNAUTHORIZED
