"""Unmodified JetStream publishers (nats-py, the nats CLI, raw frames): a Bascule stream answers like JetStream.

Every test with `peer` runs against both, so that the expectations are checked with a real nats-server.
"""

# nats-py leaves some of its parameters without a type
# pyright: reportUnknownMemberType=false

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import nats
import pytest
from bascule.testing import TestBroker
from nats.aio.client import Client as NatsClient
from nats.js.api import Header
from nats.js.errors import APIError, NoStreamResponseError

from tests.conformance.jetstream_peers import Peer, answers, frame, jetstream_server, nats_cli, stream_name


@pytest.fixture(scope="module")
def jetstream_url() -> Iterator[str]:
    with jetstream_server() as url:
        yield url


@pytest.fixture(params=["bascule", "jetstream"])
def peer(request: pytest.FixtureRequest, running: TestBroker, jetstream_url: str) -> Peer:
    if request.param == "bascule":
        return Peer("bascule", running.nats_url, running)
    return Peer("jetstream", jetstream_url, None)


@pytest.fixture
def ours(running: TestBroker) -> Peer:
    return Peer("bascule", running.nats_url, running)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return stream_name(request.node.originalname)


@pytest.fixture
async def client(peer: Peer) -> AsyncIterator[NatsClient]:
    connection = await nats.connect(peer.url)
    yield connection
    await connection.close()


async def refusal(publish: Any) -> tuple[int | None, int | None, str | None]:
    """Code, error code and description of a rejected publish."""
    with pytest.raises(APIError) as caught:
        await publish
    return caught.value.code, caught.value.err_code, caught.value.description


async def test_publishes_are_acknowledged_with_stream_and_sequence(peer: Peer, client: NatsClient, name: str) -> None:
    await peer.create(name, f"{name}.>")
    js = client.jetstream()
    for number in range(1, 4):
        ack = await js.publish(f"{name}.eu.{number}", b"%d" % number)
        assert (ack.stream, ack.seq, ack.duplicate, ack.domain) == (name, number, None, None)


async def test_a_thousand_in_flight_are_acknowledged_in_order(peer: Peer, client: NatsClient, name: str) -> None:
    await peer.create(name, name)
    js = client.jetstream()
    futures = [await js.publish_async(name, b"%d" % number) for number in range(1000)]
    acks = await asyncio.wait_for(asyncio.gather(*futures), 60)
    assert [ack.seq for ack in acks] == list(range(1, 1001))


async def test_a_repeated_id_is_answered_with_the_sequence_of_the_original(
    peer: Peer, client: NatsClient, name: str
) -> None:
    await peer.create(name, name)
    js = client.jetstream()
    headers: dict[str, Any] = {Header.MSG_ID: "order-1"}
    first = await js.publish(name, b"a", headers=headers)
    await js.publish(name, b"between")
    again = await js.publish(name, b"a", headers=headers)
    assert (first.seq, first.duplicate) == (1, None)
    assert (again.seq, again.duplicate) == (1, True)
    assert (await js.publish(name, b"after")).seq == 3
    futures = [await js.publish_async(name, b"b", headers={Header.MSG_ID: "order-2"}) for _ in range(50)]
    acks = await asyncio.wait_for(asyncio.gather(*futures), 60)
    assert [(ack.seq, ack.duplicate) for ack in acks] == [(4, None)] + [(4, True)] * 49


async def test_conditions_that_do_not_hold_are_refused_with_the_codes_of_jetstream(
    peer: Peer, client: NatsClient, name: str
) -> None:
    await peer.create(name, name)
    js = client.jetstream()
    await js.publish(name, b"a", headers={Header.MSG_ID: "a"}, stream=name)
    assert await refusal(js.publish(name, b"x", stream="other")) == (400, 10060, "expected stream does not match")
    wrong = js.publish(name, b"x", headers={Header.EXPECTED_LAST_SEQUENCE: "7"})
    assert await refusal(wrong) == (400, 10071, "wrong last sequence: 1")
    wrong = js.publish(name, b"x", headers={Header.EXPECTED_LAST_MSG_ID: "z"})
    assert await refusal(wrong) == (400, 10070, "wrong last msg ID: a")
    right: dict[str, Any] = {Header.EXPECTED_LAST_SEQUENCE: "1", Header.EXPECTED_LAST_MSG_ID: "a"}
    assert (await js.publish(name, b"b", headers=right, stream=name)).seq == 2


async def test_a_subject_without_a_stream_has_no_responders(peer: Peer, client: NatsClient, name: str) -> None:
    await peer.create(name, f"{name}.a")
    with pytest.raises(NoStreamResponseError):
        await client.jetstream().publish(f"{name}.b", b"x")


async def test_frames_are_answered_byte_for_byte_as_by_nats_server(ours: Peer, jetstream_url: str, name: str) -> None:
    theirs = Peer("jetstream", jetstream_url, None)
    lines = [
        [],
        [b"Nats-Msg-Id: a"],
        [b"Nats-Msg-Id: a"],
        [b"Nats-Msg-Id:    a"],
        [b"nats-msg-id: a"],
        [b"Nats-Msg-Id: a", b"Nats-Msg-Id: b"],
        [b"Nats-Msg-Id: c", b"Nats-Msg-Id: a"],
        [b"Nats-Msg-Id: "],
        [b"Nats-Msg-Id: a:b"],
        [b"X-Nats-Msg-Id: a"],
        [b"Other: Nats-Msg-Id: a"],
        [b"Nats-Expected-Stream: other"],
        [b"Nats-Expected-Stream: "],
        [b"Nats-Expected-Last-Sequence: 1"],
        [b"Nats-Expected-Last-Sequence: x1"],
        [b"Nats-Expected-Last-Sequence: -1"],
        [b"Nats-Expected-Last-Sequence: 99999999999999999999999"],
        [b"Nats-Expected-Last-Sequence: "],
        [b"Nats-Expected-Last-Msg-Id: a"],
        [b"Nats-Msg-Id: z"],
        [b"Nats-Expected-Last-Msg-Id: y"],
        [b"Nats-Expected-Last-Msg-Id: z"],
        [b"Nats-Expected-Last-Msg-Id: z"],
        [b"Nats-Msg-Id: z", b"Nats-Expected-Stream: other", b"Nats-Expected-Last-Sequence: 1"],
        [b"Nats-Msg-Id: z", b"Nats-Expected-Last-Sequence: 1", b"Nats-Expected-Last-Msg-Id: q"],
        [b"Nats-Msg-Id: z", b"Nats-Expected-Last-Msg-Id: q"],
        [b"Nats-Msg-Id: new", b"Nats-Expected-Last-Sequence: 1"],
        [b"Nats-Msg-Id: new"],
        [b"Nats-Stream: republished", b"Nats-Sequence: 7", b"Nats-Subject: there", b"Nats-Time-Stamp: now"],
    ]
    found: list[list[bytes]] = []
    for peer in (ours, theirs):
        await peer.create(name, name)
        found.append(await answers(peer.url, [frame(name, each) for each in lines]))
    assert list(zip(lines, found[0], strict=True)) == list(zip(lines, found[1], strict=True))


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("Nats-Expected-Last-Subject-Sequence: 1", None),
        ("Nats-Rollup: all", 10111),
        ("Nats-TTL: 1s", 10166),
        ("Nats-Schedule: @every 1s", 10188),
        ("Nats-Incr: +1", 10168),
        ("Nats-Batch-Id: u", 10174),
    ],
)
async def test_other_control_headers_are_refused_as_by_a_stream_without_the_feature(
    ours: Peer, jetstream_url: str, name: str, header: str, code: int | None
) -> None:
    line = header.encode()
    await ours.create(name, name)
    refused = (await answers(ours.url, [frame(name, [line])]))[0]
    assert f"header {header.partition(':')[0]} is not supported" in refused.decode()
    if code is not None:
        theirs = Peer("jetstream", jetstream_url, None)
        await theirs.create(name, name)
        known = (await answers(theirs.url, [frame(name, [line])]))[0]
        for answer in (refused, known):
            assert f'"err_code":{code},' in answer.decode()
    stored = await answers(ours.url, [frame(name, [])])
    assert stored == [f'{{"stream":"{name}","seq":1}}'.encode()], "a rejected message is not stored"


async def test_the_nats_cli_publishes(peer: Peer, name: str) -> None:
    program = nats_cli()
    if program is None:
        pytest.skip("no nats CLI: go install github.com/nats-io/natscli/nats@latest")
    await peer.create(name, name)
    for sequence in (1, 2):
        command = [program, "--server", peer.url, "pub", "-J", name, f"message {sequence}", "-H", "trace:abc"]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert f"Stored in Stream: {name} Sequence: {sequence}" in done.stdout + done.stderr


async def test_acknowledged_messages_are_stored_with_headers_and_reply_subject(ours: Peer, name: str) -> None:
    assert ours.broker is not None
    await ours.create(name, name)
    connection = await nats.connect(ours.url)
    ack = await connection.jetstream().publish(name, b"value", headers={"trace": "abc", Header.MSG_ID: "a"})
    await connection.close()
    async with ours.broker.connect_async() as client, client.subscribe(name, stop=ack.seq) as subscription:
        record = [record async for record in subscription.records()][-1]
    assert (record.offset, record.value) == (ack.seq - 1, b"value")
    assert (record.header("trace"), record.header("Nats-Msg-Id")) == (b"abc", b"a")


async def test_replies_outside_the_allowed_prefixes_get_no_ack(ours: Peer, name: str) -> None:
    assert ours.broker is not None
    await ours.create(name, name)
    connection = await nats.connect(ours.url)
    elsewhere = await connection.subscribe(f"{name}-elsewhere")
    await connection.publish(name, b"a", reply=f"{name}-elsewhere")
    # Acks of a stream are sent in order: after this one, the other will not come.
    assert (await connection.jetstream().publish(name, b"b")).seq == 2
    assert elsewhere.pending_msgs == 0
    with ours.broker.connect() as client:
        statistics = client.describe_broker().statistics
    assert statistics["nats_acks_withheld"] >= 1
    await connection.close()


async def test_without_a_reply_subject_ids_and_conditions_count_too(ours: Peer, name: str) -> None:
    assert ours.broker is not None
    await ours.create(name, name)
    connection = await nats.connect(ours.url)
    several: list[dict[str, str]] = [
        {Header.MSG_ID: "a"},
        {Header.MSG_ID: "a"},
        {Header.EXPECTED_STREAM: "other"},
        {Header.MSG_ID: "b"},
    ]
    for headers in several:
        await connection.publish(name, b"x", headers=headers)
    assert (await connection.jetstream().publish(name, b"last")).seq == 3
    await connection.close()
    with ours.broker.connect() as client:
        details = client.describe_stream(name)
    assert details.partitions[0].nats_dropped == 1, "rejected without an ack"


async def test_a_read_only_stream_returns_an_error_and_a_paused_one_has_no_responders(ours: Peer, name: str) -> None:
    assert ours.broker is not None
    await ours.create(name, name)
    connection = await nats.connect(ours.url)
    js = connection.jetstream()
    assert (await js.publish(name, b"a")).seq == 1
    with ours.broker.connect() as client:
        client.set_readonly(name)
        code, error, description = await refusal(js.publish(name, b"x"))
        assert (code, error) == (400, 10109)
        assert description is not None
        assert "read-only" in description
        client.set_readonly(name, readonly=False)
        assert (await js.publish(name, b"b")).seq == 2
        large = b"x" * ((1 << 20) - 200)
        client.edit_stream(name, {"max_record_bytes": 1000})
        assert await refusal(js.publish(name, large)) == (400, 10054, "message size exceeds maximum allowed")
        client.pause_stream(name)
    with pytest.raises(NoStreamResponseError):
        await js.publish(name, b"x")
    await connection.close()
