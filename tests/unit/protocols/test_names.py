"""Names that look alike: rejected for new things, accepted for existing ones."""

import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from bascule._liftbridge_pb import message
from bascule.engine import id_flaw, name_flaw
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.router import AdminRequest

from tests.docs.snippets import ROOT
from tests.unit.control.fake_plane import Disk
from tests.unit.control.rig import Rig, running, stream_request
from tests.unit.protocols.test_liftbridge import bad, good

HIDDEN = "orders\u200b"
SAID = r'"orders\u{200b}" has U+200B, which cannot be seen: leave it out'
TWICE = "a\u0301"


def test_every_character_of_these_kinds_is_refused_but_for_those_that_leave_a_mark() -> None:
    kinds = {"Cc", "Co", "Cf", "Zl", "Zp", "Zs"}
    left = [c for c in map(chr, range(0x110000)) if unicodedata.category(c) in kinds and name_flaw(c) is None]
    assert {unicodedata.category(c) for c in left if c != " "} == {"Cf"}
    words = ("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN")
    assert all(unicodedata.name(c, "EGYPTIAN").startswith(words) for c in left if c != " ")


@pytest.mark.parametrize(
    "name", ["", "a b", "a,b", "größe", "заказы", "訂單", "طلبات", "क्षेत्र", "🚀", 'a"b', "\u0212", "a/b"]
)
def test_names_of_every_script_are_names(name: str) -> None:
    assert name_flaw(name) is None


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (HIDDEN, SAID),
        ("\0", r'"\u{0}" has U+0000, a control character: leave it out'),
        ("a\u00a0b", r'"a\u{a0}b" has U+00A0, which looks like a space: leave it out'),
        ("\U0010fffd", r'"\u{10fffd}" has U+10FFFD, which means nothing to others: leave it out'),
        (
            TWICE,
            f'"{TWICE}" is not in Unicode normal form C: where it has U+0061, give U+00E1, as in "\u00e1"',
        ),
    ],
)
def test_what_is_wrong_is_shown_and_the_remedy_named(name: str, said: str) -> None:
    assert name_flaw(name) == said


def lines(name: str) -> list[str]:
    text = (ROOT / "specs" / "vectors" / name).read_text()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_what_the_vectors_refuse_is_refused_here_too() -> None:
    for first, last, why in map(str.split, lines("names.txt")):
        for letter in (chr(int(first, 16)), chr(int(last, 16))):
            assert f"U+{ord(letter):04X}" in (name_flaw(letter) or "")
            assert (id_flaw(letter) is not None) == (why in {"control", "invisible", "nothing"})


@pytest.mark.parametrize("line", lines("names-in-context.txt"))
def test_joiners_and_emoji_are_names_where_they_are_of_use(line: str) -> None:
    codes, refused, _ = line.split(" ; ")
    name = "".join(chr(int(code, 16)) for code in codes.split())
    flaw = name_flaw(name)
    assert flaw is None if refused == "-" else f"has U+{refused}," in (flaw or "")
    assert id_flaw(name) is None


@pytest.mark.parametrize("id_", ["orders\u00a0x", TWICE, "\u200d", "\u3000", "\ue000"])
def test_ids_may_have_what_names_may_not(id_: str) -> None:
    assert name_flaw(id_) is not None
    assert id_flaw(id_) is None


MARKS = "\u0301" * (512 << 10)


@pytest.mark.parametrize("flaw_of", [name_flaw, id_flaw])
def test_of_a_name_that_is_too_long_only_the_length_is_shown(flaw_of: Callable[[str], str | None]) -> None:
    shown = "\u0301" * 80
    assert flaw_of(MARKS) == f'"{shown}…" is 1048576 bytes long, more than 1024: give a shorter one'
    assert len(flaw_of("\0" * 1024) or "") < 1000


@pytest.mark.parametrize(
    ("method", "fields", "what"),
    [
        ("CreateStream", {"name": HIDDEN, "subject": HIDDEN}, "Stream name"),
        ("CreateStream", {"name": "s", "subject": HIDDEN}, "Subject"),
        ("CreateStream", {"name": "s", "subject": "s", "group": HIDDEN}, "Queue group"),
        ("JoinConsumerGroup", {"groupId": HIDDEN, "consumerId": "c", "streams": ["s"]}, "groupId"),
        ("JoinConsumerGroup", {"groupId": "g", "consumerId": HIDDEN, "streams": ["s"]}, "consumerId"),
    ],
)
async def test_names_that_begin_are_checked(rig: Rig, method: str, fields: dict[str, Any], what: str) -> None:
    assert await bad(rig, method, **fields) == (Status.INVALID_ARGUMENT, f"{what} {SAID}")


@pytest.mark.parametrize(
    ("field", "what", "most"),
    [("name", "Stream name", 255), ("subject", "Subject", 1024), ("group", "Queue group", 255)],
)
async def test_lengths_are_checked_before_anything_reads_the_name(rig: Rig, field: str, what: str, most: int) -> None:
    fields = {"name": "s", "subject": "s", field: MARKS}
    body = message("CreateStreamRequest")(**fields).SerializeToString()
    with pytest.raises(StatusError) as refused:
        await rig.admin["liftbridge/CreateStream"](AdminRequest("liftbridge/CreateStream", body, "127.0.0.1:1", 5.0))
    assert refused.value.status is Status.INVALID_ARGUMENT
    text = f"{what} {MARKS[:80]!r}… is 1048576 bytes long, more than {most}: give a shorter one"
    assert refused.value.message == text


async def test_streams_and_groups_that_have_such_names_stay_within_reach() -> None:
    disk = Disk()
    for name in (HIDDEN, TWICE):
        async with running(disk) as rig:
            await rig.controller.create_stream(stream_request(name, subject=name), 5.0)
            await rig.groups.join(name, "first", (name,), 5.0)
        async with running(disk) as rig:
            answer = await good(rig, "FetchMetadata", streams=[name], groups=[name])
            assert (answer.streamMetadata[0].error, answer.groupMetadata[0].error) == (0, 0)
            await good(rig, "JoinConsumerGroup", groupId=name, consumerId="second", streams=[name])
            await good(rig, "LeaveConsumerGroup", groupId=name, consumerId="first")
            await good(rig, "DeleteStream", name=name)


async def test_a_present_member_is_rejected_as_one_whatever_its_id() -> None:
    disk = Disk()
    async with running(disk) as rig:
        await good(rig, "CreateStream", name="s", subject="s")
        await rig.groups.join(HIDDEN, HIDDEN, ("s",), 5.0)
    async with running(disk) as rig:
        fields = {"groupId": HIDDEN, "consumerId": HIDDEN, "streams": ["s"]}
        assert (await bad(rig, "JoinConsumerGroup", **fields))[0] is Status.FAILED_PRECONDITION


async def test_members_with_invalid_ids_come_back_after_their_group_is_gone(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    for id_ in ("orders\u00a0x", TWICE):
        for _ in range(2):
            await good(rig, "JoinConsumerGroup", groupId=id_, consumerId=id_, streams=["s"])
            await good(rig, "LeaveConsumerGroup", groupId=id_, consumerId=id_)


async def test_names_as_long_as_they_may_be_are_taken(rig: Rig) -> None:
    for field, most in (("subject", 1024), ("group", 255)):
        await good(rig, "CreateStream", **{"name": field, "subject": "s", field: "x" * most})
