"""Input beyond all limits, from NATS and over gRPC: it is rejected without effect on others."""

# nats-py leaves some of its parameters without a type
# pyright: reportUnknownMemberType=false

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import nats
import pytest
from bascule._liftbridge_pb import message
from bascule.testing import TestBroker, broker
from nats.aio.client import Client as NatsClient

from tests.conformance import envelopes
from tests.conformance.api import ALL, BAD_REQUEST, INTERNAL, Api, Failed, failed, values

TOO_LARGE = 3
MOST_HEADERS = 1024


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as connected:
        yield connected


@pytest.fixture
async def publisher(running: TestBroker) -> AsyncIterator[NatsClient]:
    client = await nats.connect(running.nats_url, pending_size=16 << 20)
    yield client
    await client.close()


async def stored(api: Api, stream: str, count: int) -> list[Any]:
    """All records, once there are `count`."""
    async with asyncio.timeout(60):
        while await asyncio.to_thread(lambda: api.partition(stream).highWatermark) < count - 1:  # noqa: ASYNC110 - a separate process
            await asyncio.sleep(0.02)
    return await asyncio.to_thread(api.read, stream)


def value_of(data: bytes) -> bytes:
    """The steps of liftbridge §1.4 in order: the stored value of a NATS payload."""
    if len(data) < 8 or data[:4] != envelopes.MAGIC:
        return data
    version, length, flags, kind = data[4:8]
    if version != 0 or not 8 <= length <= len(data) or kind != envelopes.PUBLISH:
        return data
    payload = data[length:]
    if flags & envelopes.CHECKSUM and (length != 12 or envelopes.crc32c(payload) != int.from_bytes(data[8:12], "big")):
        return data
    try:
        return message("Message").FromString(payload).value
    except Exception:  # noqa: BLE001 - whatever the library raises for bytes that are not a message
        return data


@pytest.mark.parametrize("checksum", [False, True])
async def test_an_envelope_damaged_at_any_byte_of_its_header_is_a_plain_message(
    api: Api, stream: str, publisher: NatsClient, checksum: bool
) -> None:
    await asyncio.to_thread(api.create, stream)
    good = envelopes.publish(checksum=checksum, key=b"key", value=b"value", headers={"a": b"1"}, offset=-1)
    header = good[5]
    damaged = [good[:length] for length in range(header + 1)]
    damaged += [
        good[:place] + bytes([byte]) + good[place + 1 :] for place in range(header) for byte in range(0, 256, 5)
    ]
    for data in [*damaged, good]:
        await publisher.publish(stream, data)
    await publisher.flush()
    found = await stored(api, stream, len(damaged) + 1)
    assert values(found) == [value_of(data) for data in [*damaged, good]]
    assert found[-1].value == b"value"


async def test_an_envelope_damaged_at_any_byte_of_its_payload_is_stored_and_ends_nothing(
    api: Api, stream: str, publisher: NatsClient
) -> None:
    await asyncio.to_thread(api.create, stream)
    good = envelopes.publish(
        key=b"key", value=b"value", headers={"name": b"content"}, ackInbox="a.b", correlationId="c", ackPolicy=2
    )
    damaged = [good[:length] for length in range(8, len(good))]
    damaged += [
        good[:place] + bytes([byte]) + good[place + 1 :] for place in range(8, len(good)) for byte in (0, 7, 255)
    ]
    for data in [*damaged, good]:
        await publisher.publish(stream, data)
    await publisher.flush()
    found = await stored(api, stream, len(damaged) + 1)
    assert len(found) == len(damaged) + 1
    # The whole payload or its value is stored, nothing else.
    for data, record in zip(damaged, found, strict=False):
        assert record.value == data or len(record.value) <= len(data) - 8
    assert found[-1].value == b"value"


@pytest.mark.parametrize(
    "payload",
    [
        b"\x18\x01",  # the value as a number
        b"\x10\x01",  # the key as a number
        b"\x0a\x01x",  # the offset as bytes
        b"\x62\x01x",  # the ack policy as bytes
        b"\x48\x01",  # a header as a number
        b"\x1d\x01\x02\x03\x04",  # the value as four fixed bytes
        b"\x19\x01\x02\x03\x04\x05\x06\x07\x08",  # and as eight
        b"\x1b\x1c",  # and as a group
        b"\x1a\x05x",  # cut short
        b"\x52\x01\xff",  # an inbox that is not UTF-8
        b"\x4a\x03\x0a\x01\xff",  # a header's name that is not UTF-8
    ],
)
async def test_a_field_of_another_kind_makes_it_a_plain_message(
    api: Api, stream: str, publisher: NatsClient, payload: bytes
) -> None:
    await asyncio.to_thread(api.create, stream)
    data = envelopes.MAGIC + bytes([0, 8, 0, 0]) + payload
    await publisher.publish(stream, data)
    await publisher.flush()
    assert values(await stored(api, stream, 1)) == [data]


def test_names_of_headers_may_be_longer_than_the_original_survives_and_not_endless(api: Api, stream: str) -> None:
    api.create(stream)
    for offset, length in enumerate((32_767, 32_768, 65_535)):
        assert api.publish(stream, headers={"n" * length: b"1"}) == offset
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "message exceeds max replication size")):
        api.publish(stream, headers={"n" * 65_536: b"1"})
    assert api.publish(stream, b"after") == 3
    found = api.read(stream)
    assert [len(max(item.headers, key=len)) for item in found[:3]] == [32_767, 32_768, 65_535]


async def test_a_name_that_is_too_long_is_answered_on_nats_too(api: Api, stream: str, publisher: NatsClient) -> None:
    await asyncio.to_thread(api.create, stream)
    inbox = await publisher.subscribe(f"acks.{stream}")
    for length, expected in ((65_536, TOO_LARGE), (32_768, 0)):
        data = envelopes.publish(headers={"n" * length: b"1"}, ackInbox=f"acks.{stream}", ackPolicy=ALL, offset=-1)
        await publisher.publish(stream, data)
        ack = envelopes.ack((await inbox.next_msg(timeout=60)).data)
        assert (ack.ackError, ack.offset) == (expected, 0)


async def test_a_payload_of_a_mebibyte_and_one_byte_is_refused_and_the_next_is_stored() -> None:
    with broker(settings={"nats.max_payload": 4 << 20}) as large, Api(large.address) as api:
        await asyncio.to_thread(api.create, "s")
        client = await nats.connect(large.nats_url, pending_size=16 << 20)
        inbox = await client.subscribe("acks")
        await client.publish("s", b"x" * ((1 << 20) + 1))
        await client.publish("s", b"x" * (1 << 20))
        overhead = len(envelopes.publish(value=b"x" * (1 << 19), ackInbox="acks", ackPolicy=2)) - (1 << 19)
        for excess in (1, 0):
            await client.publish(
                "s", envelopes.publish(value=b"y" * ((1 << 20) - overhead + excess), ackInbox="acks", ackPolicy=2)
            )
        await client.flush()
        ack = envelopes.ack((await inbox.next_msg(timeout=60)).data)
        assert (ack.ackError, ack.offset, ack.commitTimestamp) == (TOO_LARGE, 0, 0)
        found = await stored(api, "s", 2)
        assert [(item.value[:1], len(item.value)) for item in found] == [
            (b"x", 1 << 20),
            (b"y", (1 << 20) - overhead),
        ]
        await client.close()


def test_a_message_with_too_many_headers_is_refused_alone(api: Api, stream: str) -> None:
    api.create(stream)
    headers = {f"h{number}": b"1" for number in range(MOST_HEADERS + 1)}
    most = {name: headers[name] for name in list(headers)[:MOST_HEADERS]}
    requests = [
        {"stream": stream, "value": b"1", "ackPolicy": ALL, "correlationId": "first"},
        {"stream": stream, "headers": headers, "ackPolicy": ALL, "correlationId": "too many"},
        {"stream": stream, "headers": most, "ackPolicy": ALL, "correlationId": "most"},
        {"stream": stream, "value": b"2", "ackPolicy": ALL, "correlationId": "last"},
    ]
    answers = {item.correlationId: item for item in api.publish_async(requests)}
    refused = answers["too many"].asyncError
    assert (refused.code, refused.message) == (BAD_REQUEST, "message has more than 1024 headers")
    assert [answers[name].ack.offset for name in ("first", "most", "last")] == [0, 1, 2]
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "message has more than 1024 headers")):
        api.publish(stream, headers=headers)


def test_metadata_is_bounded_by_names_each_of_which_is_answered_once(api: Api, stream: str) -> None:
    api.create(stream, partitions=100)
    many = "20000 streams and groups are asked for, at most 10000 are answered at once"
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", many)):
        api.call("FetchMetadata", streams=["s"] * 10_000, groups=["g"] * 10_000)
    # 9,000 times a hundred partitions would need about 90 MB.
    (shown,) = api.call("FetchMetadata", streams=[stream] * 9_000).streamMetadata
    assert len(shown.partitions) == 100


@pytest.mark.parametrize("field", ["groupId", "consumerId"])
def test_ids_of_a_subscription_are_bounded(api: Api, stream: str, field: str) -> None:
    api.create(stream)
    consumer = {"groupId": "g", "consumerId": "c", field: "x" * 256}
    text = f"{field} is 256 bytes long, more than 255"
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", text)):
        api.subscribe(stream, consumer=message("Consumer")(**consumer))
    consumer[field] = "x" * 255
    api.subscribe(stream, consumer=message("Consumer")(**consumer)).cancel()


def test_min_isr_of_two_lets_nobody_publish_on_one_broker(api: Api, stream: str) -> None:
    api.create(stream, minIsr=message("NullableInt32")(value=2))
    text = "failed to append: not enough in-sync replicas: there are 1, min ISR is 2"
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", text)):
        api.publish(stream, b"x")
    (answer,) = api.publish_async([{"stream": stream, "ackPolicy": ALL, "correlationId": "c"}])
    refused = answer.asyncError
    assert (answer.correlationId, refused.code, refused.message) == ("c", INTERNAL, text)
    assert api.partition(stream).newestOffset == -1
    api.create(f"{stream}-1", minIsr=message("NullableInt32")(value=1))
    assert api.publish(f"{stream}-1", b"x") == 0


async def test_a_stream_on_a_wildcard_copies_nothing_and_stores_what_names_a_subject(
    api: Api, stream: str, publisher: NatsClient
) -> None:
    await asyncio.to_thread(lambda: api.create(stream, subject=f"{stream}.*"))
    heard = await publisher.subscribe(f"{stream}.>")
    await publisher.flush()
    await asyncio.to_thread(api.publish, stream, b"names no subject")
    asked: dict[str, Any] = {"subject": f"{stream}.a", "value": b"names one", "ackPolicy": ALL}
    answer = await asyncio.to_thread(lambda: api.call("PublishToSubject", **asked))
    assert (answer.ack.offset, answer.ack.msgSubject) == (1, f"{stream}.a")
    first = await heard.next_msg(timeout=60)
    # The first received one is the second published one.
    assert (first.subject, value_of(first.data)) == (f"{stream}.a", b"names one")
    assert values(await asyncio.to_thread(api.read, stream)) == [b"names no subject", b"names one"]
