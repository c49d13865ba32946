"""Payloads at the limit are accepted, larger ones rejected, on every protocol; the broker's memory stays bounded."""

import asyncio
import threading
from collections.abc import Generator
from typing import Final

import grpc
import nats
import nats.errors
import pyarrow as pa
import pytest
from bascule import testing
from bascule._liftbridge_pb import message
from bascule.errors import BrokerError
from pyarrow import flight

from tests.names import fresh

from .process import check_refusal, run, wait_for
from .raw import EARLIEST, Raw, publish_request, refusal, resident_bytes

STREAM: Final = "limits"
RECORD: Final = 64 << 10
MESSAGE: Final = 1 << 20
MIB: Final = 1 << 20


@pytest.fixture(scope="module")
def broker() -> Generator[testing.TestBroker]:
    """A broker with small limits."""
    settings = {"streams.max_record_bytes": RECORD, "limits.message_bytes": MESSAGE, "nats.max_payload": 256 << 10}
    with testing.broker(settings=settings) as running:
        with Raw(running.address) as raw:
            raw.create_stream(STREAM)
        yield running
        assert "panicked" not in running.log


def test_a_record_over_the_limit_is_rejected_and_one_below_it_is_stored(raw: Raw) -> None:
    before = len(raw.read(STREAM))
    assert raw.publish(STREAM, b"x" * (RECORD - 200)) == before
    code, sentence = refusal(lambda: raw.publish(STREAM, b"x" * (RECORD + 1)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert sentence == "message exceeds max replication size"
    assert len(raw.read(STREAM)) == before + 1


def test_a_message_over_the_transports_limit_is_rejected(raw: Raw) -> None:
    code, sentence = refusal(lambda: raw.publish(STREAM, b"x" * (MESSAGE + 1)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert str(MESSAGE) in sentence


def test_an_asynchronous_publish_continues_after_a_record_that_is_too_large(raw: Raw) -> None:
    bodies = [
        publish_request(STREAM, b"x" * size, correlationId=str(size), ackPolicy=1) for size in (10, RECORD + 1, 20)
    ]
    answers = [message("PublishResponse").FromString(body) for body in raw.publish_async(bodies)]
    failed = {answer.correlationId: answer.asyncError.message for answer in answers}
    assert failed == {"10": "", str(RECORD + 1): "message exceeds max replication size", "20": ""}


def test_the_sdk_and_the_command_report_too_large(broker: testing.TestBroker) -> None:
    sentence = rf'a record of 655\d\d bytes, .* stream "{STREAM}", which accepts {RECORD}: .*--max-record-bytes'
    with broker.connect() as client:
        with pytest.raises(BrokerError, match=sentence) as refused:
            client.publish(STREAM, b"x" * (RECORD + 1))
        assert refused.value.code == "too_large"
        with pytest.raises(BrokerError, match=sentence) as refused:
            client.publish_many(STREAM, [b"", b"x" * (RECORD + 1), b"x" * (RECORD + 1000)])
        assert refused.value.details["index"] == 1
        for records in (1, 2):
            with pytest.raises(
                BrokerError, match=rf"the broker accepts {MESSAGE} \(its setting limits\.message_bytes\)"
            ):
                client.publish_many(STREAM, [b"x" * MESSAGE] * records)
    check_refusal(run("produce", STREAM, "x" * (RECORD + 1), "--url", broker.url), 2, "--max-record-bytes")


def test_flight_rejects_a_row_that_is_too_large(broker: testing.TestBroker, raw: Raw) -> None:
    before = len(raw.read(STREAM))
    table = pa.table({"value": pa.array([b"x" * (RECORD + 1)], pa.binary())})
    with flight.FlightClient(f"grpc://{broker.address}") as client:
        writer, _ = client.do_put(flight.FlightDescriptor.for_path(STREAM), table.schema)
        with pytest.raises((flight.FlightError, pa.ArrowInvalid)) as refused:  # noqa: PT012 (whichever is raised first)
            writer.write_table(table)
            writer.done_writing()
            writer.close()
    assert str(RECORD) in str(refused.value)
    assert "[too_large]" in str(refused.value)
    assert len(raw.read(STREAM)) == before


async def test_nats_messages_over_the_streams_limit_are_rejected_with_an_ack(
    broker: testing.TestBroker, raw: Raw
) -> None:
    client = await nats.connect(broker.nats_url)
    answers = await client.subscribe("limit.acks")
    payload = message("Message")(value=b"x" * (RECORD + 1), ackInbox="limit.acks").SerializeToString()
    await client.publish(STREAM, bytes.fromhex("b90e43b400080000") + payload)
    ack = message("Ack").FromString((await answers.next_msg(timeout=10)).data[8:])
    assert ack.ackError == 3  # TOO_LARGE
    with pytest.raises(nats.errors.MaxPayloadError):
        await client.publish(STREAM, b"x" * (300 << 10))
    before = len(raw.read(STREAM))
    await client.publish(STREAM, b"x" * (RECORD + 1))
    await client.publish(STREAM, b"small")
    await client.flush()
    await asyncio.to_thread(wait_for, lambda: len(raw.read(STREAM)) > before, 10, "stored")
    assert [record.value for record in raw.read(STREAM)[before:]] == [b"small"]
    await client.close()


@pytest.mark.slow
def test_a_subscriber_that_does_not_read_uses_only_its_limit(broker: testing.TestBroker, raw: Raw) -> None:
    unread = fresh("unread")
    raw.create_stream(unread)
    value = b"x" * 50_000
    request = publish_request(unread, value, ackPolicy=1)

    def publish(count: int) -> None:
        answers = [message("PublishResponse").FromString(body) for body in raw.publish_async([request] * count, 60)]
        assert len(answers) == count
        assert not any(answer.HasField("asyncError") for answer in answers)

    publish(400)  # 20 MB: afterwards all buffers for publishes are allocated
    subscribe = message("SubscribeRequest")(stream=unread, startPosition=EARLIEST).SerializeToString()
    with Raw(broker.address) as other, Raw(broker.address) as third:
        slow = [channel.subscribe(subscribe, timeout=120) for channel in (raw, other, third)]
        for subscription in slow:
            next(subscription)  # it is open, and never read again
        before = resident_bytes(broker.pid)
        publish(4_000)  # 200 MB
        grown = resident_bytes(broker.pid) - before
        print(f"3 slow subscribers, 200 MB published: the broker grew by {grown / MIB:.1f} MiB")
        assert grown < 40 * MIB
        for _ in range(100):  # and it can still be read
            assert message("Message").FromString(next(slow[0])).value == value
        for subscription in slow:
            subscription.cancel()


def test_many_publishers_of_large_records_use_only_the_limit(broker: testing.TestBroker) -> None:
    """32 concurrent calls with large records: records are stored or rejected, none is lost, and memory is bounded."""
    before = resident_bytes(broker.pid)
    acked: list[int] = []

    def publish() -> None:
        with Raw(broker.address) as raw:
            bodies = [publish_request(STREAM, b"y" * (RECORD - 200), ackPolicy=1)] * 50
            answers = [message("PublishResponse").FromString(body) for body in raw.publish_async(bodies, 60)]
            assert len(answers) == 50
            acked.append(sum(not answer.HasField("asyncError") for answer in answers))

    threads = [threading.Thread(target=publish) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(acked) == 32
    assert sum(acked) > 0
    assert resident_bytes(broker.pid) - before < 250 * MIB
