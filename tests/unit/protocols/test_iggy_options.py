"""What v2 has that older generations have not: options, and what replies show of them."""

import struct
from collections.abc import Mapping

import pytest
from bascule.metadata import CreateUser
from bascule.protocols.iggy.fields import identifier, short_text

from tests.unit.control.rig import Rig
from tests.unit.protocols.test_iggy_commands import MAX_U64, call

TEXT, BOOL, U32, U64 = 2, 3, 11, 12
KEYS = {
    "compression_algorithm",
    "consumer_offset_durability",
    "durability",
    "enforce_fsync",
    "max_topic_size",
    "message_expiry",
    "messages_required_to_save",
    "preallocate_segments",
    "segment_size",
    "size_of_messages_required_to_save",
}
Value = str | bool | int


@pytest.fixture
async def rig(rig: Rig) -> Rig:
    """With the first user, who gives all commands, and a stream."""
    await rig.controller.propose(CreateUser("iggy", "$hash", 0), 5.0)
    assert (await v2(rig, "CREATE_STREAM", short_text("s")))[0] == 0
    return rig


async def v2(rig: Rig, command: str, payload: bytes = b"") -> tuple[int, bytes]:
    return await call(rig, command, payload, prefix="iggy2")


def field(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + struct.pack("<I", len(value)) + value


def option(key: str, kind: int, value: bytes) -> bytes:
    return field(TEXT, key.encode()) + field(kind, value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def texts(**options: str) -> bytes:
    return b"".join(option(key, TEXT, value.encode()) for key, value in options.items())


def topic(name: str, options: bytes = b"", partitions: int = 1) -> bytes:
    return identifier("s") + struct.pack("<I", partitions) + short_text(name) + options


def read_value(kind: int, value: bytes) -> Value:
    if kind == TEXT:
        return value.decode()
    number = int.from_bytes(value, "little")
    return bool(number) if kind == BOOL else number


def read_block(body: bytes) -> tuple[dict[str, Value], bytes]:
    """A block of options with its length, and what follows."""
    (size,) = struct.unpack_from("<I", body)
    block, rest, found = body[4 : 4 + size], body[4 + size :], dict[str, Value]()
    fields = list[tuple[int, bytes]]()
    while block:
        kind, length = struct.unpack_from("<BI", block)
        fields.append((kind, block[5 : 5 + length]))
        block = block[5 + length :]
    for (kind, key), (value_kind, value) in zip(fields[::2], fields[1::2], strict=True):
        assert kind == TEXT
        found[key.decode()] = read_value(value_kind, value)
    return found, rest


def shown_topic(body: bytes) -> tuple[int, int, int, int, str, Mapping[str, Value], Mapping[str, Value], bytes]:
    """Number, expiry, compression, maximum size, name, explicit and derived options, and what follows."""
    number, _, _, expiry, compression, most, _, _, size = struct.unpack_from("<IQIQBQQQB", body)
    explicit, rest = read_block(body[50 + size :])
    derived, rest = read_block(rest)
    return number, expiry, compression, most, body[50 : 50 + size].decode(), explicit, derived, rest


async def test_streams_and_users_show_that_they_have_no_options(rig: Rig) -> None:
    _, body = await v2(rig, "GET_STREAM", identifier("s"))
    assert (body[32], body[33:]) == (1, b"s" + bytes(4))
    user = short_text("user-1") + short_text("secret") + b"\1\0"
    assert (await v2(rig, "CREATE_USER", user))[1][13:] == short_text("user-1") + bytes(8)
    unknown = texts(owner="x")
    assert await v2(rig, "CREATE_STREAM", short_text("t") + unknown) == (4041, b"")
    assert await v2(rig, "UPDATE_STREAM", identifier("s") + short_text("t") + unknown) == (4041, b"")
    assert await v2(rig, "CREATE_USER", short_text("user-2") + short_text("secret") + b"\1\0" + unknown) == (4041, b"")
    assert await v2(rig, "UPDATE_USER", identifier("user-1") + b"\0\0" + unknown) == (4041, b"")
    assert await v2(rig, "UPDATE_USER", identifier("user-1") + b"\0\0") == (0, b"")
    assert await v2(rig, "UPDATE_STREAM", identifier("s") + short_text("s")) == (0, b"")


async def test_options_of_a_topic_come_back_as_explicit_and_the_others_as_derived(rig: Rig) -> None:
    given = (
        option("segment_size", TEXT, b"128 MiB")
        + option("message_expiry", U64, u64(7_000_000))
        + texts(max_topic_size="2 GB", compression_algorithm="gzip", enforce_fsync="true")
        + texts(durability="replicated", consumer_offset_durability="persisted", preallocate_segments="false")
        + option("messages_required_to_save", U32, struct.pack("<I", 5))
    )
    status, body = await v2(rig, "CREATE_TOPIC", topic("t", given, 2))
    assert status == 0
    number, expiry, compression, most, name, explicit, derived, rest = shown_topic(body)
    assert (number, expiry, compression, most, name) == (0, 7_000_000, 2, 2_000_000_000, "t")
    assert explicit == {
        "compression_algorithm": "gzip",
        "max_topic_size": 2_000_000_000,
        "message_expiry": 7_000_000,
        "segment_size": 128 << 20,
    }
    assert explicit.keys() | derived.keys() == KEYS
    assert derived["enforce_fsync"] is True
    assert [struct.unpack_from("<I", rest, at)[0] for at in (0, 40)] == [0, 1]
    assert shown_topic((await v2(rig, "GET_TOPIC", identifier("s") + identifier("t")))[1])[:7] == shown_topic(body)[:7]
    _, listed = await v2(rig, "GET_TOPICS", identifier("s"))
    assert (listed[:4], shown_topic(listed[4:])[:7]) == (struct.pack("<I", 1), shown_topic(body)[:7])
    assert await v2(rig, "GET_TOPICS", identifier("absent")) == (0, bytes(4))


async def test_a_topic_without_options_has_those_of_the_broker(rig: Rig) -> None:
    _, body = await v2(rig, "CREATE_TOPIC", topic("t"))
    _, expiry, compression, most, _, explicit, derived, _ = shown_topic(body)
    assert (explicit, derived.keys(), compression) == ({}, KEYS, 1)
    assert (derived["message_expiry"], derived["max_topic_size"]) == (expiry, most)
    assert derived["durability"] == "replicated"


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (texts(owner="x"), 4041),
        (texts(durability="none"), 4042),
        (texts(compression_algorithm="lz4"), 4042),
        (texts(enforce_fsync="yes"), 4042),
        (option("enforce_fsync", BOOL, b"\2"), 4042),
        (option("enforce_fsync", U32, bytes(4)), 4042),
        (option("segment_size", U64, u64((1 << 20) - 512)), 4042),
        (option("segment_size", U64, u64((1 << 20) + 1)), 4042),
        (option("segment_size", U64, u64((1 << 30) + 512)), 4042),
        (option("segment_size", U64, bytes(4)), 4042),
        (texts(max_topic_size="much"), 4042),
        (texts(max_topic_size="99999999999 TB"), 4042),
        (texts(messages_required_to_save="4294967296"), 4042),
        (option("durability", TEXT, b"\xff"), 4042),
        (texts(durability="replicated") * 2, 4042),
        (option("durability", TEXT, b""), 3),
        (option("durability", TEXT, bytes(256)), 3),
        (field(BOOL, b"durability") + field(TEXT, b"replicated"), 3),
        (field(TEXT, b"\xff") + field(TEXT, b"x"), 3),
        (field(TEXT, b"durability"), 3),
        (texts(durability="replicated")[:-1], 3),
    ],
)
async def test_an_option_that_cannot_be_given_is_refused(rig: Rig, options: bytes, status: int) -> None:
    assert await v2(rig, "CREATE_TOPIC", topic("t", options)) == (status, b"")
    assert (await v2(rig, "GET_TOPIC", identifier("s") + identifier("t"))) == (0, b"")


@pytest.mark.parametrize("size", [1 << 20, 1 << 30])
async def test_segments_end_at_every_size_within_the_bounds(rig: Rig, size: int) -> None:
    _, body = await v2(rig, "CREATE_TOPIC", topic("t", option("segment_size", U64, u64(size))))
    assert shown_topic(body)[5] == {"segment_size": size}


async def test_an_update_keeps_what_it_does_not_name(rig: Rig) -> None:
    given = texts(message_expiry="2 h", max_topic_size="1 GB", compression_algorithm="gzip")
    await v2(rig, "CREATE_TOPIC", topic("t", given))
    place = identifier("s") + identifier(0)[:2] + bytes(4)
    assert await v2(rig, "UPDATE_TOPIC", place + short_text("other")) == (0, b"")

    async def shown() -> tuple[int, int, int, str]:
        _, expiry, compression, most, name, *_ = shown_topic((await v2(rig, "GET_TOPIC", place))[1])
        return expiry, compression, most, name

    assert await shown() == (7_200_000_000, 2, 10**9, "other")
    changed = texts(max_topic_size="5 MB")
    assert await v2(rig, "UPDATE_TOPIC", place + short_text("other") + changed) == (0, b"")
    assert await shown() == (7_200_000_000, 2, 5 * 10**6, "other")
    changed = option("message_expiry", U64, u64(MAX_U64)) + texts(compression_algorithm="none")
    assert await v2(rig, "UPDATE_TOPIC", place + short_text("other") + changed) == (0, b"")
    assert await shown() == (MAX_U64, 1, 5 * 10**6, "other")
    for options, status in ((texts(segment_size="1 MiB"), 4042), (texts(owner="x"), 4041)):
        assert await v2(rig, "UPDATE_TOPIC", place + short_text("other") + options) == (status, b"")


async def test_the_options_that_there_are_can_be_listed(rig: Rig) -> None:
    status, body = await v2(rig, "DESCRIBE_OPTIONS", b"\1")
    assert status == 0
    (count,), at, found = struct.unpack_from("<I", body), 4, dict[str, tuple[int, bytes]]()
    for _ in range(count):
        key = body[at + 1 : at + 1 + body[at]].decode()
        at += 1 + body[at]
        kind, size = struct.unpack_from("<BI", body, at)
        found[key] = kind, body[at + 5 : at + 5 + size]
        at += 5 + size
        (size,) = struct.unpack_from("<I", body, at)
        assert size > 0
        at += 4 + size
    assert (at, found.keys()) == (len(body), KEYS)
    assert found["segment_size"] == (U64, u64(1 << 30))
    assert found["enforce_fsync"] == (BOOL, b"\0")
    for scope in (b"\2", b"\3"):
        assert await v2(rig, "DESCRIBE_OPTIONS", scope) == (0, bytes(4))
    for scope in (b"", b"\0", b"\4", b"\1\1"):
        assert await v2(rig, "DESCRIBE_OPTIONS", scope) == (3, b"")


async def test_older_clients_have_no_options_and_v2_has_what_they_made(rig: Rig) -> None:
    assert await call(rig, "CREATE_STREAM", short_text("t") + texts(owner="x"), prefix="iggy0") == (3, b"")
    fields = struct.pack("<IBQQB", 1, 1, 0, 0, 0) + short_text("old")
    status, body = await call(rig, "CREATE_TOPIC", identifier("s") + fields, prefix="iggy0")
    assert (status, body[51 : 51 + 3]) == (0, b"old")
    _, shown = await v2(rig, "GET_TOPIC", identifier("s") + identifier("old"))
    assert shown_topic(shown)[4:6] == ("old", {})
