"""Iggy's v1 by frames: what the published client does not offer, and what no client sends."""

import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import bascule
import pytest
from bascule.protocols.iggy.fields import identifier, short_text
from bascule.testing import TestBroker, broker

from tests.conformance import iggy_raw as iggy
from tests.conformance.iggy_raw import Raw, RefusedError, connected
from tests.conformance.iggy_transports import TRANSPORTS, address_of, settings_of
from tests.names import fresh

PASSWORD = "a password of the test"


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
def raw(address: str) -> Iterator[Raw]:
    with connected(address, PASSWORD) as it:
        yield it


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return fresh(request.node.name)


def refused(status: int) -> "pytest.RaisesExc[RefusedError]":
    return pytest.raises(RefusedError, check=lambda error: error.status == status)


def test_balanced_sends_take_turns_and_a_key_has_its_partition(raw: Raw, name: str) -> None:
    place = raw.create(name, partitions=3)
    for number in range(6):
        raw.send(place, iggy.BALANCED, [str(number).encode()])
    for partition in (1, 2, 3):
        first, second = (int(item) for item in raw.poll(place, partition=partition).payloads)
        assert second - first == 3
    # XXH32 of the key modulo 3, 0 being the last: computed with another implementation.
    for key, partition in ((b"order-1", None), (b"order-2", None), (b"order-1", None)):
        raw.send(place, iggy.by_key(key), [key])
        assert partition is None
    homes = {
        key: [number for number in (1, 2, 3) if key in raw.poll(place, partition=number).payloads]
        for key in (b"order-1", b"order-2")
    }
    assert all(len(home) == 1 for home in homes.values()), homes
    assert raw.poll(place, partition=homes[b"order-1"][0]).payloads.count(b"order-1") == 2


@pytest.mark.parametrize(
    ("partitioning", "payloads", "status"),
    [
        (iggy.to_partition(2), [b"x"], 3007),
        (iggy.to_partition(0), [b"x"], 3007),
        (iggy.BALANCED + b"\0", [], 3),
        (iggy.by_key(b"k"), [], 4009),
        (iggy.by_key(b""), [b"x"], 4028),
        (iggy.BALANCED, [b""], 3),
        (iggy.BALANCED, [bytes(10_000_001)], 4022),
    ],
)
def test_a_send_that_breaks_a_rule_stores_nothing(
    raw: Raw, name: str, partitioning: bytes, payloads: list[bytes], status: int
) -> None:
    place = raw.create(name)
    with refused(status):
        raw.send(place, partitioning, payloads)
    assert raw.poll(place).messages == []


def test_the_largest_message_is_stored_and_comes_back(raw: Raw, name: str) -> None:
    place = raw.create(name)
    payload = random.Random(1).randbytes(10_000_000)
    raw.send(place, iggy.BALANCED, [payload])
    raw.send(place, iggy.BALANCED, [b"after"])
    (message,) = raw.poll(place).messages
    assert message.payload == payload
    assert raw.poll(place, iggy.OFFSET, 1).payloads == [b"after"]


def test_headers_of_every_kind_come_back_bit_for_bit(raw: Raw, name: str) -> None:
    place = raw.create(name)
    sizes = {1: 3, 2: 4, 3: 1, 4: 1, 5: 2, 6: 4, 7: 8, 8: 16, 9: 1, 10: 2, 11: 4, 12: 8, 13: 16, 14: 4, 15: 8}
    sent = {f"kind-{kind}": (kind, bytes(range(1, size + 1))) for kind, size in sizes.items()}
    block = b"".join(iggy.header(key, kind, value) for key, (kind, value) in sent.items())
    raw.send(place, iggy.BALANCED, [b"x"], headers=block)
    (message,) = raw.poll(place).messages
    assert message.headers == sent
    with refused(4017):
        raw.send(place, iggy.BALANCED, [b"x"] * 400, headers=iggy.header("h", 1, bytes(255)))


def test_ids_checksums_and_offsets_are_as_clients_expect(raw: Raw, name: str) -> None:
    place = raw.create(name)
    raw.send(place, iggy.BALANCED, [b"a", b"b", b"c"], ids=[(1 << 128) - 1, 0, 5])
    messages = raw.poll(place).messages
    assert [item.offset for item in messages] == [0, 1, 2]
    assert (messages[0].id, messages[2].id) == ((1 << 128) - 1, 5)
    assert messages[1].id >> 76 & 0xF == 7, "a time-ordered UUID"
    assert raw.poll(place).messages == messages, "the same at each poll"
    assert [item.checksum for item in messages] == [zlib.crc32(item.payload) for item in messages]
    assert raw.poll(place).current_offset == 2


def test_every_strategy_has_its_start(raw: Raw, name: str) -> None:
    place = raw.create(name)
    assert raw.poll(place) == iggy.Polled(1, 0)
    for number in range(5):
        raw.send(place, iggy.BALANCED, [str(number).encode()])
    messages = raw.poll(place).messages
    expected = {
        (iggy.FIRST, 0, 2): [0, 1],
        (iggy.LAST, 0, 2): [3, 4],
        (iggy.LAST, 0, 9): [0, 1, 2, 3, 4],
        (iggy.OFFSET, 3, 9): [3, 4],
        (iggy.OFFSET, 5, 9): [],
        (iggy.OFFSET, (1 << 64) - 1, 9): [],
        (iggy.TIMESTAMP, 0, 9): [0, 1, 2, 3, 4],
        (iggy.TIMESTAMP, messages[-1].timestamp_us + 1, 9): [],
        (iggy.TIMESTAMP, (1 << 64) - 1, 9): [],
        (iggy.NEXT, 0, 1): [0],
    }
    for (strategy, value, count), numbers in expected.items():
        found = raw.poll(place, strategy, value, count=count)
        assert [int(item) for item in found.payloads] == numbers, (strategy, value, count)
        assert found.current_offset == 4
    at = messages[2].timestamp_us
    found = raw.poll(place, iggy.TIMESTAMP, at).messages
    assert found == [item for item in messages if item.timestamp_us >= at]
    with refused(4009):
        raw.poll(place, count=0)
    with refused(3007):
        raw.poll(place, partition=2)


def test_offsets_are_stored_for_each_consumer_and_partition(raw: Raw, name: str) -> None:
    place = raw.create(name, partitions=2)
    for partition in (1, 2):
        raw.send(place, iggy.to_partition(partition), [b"a", b"b", b"c"])
    assert raw.stored(place) is None
    raw.store(place, 1)
    assert raw.stored(place) == (2, 1)
    assert raw.stored(place, 2) is None
    assert raw.stored(place, consumer=2) is None
    raw.store(place, 0, consumer="named")
    assert raw.stored(place, consumer="named") == (2, 0)
    assert raw.poll(place, iggy.NEXT, count=1, commit=True).payloads == [b"c"]
    assert raw.stored(place) == (2, 2)
    assert raw.poll(place, iggy.NEXT).messages == []
    raw.store(place, 0)
    assert raw.poll(place, iggy.NEXT).payloads == [b"b", b"c"], "it may go back"
    with refused(4100):
        raw.store(place, 3)
    raw.good(iggy.DELETE_OFFSET, iggy.owner(place, 1, 1))
    assert raw.stored(place) is None
    with refused(3021):
        raw.good(iggy.DELETE_OFFSET, iggy.owner(place, 1, 1))
    assert raw.poll(place, iggy.NEXT, count=1).payloads == [b"a"]
    raw.store(place, 1)
    assert raw.stored(place) == (2, 1), "it works after a deletion"


def test_a_purge_and_a_new_topic_begin_at_the_beginning(raw: Raw, name: str) -> None:
    place = raw.create(name)
    raw.send(place, iggy.BALANCED, [b"a", b"b"])
    raw.store(place, 1)
    raw.good(iggy.PURGE_TOPIC, iggy.path(*place))
    assert raw.poll(place) == iggy.Polled(1, 0)
    assert raw.stored(place) is None
    raw.send(place, iggy.BALANCED, [b"c"])
    assert raw.poll(place, iggy.NEXT, commit=True).messages[0].offset == 0
    raw.good(iggy.DELETE_TOPIC, iggy.path(*place))
    fields = struct.pack("<IIBQQB", 0, 1, 1, 0, 0, 0)
    raw.good(iggy.CREATE_TOPIC, identifier(name) + fields + short_text("t"))
    assert raw.stored(place) is None
    raw.good(iggy.DELETE_STREAM, iggy.path(name))
    with refused(1010):
        raw.poll(place)


def test_a_topic_is_a_stream_that_other_protocols_read_and_write(serving: TestBroker, raw: Raw, name: str) -> None:
    with bascule.connect(serving.url) as client:
        client.create_stream(name, subject=name)
        client.publish(name, b"from Liftbridge", key=b"k", headers={"h": b"v"})
        place = ("default", name)
        (message,) = raw.poll(place).messages
        assert (message.payload, message.headers) == (b"from Liftbridge", {"h": (1, b"v")})
        raw.send(place, iggy.by_key(b"key"), [b"from Iggy"], headers=iggy.header("n", 11, b"\1\0\0\0"))
        with client.subscribe(name, stop="latest") as batches:
            records = [record for batch in batches for record in batch]
        assert [(item.offset, item.value) for item in records] == [(0, b"from Liftbridge"), (1, b"from Iggy")]
        assert records[1].key == b"key"
    with refused(2011):
        raw.send(("default", "__cursors"), iggy.BALANCED, [b"x"])


def test_commands_that_are_not_offered_say_so_and_the_connection_stays(raw: Raw) -> None:
    for code in [11]:
        assert raw.ask(code) == (5, b""), code
    for code in (0, 2, 12, 503, 60_000, (1 << 32) - 1):
        assert raw.ask(code) == (3, b""), code


def test_a_login_of_another_generation_is_refused_and_the_connection_stays(address: str) -> None:
    with connected(address) as raw:
        for version in ("0.11.0", "1.0.0", "unknown"):
            with refused(5):
                raw.login(PASSWORD, version=version)
        with refused(42):
            raw.login("wrong")
        with refused(42):
            raw.login(PASSWORD, name="nobody")
        assert raw.ask(iggy.GET_STREAMS) == (40, b"")
        assert raw.login(PASSWORD, version="") == 1
        raw.good(iggy.LOGOUT_USER)
        assert raw.ask(iggy.LOGOUT_USER) == (40, b"")


def test_nothing_that_comes_over_the_socket_harms_the_broker(address: str, raw: Raw, name: str) -> None:
    place = raw.create(name)
    dice = random.Random(26)
    codes = [*range(1, 50), *range(98, 125), *range(198, 210), *range(298, 310), 402, 403, *range(598, 610)]
    for _ in range(2_000):
        payload = dice.randbytes(dice.choice([0, 1, 4, 9, 33, 120]))
        if dice.random() < 0.5:
            payload = iggy.path(*place) + payload
        code = dice.choice(codes)
        if code not in {iggy.LOGIN_USER, iggy.LOGOUT_USER, iggy.DELETE_STREAM, iggy.DELETE_TOPIC}:
            raw.ask(code, payload)
    for _ in range(50):
        with connected(address) as stranger:
            stranger.stream.sendall(dice.randbytes(dice.choice([1, 7, 8, 9, 4_000, 100_000])))
    raw.send(place, iggy.BALANCED, [b"after"])
    assert raw.poll(place, iggy.LAST, count=1).payloads == [b"after"]


def test_a_frame_that_is_too_long_closes_its_connection_of_tcp_only(serving: TestBroker, raw: Raw) -> None:
    # Four bytes of zero begin a header of v2, which has 256 bytes.
    for head in (bytes(256), struct.pack("<II", 1, 1), struct.pack("<II", 3, 1), struct.pack("<II", 65 << 10, 38)):
        with connected(serving.iggy_address) as stranger:
            stranger.stream.sendall(head)
            assert stranger.is_closed(), head
    assert raw.ask(iggy.PING) == (0, b"")


def test_a_generated_password_is_shown_once_and_is_the_one(tmp_path: Path) -> None:
    with broker(settings={"iggy.listen": "127.0.0.1:0"}, directory=tmp_path) as running:
        shown = [line for line in running.log.splitlines() if "has the password" in line]
        (password,) = [line.split()[-1] for line in shown]
        with connected(running.iggy_address, password):
            pass
        running.stop()
        running.start()
        assert running.log.count("has the password") == 1
        with connected(running.iggy_address, password):
            pass


def test_a_flush_and_a_delete_name_what_exists(raw: Raw, name: str) -> None:
    place = raw.create(name)
    raw.send(place, iggy.BALANCED, [b"a"])
    raw.good(iggy.FLUSH, iggy.path(*place) + struct.pack("<IB", 1, 1))
    with refused(3007):
        raw.good(iggy.FLUSH, iggy.path(*place) + struct.pack("<IB", 2, 1))
    with refused(2010):
        raw.good(iggy.DELETE_TOPIC, iggy.path(name, 2))
    with refused(1009):
        raw.good(iggy.PURGE_STREAM, iggy.path(4_000_000))
