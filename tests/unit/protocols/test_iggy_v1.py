"""Iggy's v1 payloads, against the recorded frames and against every way of breaking them."""

import contextlib
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from bascule.protocols.iggy.commands import (
    DECODERS,
    Create,
    CreateToken,
    CreateTopic,
    CreateUser,
    Login,
    Named,
    Partitions,
    Text,
    TopicSettings,
    UpdateUser,
    decode,
)
from bascule.protocols.iggy.fields import MalformedError, Reader, identifier, long_text, short_text
from bascule.protocols.iggy.permissions import (
    GlobalFlags,
    Permissions,
    StreamFlags,
    TopicFlags,
    encode_permissions,
    read_permissions,
)
from bascule.protocols.iggy.replies import Group, Member, Partition, Stream, Topic

VECTORS = json.loads((Path(__file__).resolve().parents[3] / "specs/vectors/iggy/v1.json").read_text())
FRAMES: list[dict[str, Any]] = VECTORS["captures"] + VECTORS["constructed"]
OURS = [frame for frame in FRAMES if frame["command"] in DECODERS.keys() - {"GET_STATS"}]
"""The data plane adds to GET_STATS what it knows."""
NEVER = (1 << 64) - 1
CREATED = 1_700_000_000_000_000


def payload(frame: dict[str, Any], part: str = "request_hex") -> bytes:
    """What follows the 8 bytes of head."""
    return bytes.fromhex(frame[part])[8:]


def commands(name: str) -> list[Any]:
    """Every recorded command of this name."""
    return [decode(name, payload(frame)) for frame in OURS if frame["command"] == name]


RIGHTS = Permissions(
    GlobalFlags(
        read_servers=True,
        read_users=True,
        read_streams=True,
        read_topics=True,
        poll_messages=True,
        send_messages=True,
    ),
    {1: StreamFlags(read_stream=True, read_topics=True, poll_messages=True, send_messages=True)},
    {(1, 2): TopicFlags(read_topic=True, poll_messages=True)},
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LOGIN_USER", [Login("iggy", "iggy", "0.6.202", "")]),
        ("LOGIN_WITH_PERSONAL_ACCESS_TOKEN", [Text("abc")]),
        ("GET_STREAM", [Named(("test-stream",))] * 2),
        ("CREATE_STREAM", [Create((), 0, "test-stream"), Create((), 7, "other")]),
        (
            "CREATE_TOPIC",
            [
                CreateTopic("test-stream", 0, 3, TopicSettings(1, NEVER, 0, 0, "test-topic")),
                CreateTopic(1, 9, 1, TopicSettings(2, NEVER, 0, 2, "t2")),
            ],
        ),
        ("GET_TOPIC", [Named(("test-stream", "test-topic"))]),
        (
            "CREATE_USER",
            [
                CreateUser("user1", "secret", is_active=True, permissions=RIGHTS),
                CreateUser("user2", "secret", False, None),
            ],
        ),
        ("UPDATE_USER", [UpdateUser(2, "user9", None)]),
        ("CREATE_PERSONAL_ACCESS_TOKEN", [CreateToken("dev", 3_600_000_000)]),
        ("CREATE_CONSUMER_GROUP", [Create((1, 1), 0, "cg")]),
        ("GET_CONSUMER_GROUP", [Named((1, 1, "cg"))]),
        ("CREATE_PARTITIONS", [Partitions((1, 1), 2)]),
    ],
)
def test_recorded_requests_decode(name: str, expected: list[Any]) -> None:
    """To the values that the client was given."""
    assert commands(name) == expected


@pytest.mark.parametrize("frame", OURS, ids=lambda frame: f"{frame['command']}-{len(frame['request_hex'])}")
def test_broken_payloads_are_malformed(frame: dict[str, Any]) -> None:
    """At every length; a changed byte gives another command or the same error, and nothing else."""
    name, whole = frame["command"], payload(frame)
    for cut in range(len(whole)):
        if name == "LOGIN_USER" and cut == len(b"\4iggy\4iggy"):
            assert decode(name, whole[:cut]) == Login("iggy", "iggy", "", "")
            continue
        with pytest.raises(MalformedError):
            decode(name, whole[:cut])
    with pytest.raises(MalformedError):
        decode(name, whole + b"\0")
    for at in range(len(whole)):
        for value in range(256):
            with contextlib.suppress(MalformedError):
                decode(name, whole[:at] + bytes([value]) + whole[at + 1 :])


def test_identifiers_read_as_they_are_written() -> None:
    """Numbers from 1, names of 1 to 255 bytes; everything else is malformed."""
    for value in (1, 0xFFFF_FFFF, "a", "ä", "x" * 255):
        reader = Reader(identifier(value))
        assert reader.identifier("it") == value
        reader.finish()
    for bad in (b"\1\4\0\0\0\0", b"\2\0", b"\1\3\1\0\0", b"\3\1a", b"\2\1\xff", b"\2\2a", b"\1"):
        with pytest.raises(MalformedError, match=r"^it "):
            Reader(bad).identifier("it")


def test_texts_have_their_bounds() -> None:
    """255 bytes behind one byte, not characters."""
    assert short_text("a") == b"\1a"
    assert long_text("ab") == b"\2\0\0\0ab"
    with pytest.raises(ValueError, match="256 bytes; at most 255"):
        short_text("ä" * 128)


def test_rights_read_as_they_are_written() -> None:
    """Also with several streams and topics; a repeated one is refused."""
    many = Permissions(
        GlobalFlags(manage_servers=True),
        {1: StreamFlags(), 5: StreamFlags(manage_stream=True)},
        {(5, 1): TopicFlags(manage_topic=True), (5, 2): TopicFlags(send_messages=True)},
    )
    for rights in (Permissions(), RIGHTS, many):
        assert read_permissions(encode_permissions(rights)) == rights
    stream = struct.pack("<I", 1) + bytes(6) + b"\0"
    with pytest.raises(MalformedError, match="stream 1 has rights twice"):
        read_permissions(bytes(10) + b"\1" + stream + b"\1" + stream + b"\0")


def test_replies_are_those_the_client_accepted() -> None:
    """Byte for byte."""

    def reply(name: str) -> bytes:
        return next(payload(frame, "response_hex") for frame in FRAMES if frame["command"] == name)

    assert Stream(1, CREATED, 0, 0, 0, "test-stream").encode() == reply("CREATE_STREAM")
    topic = Topic(1, CREATED, 1, NEVER, 1, NEVER, 1, 123, 3, "test-topic").encode()
    assert topic + Partition(1, CREATED, 1, 2, 123, 3).encode() == reply("CREATE_TOPIC")
    assert Group(1, 3, 0, "cg").encode() == reply("CREATE_CONSUMER_GROUP")
    assert Group(1, 3, 1, "cg").encode() + Member(77, [1, 3]).encode() == reply("GET_CONSUMER_GROUP")
