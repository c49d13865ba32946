"""Connections as clients of Iggy see them, by frames."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from bascule.testing import broker

from tests.conformance import iggy_raw as iggy
from tests.conformance.iggy_raw import Raw, connected, path
from tests.conformance.iggy_transports import TRANSPORTS, address_of, settings_of
from tests.waiting import until

PASSWORD = "a password of the test"
GET_STATS, GET_ME, GET_CLIENT, GET_CLIENTS = 10, 20, 21, 22


@pytest.fixture(params=TRANSPORTS)
def target(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    (tmp_path / "password").write_text(PASSWORD)
    with broker(settings=settings_of(tmp_path / "password")) as running:
        yield address_of(running, request.param)


class Client(NamedTuple):
    """A connection: its number, its user, its transport, its address, and how many groups it is in."""

    number: int
    user: int
    transport: int
    address: str
    groups: int


def client(reply: bytes) -> tuple[Client, bytes]:
    """The first of a reply, and what follows."""
    number, user, transport, size = struct.unpack_from("<IIBI", reply)
    address = reply[13 : 13 + size].decode()
    (groups,) = struct.unpack_from("<I", reply, 13 + size)
    return Client(number, user, transport, address, groups), reply[17 + size :]


def listed(raw: Raw) -> list[Client]:
    found, rest = list[Client](), raw.good(GET_CLIENTS)
    while rest:
        one, rest = client(rest)
        found.append(one)
    return found


def address(raw: Raw) -> str:
    host, port = raw.stream.getsockname()
    return f"{host}:{port}"


def test_a_connection_finds_itself_with_its_groups(target: str) -> None:
    with connected(target, PASSWORD) as raw:
        me, rest = client(raw.good(GET_ME))
        transport = 2 if target.startswith("quic") else 1
        assert (me.user, me.transport, me.address, me.groups, rest) == (1, transport, address(raw), 0, b"")
        place = raw.create("s")
        for name, number in (("b", 7), ("a", 3)):
            raw.create_group(place, name, number)
            raw.good(iggy.JOIN_GROUP, path(*place, name))
        me, rest = client(raw.good(GET_ME))
        assert me.groups == 2
        assert struct.unpack("<6I", rest) == (1, 1, 3, 1, 1, 7)
        assert raw.good(GET_CLIENT, struct.pack("<I", me.number)) == raw.good(GET_ME)
        raw.good(iggy.LEAVE_GROUP, path(*place, "b"))
        assert client(raw.good(GET_ME))[0].groups == 1


def test_connections_are_listed_until_they_end(target: str) -> None:
    with connected(target, PASSWORD) as raw:
        with connected(target) as stranger:
            stranger.good(iggy.PING)
            assert stranger.ask(GET_CLIENTS) == (40, b"")
            own, other = listed(raw)
            assert (own.address, own.user) == (address(raw), 1)
            assert (other.address, other.user) == (address(stranger), 0)
            (clients,) = struct.unpack_from("<I", raw.good(GET_STATS), 108)
            assert clients == 2
            stranger.login(PASSWORD)
            assert listed(raw)[1].user == 1
            stranger.good(iggy.LOGOUT_USER)
            assert listed(raw)[1].user == 0
        until(lambda: len(listed(raw)) == 1, what="that the connection which ended is listed no more")
        assert raw.good(GET_CLIENT, struct.pack("<I", other.number)) == b""
        assert raw.ask(GET_CLIENT, bytes(4)) == (101, b"")
        assert raw.ask(GET_CLIENT) == (3, b"")
        for code in (GET_STATS, GET_ME, GET_CLIENTS):
            assert raw.ask(code, b"\0\0") == (3, b"")


def test_positions_and_groups_stay_when_names_change(target: str) -> None:
    with connected(target, PASSWORD) as raw:
        place = raw.create("s", partitions=2)
        raw.create_group(place, "g")
        raw.good(iggy.JOIN_GROUP, path(*place, "g"))
        for number in (1, 2):
            raw.send(place, iggy.to_partition(number), [b"a", b"b", b"c"])
        raw.store(place, 1)
        assert raw.poll(place, iggy.NEXT, count=2, kind=2, consumer="g", commit=True).payloads == [b"a", b"b"]
        update = struct.pack("<BQQB", 1, 0, 0, 0)
        raw.good(304, path(*place) + update + b"\x03new")
        raw.good(204, path("s") + b"\x05other")
        new = ("other", "new")

        def is_open() -> bool:
            status, _ = raw.ask(iggy.GET_OFFSET, iggy.owner(new, 1, 1))
            return status == 0

        until(is_open, what="that the partitions are open again")
        assert raw.stored(new) == (2, 1)
        assert raw.poll(new, iggy.NEXT, count=9, partition=1, kind=2, consumer="g").payloads == [b"c"]
        assert raw.members(new, "g") == {client(raw.good(GET_ME))[0].number: [1, 2]}
        assert raw.poll(place, iggy.FIRST) if raw.ask(iggy.GET_TOPIC, path(*place))[1] else True
        raw.good(402, path(*new) + struct.pack("<I", 1))
        until(
            lambda: raw.ask(iggy.SEND, path(*new) + iggy.to_partition(3) + sent(b"d"))[0] == 0, what="a third partition"
        )
        assert raw.poll(new, partition=3).payloads == [b"d"]
        assert raw.members(new, "g") == {client(raw.good(GET_ME))[0].number: [1, 2, 3]}
        raw.good(403, path(*new) + struct.pack("<I", 3))
        assert raw.ask(iggy.SEND, path(*new) + iggy.BALANCED + sent(b"e")) == (3008, b"")


def sent(payload: bytes) -> bytes:
    """One message of a send."""
    return bytes(20) + struct.pack("<I", len(payload)) + payload


def test_polls_that_commit_follow_each_other_without_waiting_for_the_commit(target: str) -> None:
    with (
        connected(target, PASSWORD) as raw,
        connected(target, PASSWORD) as other,
    ):
        place = raw.create("s")
        raw.send(place, iggy.BALANCED, [str(number).encode() for number in range(200)])
        seen = [
            payload
            for turn in range(100)
            for payload in (raw, other)[turn % 2].poll(place, iggy.NEXT, count=2, commit=True).payloads
        ]
        assert seen == [str(number).encode() for number in range(200)]
        assert raw.stored(place) == (199, 199)
        raw.store(place, 4)
        assert other.stored(place) == (199, 4)
        raw.poll(place, iggy.NEXT, count=2, commit=True)
        raw.good(iggy.DELETE_OFFSET, iggy.owner(place, 1, 1))
        assert other.stored(place) is None
        assert raw.ask(iggy.DELETE_OFFSET, iggy.owner(place, 1, 1)) == (3021, b"")
