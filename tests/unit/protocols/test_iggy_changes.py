"""Iggy's commands that change topics and streams: names, limits, and how many partitions there are."""

import struct

import pytest
from bascule.metadata import CreateUser, Stream
from bascule.protocols.iggy.fields import short_text
from bascule.protocols.iggy.lookup import DEFAULT_NUMBER

from tests.unit.control.rig import Rig, stream_request
from tests.unit.protocols.test_iggy_commands import MAX_U64, call, path, shown_stream, shown_topic, stream, topic

GIB = 1 << 30


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    """With the first user, who gives all commands."""
    await rig.controller.propose(CreateUser("iggy", "$hash", 0), 5.0)
    return rig


def found(rig: Rig, name: str = "t", namespace: str = "orders") -> Stream:
    stream = rig.controller.state.stream(namespace, name)
    assert stream is not None
    return stream


def count(number: int) -> bytes:
    return struct.pack("<I", number)


def update(name: str, *, compression: int = 1, expiry: int = 0, size: int = 0, replication: int = 0) -> bytes:
    return struct.pack("<BQQB", compression, expiry, size, replication) + short_text(name)


async def create(rig: Rig, partitions: int = 1, size: int = 0) -> Stream:
    await call(rig, "CREATE_STREAM", stream("orders"))
    assert (await call(rig, "CREATE_TOPIC", topic(1, "t", partitions, limits=(0, size))))[0] == 0
    return found(rig)


async def test_partitions_are_added_behind_the_last_and_removed_from_there(rig: Rig) -> None:
    before = await create(rig, 2, 4 * GIB)
    assert before.settings.retention_bytes == 2 * GIB
    assert await call(rig, "CREATE_PARTITIONS", path(1, 1) + count(2)) == (0, b"")
    more = found(rig)
    assert more.partitions[:2] == before.partitions
    assert [item.number for item in more.partitions] == [0, 1, 2, 3]
    assert len({item.incarnation for item in more.partitions}) == 4
    assert more.settings.retention_bytes == GIB, "the topic's maximum size is shared by more"
    assert {item.incarnation for item in more.partitions} <= set(rig.plane.opened)
    assert await call(rig, "DELETE_PARTITIONS", path("orders", "t") + count(3)) == (0, b"")
    assert found(rig).partitions == before.partitions[:1]
    assert found(rig).settings.retention_bytes == 4 * GIB
    gone = {item.incarnation for item in more.partitions[1:]}
    assert {item for batch in rig.plane.named("delete") for item in batch} >= gone


@pytest.mark.parametrize(("asked", "left"), [(0, 0), (1, 10), (2, 20), (3, 20), (2**32 - 1, 20)])
async def test_the_oldest_segments_are_deleted_up_to_what_is_committed(rig: Rig, asked: int, left: int) -> None:
    incarnation = (await create(rig, 2)).partitions[1].incarnation
    rig.plane.segments[incarnation] = [0, 10, 20, 30]
    rig.plane.positions[incarnation] = (0, 25, 40, 0, 0, 0, 0, 0)
    assert await call(rig, "DELETE_SEGMENTS", path("orders", "t") + count(2) + count(asked)) == (0, b"")
    assert [item.trimmed_to for item in found(rig).partitions] == [0, left]


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (path(1, 1) + count(0) + count(1), 3007),
        (path(1, 1) + count(3) + count(1), 3007),
        (path(1, 2) + count(1) + count(1), 2010),
        (path(1, 1) + count(1), 3),
    ],
)
async def test_segments_of_what_does_not_exist_are_refused(rig: Rig, payload: bytes, status: int) -> None:
    await create(rig, 2)
    assert await call(rig, "DELETE_SEGMENTS", payload) == (status, b"")


async def test_a_topic_may_have_no_partitions_and_get_some(rig: Rig) -> None:
    assert not (await create(rig, 0)).partitions
    status, body = await call(rig, "GET_TOPIC", path(1, 1))
    week_us = 7 * 86_400 * 1_000_000
    assert (status, shown_topic(body)) == (0, (1, 0, week_us, MAX_U64, "t", b""))
    assert await call(rig, "PURGE_TOPIC", path(1, 1)) == (0, b"")
    assert await call(rig, "DELETE_PARTITIONS", path(1, 1) + count(1)) == (0, b"")
    assert await call(rig, "CREATE_PARTITIONS", path(1, 1) + count(1)) == (0, b"")
    assert await call(rig, "DELETE_PARTITIONS", path(1, 1) + count(1000)) == (0, b"")
    assert not found(rig).partitions
    assert await call(rig, "DELETE_TOPIC", path(1, 1)) == (0, b"")


@pytest.mark.parametrize("command", ["CREATE_PARTITIONS", "DELETE_PARTITIONS"])
@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (path(1, 1) + count(0), 2015),
        (path(1, 1) + count(1001), 2015),
        (path(1, 2) + count(1), 2010),
        (path(1, "absent") + count(1), 2011),
        (path(2, 1) + count(1), 1009),
        (path("absent", 1) + count(1), 1010),
        (path(DEFAULT_NUMBER, "lift") + count(1), 5),
        (path(1, 1), 3),
    ],
)
async def test_partitions_that_cannot_change_have_their_status(
    rig: Rig, command: str, payload: bytes, status: int
) -> None:
    before = await create(rig)
    await rig.controller.create_stream(stream_request("lift", subject="l"), 5.0)
    assert await call(rig, command, payload) == (status, b"")
    assert found(rig) == before


async def test_a_topic_has_at_most_ten_thousand_partitions(rig: Rig) -> None:
    await create(rig, 1000)
    for _ in range(9):
        assert await call(rig, "CREATE_PARTITIONS", path(1, 1) + count(1000)) == (0, b"")
    assert await call(rig, "CREATE_PARTITIONS", path(1, 1) + count(1)) == (2015, b"")
    assert len(found(rig).partitions) == 10_000


async def test_a_topic_gets_another_name_and_other_limits(rig: Rig) -> None:
    before = await create(rig, 2)
    payload = path(1, "t") + update("u", compression=2, expiry=1_500, size=101, replication=3)
    assert await call(rig, "UPDATE_TOPIC", payload) == (0, b"")
    after = found(rig, "u")
    assert (after.id, after.created_ns, after.partitions) == (before.id, before.created_ns, before.partitions)
    assert (after.settings.retention_age_ms, after.settings.retention_bytes) == (2, 51)
    assert shown_topic((await call(rig, "GET_TOPIC", path(1, "u")))[1])[:5] == (1, 2, 1_500, 101, "u")
    assert await call(rig, "GET_TOPIC", path(1, "t")) == (0, b"")
    assert [*rig.plane.named("close")[-1]] == [item.incarnation for item in before.partitions], (
        "opened again with the new name"
    )
    index = rig.controller.state.index
    assert await call(rig, "UPDATE_TOPIC", payload.replace(path("t"), path("u"))) == (0, b"")
    assert rig.controller.state.index == index, "what it has already is not proposed"
    assert await call(rig, "UPDATE_TOPIC", path(1, 1) + update("u")) == (0, b"")
    assert found(rig, "u").settings == before.settings


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (path(1, 1) + update("taken"), 2013),
        (path(1, 1) + update(""), 2014),
        (path(1, 1) + update("a/b"), 2014),
        (path(1, 9) + update("u"), 2010),
        (path(DEFAULT_NUMBER, "lift") + update("u"), 5),
        (path(1, 1) + update("u", compression=3), 3),
    ],
)
async def test_a_topic_that_cannot_be_changed_has_its_status(rig: Rig, payload: bytes, status: int) -> None:
    before = await create(rig)
    await call(rig, "CREATE_TOPIC", topic(1, "taken"))
    await rig.controller.create_stream(stream_request("lift", subject="l"), 5.0)
    assert await call(rig, "UPDATE_TOPIC", payload) == (status, b"")
    assert found(rig) == before


async def test_limits_of_a_stream_of_liftbridge_can_be_changed(rig: Rig) -> None:
    await rig.controller.create_stream(stream_request("lift", subject="l"), 5.0)
    assert await call(rig, "UPDATE_TOPIC", path(DEFAULT_NUMBER, "lift") + update("lift", expiry=2_000)) == (0, b"")
    assert found(rig, "lift", "default").settings.retention_age_ms == 2


async def test_a_stream_gets_another_name_with_its_topics(rig: Rig) -> None:
    before = await create(rig)
    await call(rig, "CREATE_STREAM", stream("other"))
    assert await call(rig, "UPDATE_STREAM", path("orders") + short_text("paid")) == (0, b"")
    assert rig.controller.state.stream("orders", "t") is None
    assert found(rig, namespace="paid").partitions == before.partitions
    assert shown_stream((await call(rig, "GET_STREAM", path(1)))[1])[:3] == (1, 1, "paid")
    assert await call(rig, "UPDATE_STREAM", path(1) + short_text("paid")) == (0, b"")
    for name, status in (("other", 1012), ("", 1013), ("a/b", 1013)):
        assert await call(rig, "UPDATE_STREAM", path(1) + short_text(name)) == (status, b"")
    assert await call(rig, "UPDATE_STREAM", path(DEFAULT_NUMBER) + short_text("x")) == (5, b"")
    assert await call(rig, "UPDATE_STREAM", path(9) + short_text("x")) == (1009, b"")
    assert shown_stream((await call(rig, "CREATE_STREAM", stream("orders")))[1])[0] == 3
