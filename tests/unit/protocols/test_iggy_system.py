"""Statistics of Iggy's protocol, and clients that count from 0."""

import os
import struct
from typing import NamedTuple

import pytest
from argon2 import PasswordHasher
from bascule.metadata import CreateUser
from bascule.protocols.iggy.fields import identifier, long_text, short_text
from bascule.protocols.iggy.numbering import counting_from
from bascule.protocols.iggy.permissions import (
    GlobalFlags,
    Permissions,
    StreamFlags,
    TopicFlags,
    encode_permissions,
    read_permissions,
)

from tests.unit.control.rig import Rig
from tests.unit.protocols.test_iggy_commands import call, path, shown_stream, shown_topic, stream, topic

CHEAP = PasswordHasher(1, 8, 1).hash("secret")
FIXED = "<IffQQQQQQQQIIIIQII"


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    """With the first user, who gives all commands."""
    await rig.controller.propose(CreateUser("iggy", CHEAP, 0), 5.0)
    return rig


class Fixed(NamedTuple):
    """The fields before the texts."""

    process: int
    cpu: float
    total_cpu: float
    memory: int
    total_memory: int
    available_memory: int
    run_time_us: int
    started_us: int
    read: int
    written: int
    size: int
    streams: int
    topics: int
    partitions: int
    segments: int
    messages: int
    clients: int
    groups: int


def stats(body: bytes) -> tuple[Fixed, list[str], bytes]:
    at, texts = struct.calcsize(FIXED), list[str]()
    for _ in range(5):
        (size,) = struct.unpack_from("<I", body, at)
        texts.append(body[at + 4 : at + 4 + size].decode())
        at += 4 + size
    return Fixed(*struct.unpack_from(FIXED, body)), texts, body[at:]


async def test_statistics_are_those_of_the_process_and_of_what_is_open_here(rig: Rig) -> None:
    await call(rig, "CREATE_STREAM", stream("orders"))
    await call(rig, "CREATE_TOPIC", topic(1, "t", 2))
    await call(rig, "CREATE_CONSUMER_GROUP", path(1, 1) + struct.pack("<I", 0) + short_text("g"))
    made = rig.controller.state.stream("orders", "t")
    assert made is not None
    rig.plane.positions[made.partitions[1].incarnation] = (3, 10, 12, 700, 0, 0, 0, 0)
    status, body = await call(rig, "GET_STATS", struct.pack("<IB", 5, 0))
    fixed, texts, rest = stats(body)
    assert status == 0
    assert fixed.process == os.getpid()
    assert (fixed.streams, fixed.topics, fixed.partitions, fixed.segments) == (2, 1, 2, 4)
    assert (fixed.size, fixed.messages, fixed.clients, fixed.groups) == (700, 7, 5, 1)
    assert 0 < fixed.memory < fixed.total_memory > fixed.available_memory > 0
    assert fixed.run_time_us > 0
    assert fixed.cpu >= 0
    assert 0 <= fixed.total_cpu <= 100
    assert texts[0] == os.uname().nodename
    assert texts[4].startswith("bascule ")
    assert rest == bytes(8), "no version of a server of Iggy, no caches"
    _, body = await call(rig, "GET_STATS", struct.pack("<IB", 5, 1))
    threads, free, total = struct.unpack_from("<IQQ", stats(body)[2], 8)
    assert threads > 0
    assert 0 < free <= total


async def zero(rig: Rig, command: str, payload: bytes = b"") -> tuple[int, bytes]:
    return await call(rig, command, payload, prefix="iggy0")


def number(value: int) -> bytes:
    return struct.pack("<BBI", 1, 4, value)


async def test_a_client_that_counts_from_zero_is_shown_one_less_and_chooses_no_number(rig: Rig) -> None:
    assert shown_stream((await zero(rig, "CREATE_STREAM", short_text("orders")))[1])[0] == 0
    assert shown_stream((await call(rig, "GET_STREAM", path("orders")))[1])[0] == 1
    fields = struct.pack("<IBQQB", 2, 1, 0, 0, 0) + short_text("t")
    _, body = await zero(rig, "CREATE_TOPIC", number(0) + fields)
    assert shown_topic(body)[0] == 0
    assert [struct.unpack_from("<I", shown_topic(body)[-1], at)[0] for at in (0, 40)] == [0, 1]
    assert shown_topic((await zero(rig, "GET_TOPIC", number(0) + number(0)))[1])[4] == "t"
    assert shown_topic((await call(rig, "GET_TOPIC", path(1, 1)))[1])[0] == 1
    _, body = await zero(rig, "CREATE_CONSUMER_GROUP", number(0) + number(0) + short_text("g"))
    assert struct.unpack_from("<III", body) == (0, 2, 0)
    last = (1 << 32) - 2
    assert shown_stream((await zero(rig, "GET_STREAM", number(last)))[1])[:3] == (last, 0, "default")
    assert await zero(rig, "DELETE_STREAM", number(1)) == (1009, b"")
    assert await zero(rig, "CREATE_STREAM", stream("with a number")) == (3, b"")
    assert await zero(rig, "DELETE_STREAM", number(0)) == (0, b"")


async def test_the_first_user_has_the_number_zero_for_such_a_client(rig: Rig) -> None:
    payload = short_text("iggy") + short_text("secret") + long_text("0.8.0") + long_text("")
    assert await zero(rig, "LOGIN_USER", payload) == (0, bytes(4))
    _, body = await zero(rig, "GET_USER", number(0))
    assert struct.unpack_from("<I", body) == (0,)
    assert await zero(rig, "GET_USER", path("iggy")) == (0, body)
    assert await zero(rig, "GET_USER", number(1)) == (0, b"")


@pytest.mark.parametrize("first", [0, 1])
def test_rights_name_streams_and_topics_as_the_client_counts(first: int) -> None:
    every = TopicFlags(*(True,) * 4)
    rights = Permissions(GlobalFlags(), {3: StreamFlags(*(True,) * 6)}, {(3, 2): every})
    with counting_from(1 if first else 0):
        block = encode_permissions(rights)
        assert read_permissions(block) == rights
        assert identifier(5) == number(4 + first)
    assert block[10:15] == bytes([1, 2 + first, 0, 0, 0])
