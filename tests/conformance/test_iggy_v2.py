"""Iggy's v2 by frames: sessions, what the published client was recorded to send, and what none would send."""

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from bascule.protocols.iggy.fields import short_text
from bascule.testing import TestBroker, broker

from tests.conformance import iggy_long as iggy
from tests.conformance import iggy_raw
from tests.conformance.iggy_long import HELLO, EvictedError, Long, X, Y, connected, place_of, sent
from tests.conformance.iggy_raw import RefusedError
from tests.conformance.iggy_transports import TRANSPORTS, address_of, settings_of
from tests.names import fresh

PASSWORD = "a password of the test"
SESSIONS = 300


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestBroker]:
    file = tmp_path_factory.mktemp("iggy") / "password"
    file.write_text(PASSWORD)
    with broker(settings=settings_of(file)) as running:
        yield running


@pytest.fixture(scope="module", params=TRANSPORTS)
def address(serving: TestBroker, request: pytest.FixtureRequest) -> str:
    return address_of(serving, request.param)


@pytest.fixture
def client(address: str) -> Iterator[Long]:
    with connected(address, PASSWORD) as it:
        yield it


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return fresh(request.node.name)


def refused(status: int) -> "pytest.RaisesExc[RefusedError]":
    return pytest.raises(RefusedError, check=lambda error: error.status == status)


def payloads(client: Long, place: tuple[str, str], partition: int = 0) -> list[bytes]:
    return [message.payload for message in client.poll(place, partition=partition)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_recorded_requests_are_answered_in_their_order(tmp_path: Path, transport: str) -> None:
    (tmp_path / "password").write_text("iggy")
    settings = settings_of(tmp_path / "password")
    statuses, answers = dict[str, int](), dict[str, bytes]()
    with broker(settings=settings) as running, connected(address_of(running, transport)) as client:
        for item in iggy.recorded():
            request = bytes.fromhex(item["request_hex"])
            client.request = int.from_bytes(request[168:176], "little")
            code = int.from_bytes(request[196:200], "little")
            status, body = client.ask(item["operation"], code, request[iggy.HEADER_BYTES :])
            if item["operation"] == iggy.REGISTER:
                (client.session,) = struct.unpack_from("<Q", body, 8)
            answers[item["command"]] = body
            if status:
                statuses[item["command"]] = status
    # The stand-in that was recorded kept no users: `user1` has another name when its password is changed.
    assert statuses == {"CHANGE_PASSWORD": 20, "DELETE_USER": 20}
    assert struct.unpack("<IIIIQ", answers["SEND_MESSAGES"]) == (1, 0, 0, 0, 3)
    assert answers["GET_STREAM"][:4] == bytes(4)
    assert struct.unpack_from("<IQI", answers["POLL_MESSAGES"]) == (0, 3, 4)


def test_a_request_that_is_repeated_is_carried_out_once(client: Long, name: str) -> None:
    place = client.create(name)
    assert client.send(place, HELLO) == 0
    for _ in range(3):
        status, body = client.ask(iggy.SEND, 0, sent(place, HELLO))
        assert (status, struct.unpack("<IIIIQ", body)[4]) == (0, 0)
    assert client.ask(iggy.SEND, 0, sent(place, X)) == (59, b"")
    client.request -= 1
    assert client.ask(iggy.SEND, 0, sent(place, HELLO)) == (59, b"")
    client.request += 9
    assert client.send(place, X) == 2
    assert client.send(place, X) == 3
    assert payloads(client, place) == [b"hello 1", b"hello 2", b"x", b"x"]


def test_messages_have_their_ids_headers_and_times(client: Long, name: str) -> None:
    place = client.create(name)
    client.send(place, HELLO)
    first, second = client.poll(place)
    header = b"\2\1\0\0\0k\6\4\0\0\0\7\0\0\0"
    assert (first.offset, first.payload, first.headers) == (0, b"hello 1", header)
    assert (second.offset, second.payload, second.headers) == (1, b"hello 2", b"")
    assert first.id == int.from_bytes(HELLO[264:280], "little")
    assert first.origin_us == int.from_bytes(HELLO[24:32], "little")
    assert second.origin_us == first.origin_us + 3
    assert first.timestamp_us > first.origin_us


def test_every_generation_reads_what_another_has_sent(client: Long, address: str, name: str) -> None:
    place = client.create(name)
    client.send(place, HELLO)
    with iggy_raw.connected(address, PASSWORD) as older:
        older.send(place, iggy_raw.to_partition(1), [b"from v1"], ids=[9], headers=iggy_raw.header("k", 6, b"\7\0\0\0"))
        shown = older.poll(place)
        assert shown.payloads == [b"hello 1", b"hello 2", b"from v1"]
        assert shown.messages[0].headers == shown.messages[2].headers == {"k": (6, b"\7\0\0\0")}
    last = client.poll(place)[-1]
    assert (last.id, last.payload, last.headers) == (9, b"from v1", b"\2\1\0\0\0k\6\4\0\0\0\7\0\0\0")
    assert last.origin_us == last.timestamp_us


def test_members_ask_for_their_partitions_and_poll_no_others(client: Long, address: str, name: str) -> None:
    place = client.create(name, partitions=3)
    client.change(iggy.CREATE_GROUP, place_of(*place) + short_text("g"))
    group = place_of(*place, "g")
    with refused(5006):
        client.assignment(place, "g")
    with refused(5006):
        client.poll(place, group="g")
    client.change(iggy.JOIN, group)
    first, own = client.assignment(place, "g")
    assert own == [0, 1, 2]
    client.send(place, X, 1)
    assert [message.payload for message in client.poll(place, partition=1, group="g", commit=True)] == [b"x"]
    assert client.poll(place, partition=1, group="g", strategy=iggy.NEXT) == []
    with connected(address, PASSWORD) as other:
        other.change(iggy.JOIN, group)
        second, theirs = other.assignment(place, "g")
        assert (theirs, client.assignment(place, "g")[1]) == ([1], [0, 2])
        with refused(5009):
            client.poll(place, partition=1, group="g")
        assert len(other.poll(place, partition=1, group="g")) == 1
        client.change(iggy.CREATE_PARTITIONS, place_of(*place) + struct.pack("<I", 1))
        third, theirs = other.assignment(place, "g")
        assert theirs == [1, 3]
        assert first < second < third
        other.change(iggy.LEAVE, group)
        with refused(5006):
            other.change(iggy.LEAVE, group)
    assert client.assignment(place, "g")[1] == [0, 1, 2, 3]


def test_an_offset_that_is_not_waited_for_counts_at_once(client: Long, name: str) -> None:
    place = client.create(name)
    client.send(place, HELLO)
    consumer = b"\1" + place_of(7, *place) + struct.pack("<BI", 1, 0)
    for waits in (0, 1):
        client.change(iggy.STORE_OFFSET, consumer + struct.pack("<QB", waits, waits))
        assert struct.unpack("<IQQ", client.read(iggy.GET_OFFSET, consumer)) == (0, 1, waits)
    with refused(3):
        client.change(iggy.STORE_OFFSET, consumer + struct.pack("<QB", 0, 2))
    client.change(iggy.DELETE_OFFSET, consumer + b"\0")
    assert client.read(iggy.GET_OFFSET, consumer) == b""
    with refused(3021):
        client.change(iggy.DELETE_OFFSET, consumer + b"\1")


def test_the_oldest_segments_are_deleted_but_never_the_active_one(client: Long, address: str, name: str) -> None:
    place, key, size = (name, "t"), b"segment_size", b"1 MiB"
    client.change(iggy.CREATE_STREAM, short_text(name))
    option = b"".join(b"\2" + struct.pack("<I", len(text)) + text for text in (key, size))
    client.change(iggy.CREATE_TOPIC, place_of(name) + struct.pack("<I", 1) + short_text("t") + option)
    with iggy_raw.connected(address, PASSWORD) as raw:
        for _ in range(10):
            raw.send(place, iggy_raw.to_partition(1), [random.randbytes(500_000)])
    firsts = [0]
    for count in (1, 1000, 1):
        assert client.change(iggy.DELETE_SEGMENTS, place_of(*place) + struct.pack("<II", 0, count)) == b""
        firsts.append(client.poll(place, count=1)[0].offset)
    assert firsts[0] < firsts[1] < firsts[2] == firsts[3] <= 9
    assert [message.offset for message in client.poll(place)] == [*range(firsts[3], 10)]
    with refused(3007):
        client.change(iggy.DELETE_SEGMENTS, place_of(*place) + struct.pack("<II", 1, 1))


def test_short_sessions_do_not_exhaust_a_partition(client: Long, serving: TestBroker, address: str, name: str) -> None:
    place = client.create(name)
    answer = client.change(iggy.CREATE_TOKEN, short_text(name[-30:]) + bytes(8))
    token = answer[1:].decode()
    # The client of the tests waits a moment at each end of a connection of QUIC.
    sessions = SESSIONS if address == serving.iggy_address else SESSIONS // 10
    for number in range(sessions):
        with connected(address, token=token) as short:
            assert short.send(place, Y) == number
    assert payloads(client, place) == [b"y"] * sessions


def test_logins_and_sessions_that_are_refused(address: str, name: str) -> None:
    with connected(address) as client:
        with refused(42):
            client.login("wrong")
        with pytest.raises(EvictedError, check=lambda error: error.reason == 10):
            client.login(token="unknown")
        with refused(40):
            client.change(iggy.CREATE_STREAM, short_text(name))
        assert client.login(PASSWORD) == 0
        first = client.session
        assert client.login(PASSWORD) == 0
        assert client.session != first
        client.change(iggy.CREATE_STREAM, short_text(name))
        client.session = first
        with pytest.raises(EvictedError, check=lambda error: error.reason == 1):
            client.read(iggy.GET_STREAM, place_of(name))


def test_every_recorded_body_cut_anywhere_is_answered_and_the_connection_stays(client: Long, name: str) -> None:
    for item in iggy.recorded():
        body = bytes.fromhex(item["request_hex"])[iggy.HEADER_BYTES :]
        if item["operation"] in {iggy.REGISTER, iggy.LOGOUT}:
            continue
        code = int.from_bytes(bytes.fromhex(item["request_hex"])[196:200], "little")
        for length in range(len(body)):
            client.request += 1
            status, answer = client.ask(item["operation"], code, body[:length])
            assert status or item["operation"] == iggy.READ, (item["command"], length)
            assert not (status and answer)
    assert client.read(iggy.PING) == b""
    client.change(iggy.CREATE_STREAM, short_text(name))
