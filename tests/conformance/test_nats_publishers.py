"""Plain and enveloped NATS publishers (nats-py) against a real broker: stored records and acks."""

# nats-py leaves some of its parameters without a type
# pyright: reportUnknownMemberType=false

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import nats
import pytest
from bascule import Record, engine
from bascule.testing import TestBroker
from nats.aio.client import Client as NatsClient

from tests.conformance import envelopes
from tests.conformance.api import OFFSET, Api

LEADER, ALL, NONE, UNHEARD_OF = range(4)


@pytest.fixture
async def publisher(running: TestBroker) -> AsyncIterator[NatsClient]:
    client = await nats.connect(running.nats_url)
    yield client
    await client.close()


def create(running: TestBroker, stream: str, subject: str) -> None:
    with running.connect() as client:
        client.create_stream(stream, subject)


async def stored(running: TestBroker, stream: str, count: int) -> list[Record]:
    """The first `count` records; waits for them."""
    async with (
        asyncio.timeout(60),
        running.connect_async() as client,
        client.subscribe(stream, stop=count) as subscription,
    ):
        return [record async for record in subscription.records()]


async def test_plain_messages_are_stored_as_they_are_with_their_subject(
    running: TestBroker, stream: str, publisher: NatsClient
) -> None:
    create(running, stream, f"{stream}.>")
    for number in range(100):
        await publisher.publish(f"{stream}.device.{number % 3}", b"%d" % number)
    await publisher.publish(f"{stream}.asks", b"question", reply="answers.here")
    await publisher.flush()
    found = await stored(running, stream, 101)
    assert [record.value for record in found] == [*(b"%d" % number for number in range(100)), b"question"]
    assert [record.offset for record in found] == list(range(101))
    assert {record.subject for record in found[:100]} == {f"{stream}.device.{number}" for number in range(3)}
    assert all(record.key is None for record in found)
    assert found[100].reply == "answers.here"
    assert found[100].subject == f"{stream}.asks"
    with Api(running.address) as api:
        delivered = api.subscribe(stream, startOffset=99, startPosition=OFFSET).take(2)
    assert [item.replySubject for item in delivered] == ["", "answers.here"]


@pytest.mark.parametrize("checksum", [False, True])
async def test_an_enveloped_message_gets_key_headers_and_an_ack(
    running: TestBroker, stream: str, publisher: NatsClient, checksum: bool
) -> None:
    create(running, stream, f"{stream}.>")
    inbox = await publisher.subscribe(f"acks.{stream}")
    data = envelopes.publish(
        checksum=checksum,
        key=b"k",
        value=b"hello",
        headers={"a": b"1"},
        ackInbox=f"acks.{stream}",
        correlationId="c1",
        ackPolicy=ALL,
        offset=-1,
    )
    await publisher.publish(f"{stream}.x", data)
    ack = envelopes.ack((await inbox.next_msg(timeout=60)).data)
    assert (ack.stream, ack.partitionSubject, ack.msgSubject) == (stream, f"{stream}.>", f"{stream}.x")
    assert (ack.offset, ack.correlationId, ack.ackPolicy, ack.ackError) == (0, "c1", ALL, 0)
    assert ack.ackInbox == f"acks.{stream}"
    (record,) = await stored(running, stream, 1)
    assert (record.key, record.value, record.header("a")) == (b"k", b"hello", b"1")
    assert record.timestamp_ns == ack.receptionTimestamp
    assert ack.commitTimestamp >= ack.receptionTimestamp


async def test_acks_come_in_order_of_offsets(running: TestBroker, stream: str, publisher: NatsClient) -> None:
    create(running, stream, stream)
    inbox = await publisher.subscribe(f"acks.{stream}")
    for number in range(500):
        data = envelopes.publish(
            value=b"%d" % number, ackInbox=f"acks.{stream}", correlationId=str(number), ackPolicy=LEADER
        )
        await publisher.publish(stream, data)
    acks = [envelopes.ack((await inbox.next_msg(timeout=60)).data) for _ in range(500)]
    assert [(ack.offset, ack.correlationId) for ack in acks] == [(number, str(number)) for number in range(500)]


async def test_policy_none_is_stored_and_not_acknowledged(
    running: TestBroker, stream: str, publisher: NatsClient
) -> None:
    create(running, stream, stream)
    inbox = await publisher.subscribe(f"acks.{stream}")
    for policy in (NONE, UNHEARD_OF, LEADER):
        await publisher.publish(stream, envelopes.publish(value=b"v", ackInbox=f"acks.{stream}", ackPolicy=policy))
    ack = envelopes.ack((await inbox.next_msg(timeout=60)).data)
    assert (ack.offset, ack.ackPolicy) == (2, LEADER), "the only ack is the last message's"


async def test_a_read_only_stream_drops_nats_messages_silently(
    running: TestBroker, stream: str, publisher: NatsClient
) -> None:
    create(running, stream, stream)
    create(running, f"{stream}-fence", f"fence.{stream}")
    inbox = await publisher.subscribe(f"acks.{stream}")
    with Api(running.address) as api:
        api.call("SetStreamReadonly", name=stream, readonly=True)
        await publisher.publish(stream, b"plain")
        for subject in (stream, f"fence.{stream}"):
            data = envelopes.publish(value=b"v", ackInbox=f"acks.{stream}", correlationId=subject)
            await publisher.publish(subject, data)
        ack = envelopes.ack((await inbox.next_msg(timeout=60)).data)
        assert ack.correlationId == f"fence.{stream}", "the only ack is that of the other stream"
        assert api.partition(stream).newestOffset == -1


PAYLOAD = envelopes.publish(value=b"v")
MALFORMED: dict[str, bytes] = {
    "shorter than a header": PAYLOAD[:7],
    "another magic": b"\0" + PAYLOAD[1:],
    "another version": PAYLOAD[:4] + b"\1" + PAYLOAD[5:],
    "header length beyond the end": PAYLOAD[:5] + b"\xff" + PAYLOAD[6:],
    "header length inside the header": PAYLOAD[:5] + b"\x04" + PAYLOAD[6:],
    **{f"of type {kind}": PAYLOAD[:7] + bytes([kind]) + PAYLOAD[8:] for kind in (*range(1, 16), 255)},
    "checksum flag with a short header": PAYLOAD[:6] + b"\1" + PAYLOAD[7:],
    "wrong checksum": envelopes.publish(checksum=True, value=b"v")[:-1] + b"w",
    "truncated protobuf": PAYLOAD[:-1],
    "empty": b"",
}


async def test_a_malformed_envelope_is_a_plain_message(running: TestBroker, stream: str, publisher: NatsClient) -> None:
    create(running, stream, stream)
    for data in MALFORMED.values():
        await publisher.publish(stream, data)
    await publisher.flush()
    found = await stored(running, stream, len(MALFORMED))
    assert {name: record.value for name, record in zip(MALFORMED, found, strict=True)} == MALFORMED


async def test_an_empty_envelope_is_an_empty_message(running: TestBroker, stream: str, publisher: NatsClient) -> None:
    create(running, stream, stream)
    await publisher.publish(stream, envelopes.publish())
    await publisher.flush()
    (record,) = await stored(running, stream, 1)
    assert (record.key, record.value) == (None, b"")


async def test_every_stream_on_a_subject_stores_its_copy(
    running: TestBroker, stream: str, publisher: NatsClient
) -> None:
    for name, subject in ((f"{stream}-a", f"{stream}.>"), (f"{stream}-b", f"{stream}.*.x"), (f"{stream}-c", "other")):
        create(running, name, subject)
    await publisher.publish(f"{stream}.1.x", b"both")
    await publisher.publish(f"{stream}.1.y", b"first only")
    await publisher.flush()
    first = await stored(running, f"{stream}-a", 2)
    second = await stored(running, f"{stream}-b", 1)
    assert ([record.value for record in first], second[0].value) == ([b"both", b"first only"], b"both")


async def test_publishing_through_the_broker_is_visible_to_nats(
    running: TestBroker, stream: str, publisher: NatsClient
) -> None:
    create(running, stream, stream)
    listening = await publisher.subscribe(stream)
    await publisher.flush()
    async with running.connect_async() as client:
        receipt = await client.publish(stream, b"seen", key=b"k")
        await client.publish(stream, b"seen next")
        copies = [await listening.next_msg(timeout=60) for _ in range(2)]
        payloads: list[Any] = [envelopes.message("Message").FromString(copy.data[copy.data[5] :]) for copy in copies]
        assert [(item.key, item.value) for item in payloads] == [(b"k", b"seen"), (b"", b"seen next")], "each once"
        places = [(copy.headers or {})["Bascule-Origin"].split("/")[2:] for copy in copies]
        assert places == [["0", "0"], ["0", "1"]], "partition and offset"
        partition = await client.get_partition(stream)
    assert (receipt.offset, partition.high_watermark) == (0, 2), "the broker's own copies are not stored again"


async def test_publish_to_subject_is_pure_nats(running: TestBroker, stream: str) -> None:
    create(running, stream, f"{stream}.>")
    request = envelopes.message("PublishToSubjectRequest")(subject=f"{stream}.a.b", value=b"v", ackPolicy=LEADER)
    native = engine.Client(running.address, b"")
    answer = native.call("PublishToSubject", request.SerializeToString(), 60_000)
    native.close()
    ack = envelopes.message("PublishToSubjectResponse").FromString(answer).ack
    assert (ack.stream, ack.msgSubject, ack.offset) == (stream, f"{stream}.a.b", 0)


def test_the_envelopes_of_these_tests_are_the_vectors_of_the_protocol() -> None:
    fields: dict[str, Any] = {
        "offset": -1, "key": b"k", "value": b"hello", "ackInbox": "ack", "correlationId": "c1", "ackPolicy": ALL,
    }  # fmt: skip
    payload = "08ffffffffffffffffff0112016b1a0568656c6c6f520361636b5a0263316001"
    assert envelopes.publish(**fields).hex() == f"b90e43b400080000{payload}"
    assert envelopes.publish(checksum=True, **fields).hex() == f"b90e43b4000c0100dea985c1{payload}"
    assert envelopes.crc32c(b"123456789") == 0xE3069283


def test_garbage_on_the_port_does_not_affect_the_broker(running: TestBroker, stream: str) -> None:
    host, _, port = running.address.rpartition(":")
    for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(range(256)) * 64):
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            connection.sendall(garbage)
    create(running, stream, stream)
