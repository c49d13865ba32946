"""Bounds on what one admin request may name and cost."""

import time
from typing import Any

import pytest
from bascule._liftbridge_pb import message
from bascule._methods import METHODS
from bascule.metadata import MAX_MEMBER_STREAMS, MAX_PARTITIONS
from bascule.protocols import router
from bascule.protocols.grpc_status import Status
from bascule.protocols.liftbridge import metadata

from tests.unit.control.fake_plane import until
from tests.unit.control.rig import Rig
from tests.unit.protocols.test_admin import refused as admin_refused
from tests.unit.protocols.test_admin import send
from tests.unit.protocols.test_liftbridge import bad, good

MANY = 1_000_000
"""Entries that cost seconds when they are expanded one by one."""
SOON_S = 1.0


async def refused(rig: Rig, method: str, **fields: Any) -> tuple[Status, str]:
    """A refusal that cost little, parsing included."""
    began = time.process_time()
    answer = await bad(rig, method, **fields)
    assert time.process_time() - began < SOON_S
    return answer


@pytest.mark.parametrize("method", ["PauseStream", "SetStreamReadonly"])
async def test_partitions_of_a_request_are_bounded_by_those_of_a_stream(rig: Rig, method: str) -> None:
    await good(rig, "CreateStream", name="s", subject="s", partitions=2)
    await good(rig, method, name="s", partitions=[0, 1] * (MAX_PARTITIONS // 2))
    text = f"partitions has {MANY} entries, at most {MAX_PARTITIONS} are accepted: name each partition once"
    assert await refused(rig, method, name="s", partitions=[0] * MANY) == (Status.INVALID_ARGUMENT, text)


async def test_partitions_to_resume_are_bounded_by_those_of_a_stream(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    code, text = await admin_refused(rig, "ResumeStream", name="s", partitions=[0] * (MAX_PARTITIONS + 1))
    assert (code, text.partition(" are accepted")[0]) == (
        Status.INVALID_ARGUMENT,
        f"partitions has {MAX_PARTITIONS + 1} entries, at most {MAX_PARTITIONS}",
    )


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.request_bytes is not None])
async def test_a_large_request_is_refused_before_it_is_parsed(rig: Rig, method: str) -> None:
    most = METHODS[method].request_bytes
    assert most is not None
    code, text, _ = await send(rig, f"admin/{method}", b"\xff" * (most + 1))
    assert code == Status.INVALID_ARGUMENT
    assert text == f"the request has {most + 1} bytes, at most {most} are accepted: ask for less at once"
    code, text, _ = await send(rig, f"admin/{method}", b"\xff" * most)
    assert (code, text) == (Status.INVALID_ARGUMENT, f"the request is not a valid bascule.admin.v1.{method}Request")


async def test_streams_of_a_join_are_bounded_by_those_of_a_member(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    code, text = await refused(rig, "JoinConsumerGroup", groupId="g", consumerId="c", streams=["s"] * MANY)
    assert (code, text.partition(" are accepted")[0]) == (
        Status.INVALID_ARGUMENT,
        f"streams has {MANY} entries, at most {MAX_MEMBER_STREAMS}",
    )
    await good(rig, "JoinConsumerGroup", groupId="g", consumerId="c", streams=["s"] * MAX_MEMBER_STREAMS)


async def test_metadata_that_would_be_too_large_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("s", "t"):
        await good(rig, "CreateStream", name=name, subject=name, partitions=100)
    size = (await good(rig, "FetchMetadata", streams=["s"])).ByteSize()
    monkeypatch.setattr(metadata, "MAX_ANSWER_BYTES", size)
    await good(rig, "FetchMetadata", streams=["s"] * 10)
    code, text = await bad(rig, "FetchMetadata")
    assert code is Status.RESOURCE_EXHAUSTED
    assert text.endswith("ask for fewer streams at once")


async def heartbeat(rig: Rig, held: list[dict[str, Any]], group: str = "g", consumer: str = "c") -> tuple[int, str]:
    began = time.process_time()
    request = message("FetchConsumerGroupAssignmentsRequest")
    epoch = rig.controller.state.groups["g"].epoch
    body = request(groupId=group, consumerId=consumer, epoch=epoch, held=held).SerializeToString()
    built = time.process_time() - began
    code, text, _ = await send(rig, "liftbridge/FetchConsumerGroupAssignments", body)
    assert time.process_time() - began - built < SOON_S
    return code, text


async def test_partitions_that_a_member_holds_are_bounded_by_those_that_it_reads(rig: Rig) -> None:
    for name in ("s", "other"):
        await good(rig, "CreateStream", name=name, subject=name, partitions=2)
    await good(rig, "JoinConsumerGroup", groupId="g", consumerId="c", streams=["s"], handsOver=True)
    numbers = list(range(MANY))
    held = [{"stream": "s", "partitions": numbers}]
    text = "held of stream s has {} entries, at most 2 are accepted: name each of its partitions once"
    assert await heartbeat(rig, held) == (Status.INVALID_ARGUMENT, text.format(MANY))
    parts = [{"stream": "s", "partitions": [0]}] * 3
    assert await heartbeat(rig, parts) == (Status.INVALID_ARGUMENT, text.format(3))
    code, said = await heartbeat(rig, [{"stream": "s", "partitions": [0]}] * (MAX_MEMBER_STREAMS + 1))
    assert (code, said) == (
        Status.INVALID_ARGUMENT,
        f"held has {MAX_MEMBER_STREAMS + 1} entries, at most {MAX_MEMBER_STREAMS} are accepted: name each stream once",
    )
    fitting = [{"stream": "s", "partitions": [0, 1]}, {"stream": "other", "partitions": numbers}]
    assert await heartbeat(rig, fitting) == (0, ""), "a stream that it does not read counts for nothing"


async def test_membership_is_checked_before_what_a_member_holds(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    await good(rig, "JoinConsumerGroup", groupId="g", consumerId="c", streams=["s"])
    held = [{"stream": "s", "partitions": list(range(MANY))}]
    assert (await heartbeat(rig, held, group="nope"))[0] == Status.NOT_FOUND
    code, text = await heartbeat(rig, held, consumer="nobody")
    assert (code, text) == (Status.FAILED_PRECONDITION, "consumer is not a member of the consumer group")
    assert await heartbeat(rig, held) == (0, ""), "what is held means nothing where the member does not hand over"


async def test_a_request_whose_caller_has_gone_is_not_computed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[object] = []
    answer = rig.controller.status
    monkeypatch.setattr(rig.controller, "status", lambda asked: (computed.append(asked), answer(asked))[1])
    rig.plane.gone = {1, 2}
    for number in (1, 2, 3):
        rig.plane.request(number, "liftbridge/FetchMetadata", b"")
    await until(lambda: 3 in rig.plane.replies)
    assert len(computed) == 1
    assert set(rig.plane.replies) == {3}


async def test_answers_of_one_turn_of_the_loop_do_not_pile_up(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    sizes: list[int] = []
    respond = rig.plane.respond
    monkeypatch.setattr(rig.plane, "respond", lambda replies: (sizes.append(len(replies)), respond(replies))[1])
    monkeypatch.setattr(router, "MAX_REPLY_BYTES", 100)
    for number in range(50):
        rig.plane.request(number, "liftbridge/FetchMetadata", b"")
    await until(lambda: all(number in rig.plane.replies for number in range(50)))
    assert max(sizes) <= 3
