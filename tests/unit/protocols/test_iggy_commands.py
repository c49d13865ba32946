"""Iggy's commands that are decided in Python: numbers, names, statuses, and what replies show."""

import struct

import pytest
from bascule._seam import Request
from bascule.metadata import DEFAULT_NAMESPACE, CreateUser, StreamSettings
from bascule.metadata.model import incarnation_of
from bascule.protocols.iggy.fields import Identifier, identifier, short_text
from bascule.protocols.iggy.lookup import DEFAULT_NUMBER

from tests.unit.control.fake_plane import until
from tests.unit.control.rig import Rig, stream_request

MAX_U64 = (1 << 64) - 1


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    """With the first user, who gives all commands."""
    await rig.controller.propose(CreateUser("iggy", "$hash", 0), 5.0)
    return rig


async def call(rig: Rig, command: str, payload: bytes = b"", *, prefix: str = "iggy") -> tuple[int, bytes]:
    """Send one request through the seam: status of Iggy and payload. `iggy0`: of a client that counts from 0."""
    request_id = len(rig.plane.replies) + 1000
    rig.plane.push(Request(request_id, f"{prefix}/{command}", payload, "127.0.0.1:5", "iggy:0", None))
    await until(lambda: request_id in rig.plane.replies)
    grpc, text, body = rig.plane.replies[request_id]
    if grpc == 0:
        return 0, body
    status = rig.plane.iggy_statuses[request_id]
    assert status, text
    return status, body


def stream(name: str, number: int = 0) -> bytes:
    return struct.pack("<I", number) + short_text(name)


def topic(
    of: Identifier, name: str, partitions: int = 1, number: int = 0, *, limits: tuple[int, int] = (0, 0)
) -> bytes:
    expiry, size = limits
    fields = struct.pack("<IIBQQB", number, partitions, 1, expiry, size, 0)
    return identifier(of) + fields + short_text(name)


def path(*names: Identifier) -> bytes:
    return b"".join(identifier(name) for name in names)


def shown_stream(body: bytes) -> tuple[int, int, str, bytes]:
    """Number, topics, name, and what follows."""
    number, _, topics, _, _, size = struct.unpack_from("<IQIQQB", body)
    return number, topics, body[33 : 33 + size].decode(), body[33 + size :]


def shown_topic(body: bytes) -> tuple[int, int, int, int, str, bytes]:
    """Number, partitions, expiry, maximum size, name, and what follows."""
    number, _, partitions, expiry, _, most, _, _, _, size = struct.unpack_from("<IQIQBQBQQB", body)
    return number, partitions, expiry, most, body[51 : 51 + size].decode(), body[51 + size :]


async def test_a_stream_is_a_namespace_with_the_number_of_the_client(rig: Rig) -> None:
    status, body = await call(rig, "CREATE_STREAM", stream("orders"))
    assert (status, shown_stream(body)) == (0, (1, 0, "orders", b""))
    assert shown_stream((await call(rig, "CREATE_STREAM", stream("seventh", 7)))[1])[0] == 7
    assert shown_stream((await call(rig, "CREATE_STREAM", stream("next")))[1])[0] == 8
    assert {name: item.id for name, item in rig.controller.state.namespaces.items()} == {
        DEFAULT_NAMESPACE: 0,
        "orders": 1,
        "seventh": 7,
        "next": 8,
    }
    for wanted in ("seventh", 7):
        assert shown_stream((await call(rig, "GET_STREAM", path(wanted)))[1])[:3] == (7, 0, "seventh")
    assert await call(rig, "GET_STREAM", path("absent")) == (0, b"")
    names, rest = list[str](), (await call(rig, "GET_STREAMS"))[1]
    while rest:
        _, _, name, rest = shown_stream(rest)
        names.append(name)
    assert names == ["orders", "seventh", "next", DEFAULT_NAMESPACE]


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (stream("orders"), 1012),
        (stream("other", 1), 1011),
        (stream(""), 1013),
        (stream("a/b"), 1013),
        (stream("."), 1013),
        (stream("a\u200bb"), 1013),
        (stream("other", DEFAULT_NUMBER), 1014),
        (stream("other") + b"\0", 3),
        (b"", 3),
    ],
)
async def test_a_stream_that_cannot_be_created_has_its_status(rig: Rig, payload: bytes, status: int) -> None:
    await call(rig, "CREATE_STREAM", stream("orders"))
    assert await call(rig, "CREATE_STREAM", payload) == (status, b"")
    assert set(rig.controller.state.namespaces) == {DEFAULT_NAMESPACE, "orders"}


async def test_a_topic_is_a_stream_of_its_namespace(rig: Rig) -> None:
    await call(rig, "CREATE_STREAM", stream("orders"))
    status, body = await call(rig, "CREATE_TOPIC", topic("orders", "paid", 2, limits=(1_500, 101)))
    number, partitions, expiry, most, name, rest = shown_topic(body)
    assert (status, number, partitions, expiry, most, name) == (0, 1, 2, 1_500, 101, "paid")
    assert [struct.unpack_from("<I", rest, at)[0] for at in (0, 40)] == [1, 2]
    made = rig.controller.state.stream("orders", "paid")
    assert made is not None
    assert (made.settings.retention_age_ms, made.settings.retention_bytes) == (2, 51), "rounded up"
    assert made.subject == ""
    status, body = await call(rig, "CREATE_TOPIC", topic(1, "ninth", 1, 9, limits=(MAX_U64, MAX_U64)))
    assert shown_topic(body)[:4] == (9, 1, MAX_U64, MAX_U64)
    unlimited = rig.controller.state.stream("orders", "ninth")
    assert unlimited is not None
    assert (unlimited.settings.retention_age_ms, unlimited.settings.retention_bytes) == (0, 0)
    for wanted in (path("orders", "ninth"), path(1, 9)):
        assert shown_topic((await call(rig, "GET_TOPIC", wanted))[1])[4] == "ninth"
    names, rest = list[str](), (await call(rig, "GET_TOPICS", path(1)))[1]
    while rest:
        *_, name, rest = shown_topic(rest)
        names.append(name)
    assert names == ["paid", "ninth"]
    assert shown_stream((await call(rig, "GET_STREAM", path(1)))[1])[1] == 2


async def test_limits_that_are_left_to_the_broker_are_shown_as_they_have_effect(rig: Rig) -> None:
    await call(rig, "CREATE_STREAM", stream("orders"))
    week_us = 7 * 86_400 * 1_000_000
    assert shown_topic((await call(rig, "CREATE_TOPIC", topic(1, "t")))[1])[2:4] == (week_us, MAX_U64)


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (topic("absent", "t"), 1010),
        (topic(99, "t"), 1009),
        (topic(1, "taken"), 2013),
        (topic(1, "t", 1, 1), 2012),
        (topic(1, ""), 2014),
        (topic(1, "a/b"), 2014),
        (topic(1, "t", 1001), 2015),
        (topic(DEFAULT_NUMBER, "t", 0), 5),
        (topic(1, "t", 1, DEFAULT_NUMBER), 2016),
        (topic(1, "t")[:-1], 3),
    ],
)
async def test_a_topic_that_cannot_be_created_has_its_status(rig: Rig, payload: bytes, status: int) -> None:
    await call(rig, "CREATE_STREAM", stream("orders"))
    await call(rig, "CREATE_TOPIC", topic(1, "taken"))
    assert await call(rig, "CREATE_TOPIC", payload) == (status, b"")
    assert len(rig.controller.state.streams) == 1


async def test_a_topic_shows_what_its_partitions_hold(rig: Rig) -> None:
    await call(rig, "CREATE_STREAM", stream("orders"))
    await call(rig, "CREATE_TOPIC", topic(1, "t", 2))
    made = rig.controller.state.stream("orders", "t")
    assert made is not None
    rig.plane.positions[incarnation_of(made.incarnation, 1)] = (3, 10, 12, 700, 0, 0, 0, 0)
    rest = shown_topic((await call(rig, "GET_TOPIC", path(1, 1)))[1])[-1]
    assert struct.unpack_from("<IQIQQQ", rest, 40) == (2, 1, 2, 9, 700, 7)
    number, _, _, size, messages = struct.unpack_from("<IQIQQ", (await call(rig, "GET_STREAM", path(1)))[1])
    assert (number, size, messages) == (1, 700, 7)


async def test_deleting_and_purging_reach_what_they_name(rig: Rig) -> None:
    await call(rig, "CREATE_STREAM", stream("orders"))
    for name in ("a", "b"):
        await call(rig, "CREATE_TOPIC", topic(1, name))
    before = rig.controller.state.stream("orders", "a")
    assert await call(rig, "PURGE_STREAM", path(1)) == (0, b"")
    after = rig.controller.state.stream("orders", "a")
    assert before is not None
    assert after is not None
    assert before.partitions[0].incarnation != after.partitions[0].incarnation
    assert await call(rig, "DELETE_TOPIC", path(1, "a")) == (0, b"")
    assert await call(rig, "DELETE_TOPIC", path(1, "a")) == (2011, b"")
    assert await call(rig, "PURGE_TOPIC", path(1, 1)) == (2010, b"")
    assert await call(rig, "DELETE_STREAM", path("orders")) == (0, b"")
    assert await call(rig, "DELETE_STREAM", path(1)) == (1009, b"")
    assert not rig.controller.state.streams
    # A number that was used is not given again, unless somebody asks for it.
    assert shown_stream((await call(rig, "CREATE_STREAM", stream("again")))[1])[0] == 2


async def test_streams_of_liftbridge_are_topics_of_the_last_stream(rig: Rig) -> None:
    await rig.controller.create_stream(stream_request("__cursors", subject="c"), 5.0)
    await rig.controller.create_stream(stream_request("lift", subject="l"), 5.0)
    for wanted in (DEFAULT_NUMBER, DEFAULT_NAMESPACE):
        number, topics, name, rest = shown_stream((await call(rig, "GET_STREAM", path(wanted)))[1])
        assert (number, topics, name) == (DEFAULT_NUMBER, 1, DEFAULT_NAMESPACE)
        assert shown_topic(rest)[4] == "lift"
    assert await call(rig, "DELETE_TOPIC", path(DEFAULT_NUMBER, "__cursors")) == (2011, b"")
    assert await call(rig, "DELETE_STREAM", path(DEFAULT_NUMBER)) == (5, b"")


async def test_a_command_that_is_not_offered_is_unknown_to_the_router(rig: Rig) -> None:
    rig.plane.push(Request(7, "iggy/GET_SNAPSHOT", b"", "127.0.0.1:5", "iggy:0", None))
    await until(lambda: 7 in rig.plane.replies)
    assert rig.plane.replies[7][0] == 12
    assert rig.plane.iggy_statuses[7] is None


async def test_settings_of_the_broker_are_stored_with_a_topic(rig: Rig) -> None:
    await call(rig, "CREATE_STREAM", stream("orders"))
    await call(rig, "CREATE_TOPIC", topic(1, "t"))
    made = rig.controller.state.stream("orders", "t")
    assert made is not None
    assert made.settings == StreamSettings(max_record_bytes=16 << 20)
