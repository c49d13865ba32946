"""Requests and envelopes damaged at every byte and cut at every length: rejected or accepted, never a crash."""

import asyncio
import struct
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc
import nats
import pytest
from bascule import testing
from bascule._liftbridge_pb import message

from tests.names import fresh

from .http2 import Http2
from .process import wait_for
from .raw import Raw, publish_request

AT_ONCE: Final = 16
FLIPS: Final = (0x01, 0x80, 0xFF)
REFUSED: Final = {
    grpc.StatusCode.INTERNAL,  # "grpc: error unmarshalling request", as the original answers
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.UNKNOWN,
}
MAGIC: Final = bytes.fromhex("b90e43b4")


def damaged(valid: bytes) -> Iterator[bytes]:
    """All variants that differ in one byte (three ways), all shorter ones, and some longer ones."""
    for position, byte in enumerate(valid):
        for flip in FLIPS:
            yield valid[:position] + bytes([byte ^ flip]) + valid[position + 1 :]
    for length in range(len(valid)):
        yield valid[:length]
    for tail in (b"\x00", b"\xff" * 10, b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x0b", valid):
        yield valid + tail


def requests(stream: str) -> dict[str, bytes]:
    """One valid request for each method that reads records' bytes, with every field set."""
    headers = {"a": b"1", "größe": b"\x00\xff"}
    return {
        "Publish": publish_request(
            stream, b"value", key=b"key", headers=headers, ackInbox="in.box", correlationId="cid", ackPolicy=1
        ),
        "PublishToSubject": message("PublishToSubjectRequest")(
            key=b"k", value=b"v", subject="nobody.listens", headers=headers,
            ackInbox="in", correlationId="c", ackPolicy=2,
        ).SerializeToString(),
        "Subscribe": message("SubscribeRequest")(
            stream=stream, partition=0, startPosition=1, startOffset=0, stopPosition=1, stopOffset=0,
            startTimestamp=5, stopTimestamp=7, readISRReplica=True, resume=True,
            consumer={"groupId": "", "groupEpoch": 1, "consumerId": "c"},
        ).SerializeToString(),
        "CreateStream": message("CreateStreamRequest")(
            subject="malformed.made", name="malformed-made", group="g", replicationFactor=1, partitions=1,
            retentionMaxBytes={"value": 1 << 20}, retentionMaxAge={"value": 0}, segmentMaxBytes={"value": 1 << 20},
            compactEnabled={"value": False}, minIsr={"value": 1}, optimisticConcurrencyControl={"value": False},
        ).SerializeToString(),
        "FetchMetadata": message("FetchMetadataRequest")(streams=[stream], groups=["g"]).SerializeToString(),
        "FetchPartitionMetadata": message("FetchPartitionMetadataRequest")(
            stream=stream, partition=0
        ).SerializeToString(),
        "DeleteStream": message("DeleteStreamRequest")(name="malformed-never-there").SerializeToString(),
    }  # fmt: skip


@pytest.fixture(scope="module")
def stream(broker: testing.TestBroker) -> str:
    with Raw(broker.address) as raw:
        raw.create_stream("malformed", "malformed")
        assert raw.publish("malformed", b"first") == 0
    return "malformed"


@pytest.mark.parametrize(
    "method",
    [
        "Publish",
        "PublishToSubject",
        "Subscribe",
        "CreateStream",
        "FetchMetadata",
        "FetchPartitionMetadata",
        "DeleteStream",
    ],
)
def test_a_damaged_request_is_rejected_or_valid(raw: Raw, stream: str, method: str) -> None:
    before = raw.read(stream)
    bodies = [body for body in damaged(requests(stream)[method]) if is_cheap(method, body)]
    outcomes = list(answers(raw, method, bodies))
    assert len(outcomes) == len(bodies) > 20
    for body, status, sentence in outcomes:
        if method == "PublishToSubject" and status is grpc.StatusCode.DEADLINE_EXCEEDED:
            continue  # the damaged message asks for an ack, and nobody listens
        assert status is None or status in REFUSED, f"{method} {body.hex()}: {status} {sentence}"
        assert status is None or sentence, f"{method} {body.hex()}: {status} without a sentence"
        assert "panicked" not in sentence
    after = raw.read(stream)
    assert [record.offset for record in after] == list(range(len(after)))
    assert after[: len(before)] == before, "an existing stream has changed"
    stored = sum(status is None for _, status, _ in outcomes) if method == "Publish" else 0
    assert len(after) == len(before) + stored  # accepted requests are applied, rejected ones are not
    assert raw.publish(stream, b"good") == len(after)


def is_cheap(method: str, body: bytes) -> bool:
    """Leaves out damage that is a valid request for something big: hundreds of partitions."""
    if method != "CreateStream":
        return True
    try:
        return message("CreateStreamRequest").FromString(body).partitions <= 4
    except Exception:  # noqa: BLE001 (not a message: intended by the test)
        return True


def answers(raw: Raw, method: str, bodies: Iterable[bytes]) -> Iterator[tuple[bytes, grpc.StatusCode | None, str]]:
    """The status of each request; `None` = accepted."""

    def one(body: bytes) -> tuple[bytes, grpc.StatusCode | None, str]:
        try:
            if method == "Subscribe":
                subscription = raw.subscribe(body)
                next(subscription)
                subscription.cancel()
            else:
                raw.unary(method, body, timeout=0.3 if method == "PublishToSubject" else 10)
        except grpc.RpcError as failure:
            return body, failure.code(), failure.details() or ""
        return body, None, ""

    with ThreadPoolExecutor(AT_ONCE) as threads:
        yield from threads.map(one, bodies)


def test_a_damaged_message_ends_only_its_asynchronous_publish(raw: Raw, stream: str) -> None:
    before = len(raw.read(stream))
    good = requests(stream)["Publish"]

    def one(body: bytes) -> tuple[int, grpc.StatusCode | None]:
        acked = 0
        try:
            for answer in raw.publish_async([good, body, good]):
                response = message("PublishResponse").FromString(answer)
                acked += not response.HasField("asyncError")
        except grpc.RpcError as failure:
            return acked, failure.code()
        return acked, None

    with ThreadPoolExecutor(AT_ONCE) as threads:
        outcomes = list(threads.map(one, damaged(good)))
    assert {status for _, status in outcomes} <= {None, grpc.StatusCode.INTERNAL}
    assert any(status is None for _, status in outcomes)
    assert any(status is grpc.StatusCode.INTERNAL for _, status in outcomes)
    records = raw.read(stream)
    assert [record.offset for record in records] == list(range(len(records)))
    assert len(records) >= before + sum(acked for acked, _ in outcomes)


@pytest.mark.parametrize(
    "frame",
    [
        b"\x00\xff\xff\xff\xff",  # 4 GiB announced
        b"\x01\x00\x00\x00\x01x",  # compressed, with no encoding agreed
        b"\x07\x00\x00\x00\x01x",  # an unknown flag
        b"\x00\x00\x00\x00\x09short",  # cut short
        b"\x00",
        b"",
    ],
    ids=["huge", "compressed", "flag", "cut", "one-byte", "none"],
)
@pytest.mark.parametrize("method", ["Publish", "PublishAsync", "Subscribe", "FetchMetadata"])
def test_a_damaged_frame_is_rejected(
    broker: testing.TestBroker, raw: Raw, stream: str, method: str, frame: bytes
) -> None:
    before = len(raw.read(stream))
    with Http2(broker.address) as connection:
        status = connection.call(f"/proto.API/{method}", frame)
    assert status is not None, "no answer"
    assert not (status == 0 and method in {"Publish", "Subscribe", "FetchMetadata"}), "a broken frame was accepted"
    assert len(raw.read(stream)) == before


def envelopes() -> list[bytes]:
    """A valid Publish envelope, without and with a checksum, damaged everywhere."""
    payload = message("Message")(
        key=b"k", value=b"enveloped", headers={"h": b"1"}, ackInbox="ack.there", correlationId="c", ackPolicy=0
    ).SerializeToString()
    plain = MAGIC + bytes([0, 8, 0, 0]) + payload
    checked = MAGIC + bytes([0, 12, 1, 0]) + struct.pack(">I", crc32c(payload)) + payload
    return [body for valid in (plain, checked) for body in (valid, *damaged(valid))]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


async def test_every_damaged_envelope_is_stored(broker: testing.TestBroker, raw: Raw) -> None:
    enveloped = fresh("enveloped")
    raw.create_stream(enveloped, f"{enveloped}.*")
    bodies = envelopes()
    client = await nats.connect(broker.nats_url)
    for some in in_groups(bodies, 200):
        for body in some:
            await client.publish(f"{enveloped}.x", body)
        await client.flush()
    await client.drain()
    await asyncio.to_thread(wait_for, lambda: len(raw.read(enveloped)) >= len(bodies), 20, "stored all")
    records = raw.read(enveloped)
    assert [record.offset for record in records] == list(range(len(bodies)))
    assert records[0].value == b"enveloped"
    for body, record in zip(bodies, records, strict=True):
        # an invalid envelope is the whole value of a plain message; a valid one loses its header
        assert record.value == body or (body.startswith(MAGIC) and len(record.value) < len(body)), body.hex()
    whole = sum(record.value == body for body, record in zip(bodies, records, strict=True))
    assert len(bodies) // 3 < whole < len(bodies)


async def test_acks_to_impossible_inboxes_are_withheld(broker: testing.TestBroker, raw: Raw) -> None:
    inbox_stream = fresh("inboxes")
    raw.create_stream(inbox_stream)
    client = await nats.connect(broker.nats_url)
    inboxes = ["a b", "a..b", ">", "a.*", "x" * 5_000, f"a\r\nPUB {inbox_stream} 1\r\nx", "\x00", inbox_stream]
    for inbox in inboxes:
        payload = message("Message")(value=b"v", ackInbox=inbox, offset=-1).SerializeToString()
        await client.publish(inbox_stream, MAGIC + bytes([0, 8, 0, 0]) + payload)
    await client.flush()
    # the last inbox is the stream's own subject: its ack is stored once as a plain message, because acks are not acked
    await asyncio.to_thread(wait_for, lambda: len(raw.read(inbox_stream)) >= len(inboxes) + 1, 10, "stored")
    await asyncio.sleep(0.2)  # further messages would arrive now
    assert len(raw.read(inbox_stream)) == len(inboxes) + 1
    assert "maximum control line" not in broker.log
    await client.close()


def in_groups(items: list[bytes], size: int) -> Iterator[tuple[bytes, ...]]:
    for start in range(0, len(items), size):
        yield tuple(items[start : start + size])
