"""Streams of calls, invalid bodies and messages from NATS, with arbitrary values: the broker stays up, and
what it says of itself agrees."""

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import nats
import pytest
from bascule._liftbridge_pb import message, methods
from bascule.testing import TestBroker, broker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance import envelopes
from tests.conformance.api import EARLIEST, LEADER, STOP_LATEST, Api, Failed
from tests.conformance.test_any_values import fields_of

QUIET: dict[str, Any] = {"deadline": None, "suppress_health_check": tuple(HealthCheck), "derandomize": True}
STREAMS = st.sampled_from(["s", "t", "gone", "__cursors", "__activity"])
REFUSALS = {
    "INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED",
    "ALREADY_EXISTS", "UNKNOWN",
}  # fmt: skip


@pytest.fixture(scope="module")
def tested() -> Iterator[TestBroker]:
    with broker(settings={"cursors.partitions": 2, "activity.enabled": True}) as started:
        with Api(started.address) as api:
            api.create("s", partitions=2)
            api.create("t", optimisticConcurrencyControl={"value": True})
        yield started
        with Api(started.address) as api:
            check(api)


def check(api: Api) -> None:
    """Check that metadata, ends and records of the broker are consistent."""
    streams = api.call("FetchMetadata").streamMetadata
    assert {"s", "t", "__cursors", "__activity"} <= {shown.name for shown in streams}
    for shown in streams:
        assert shown.partitions
        assert sorted(shown.partitions) == list(range(len(shown.partitions)))
        for number, partition in shown.partitions.items():
            if not partition.paused:
                check_partition(api, shown.name, number)


def check_partition(api: Api, name: str, number: int) -> None:
    found = api.partition(name, number)
    assert -1 <= found.highWatermark <= found.newestOffset
    if found.newestOffset < 0:
        return
    fields = {"partition": number, "startPosition": EARLIEST, "stopPosition": STOP_LATEST}
    records, end = api.subscribe(name, **fields).rest()
    assert str(end) == "RESOURCE_EXHAUSTED Stop offset reached"
    offsets = [record.offset for record in records]
    assert offsets == sorted(set(offsets))
    assert offsets[-1] >= found.newestOffset
    down, _ = api.subscribe(name, partition=number, startPosition=1, startOffset=offsets[-1], reverse=True).rest()
    assert down == records[::-1]


def publish_requests() -> st.SearchStrategy[list[dict[str, Any]]]:
    """A stream of requests, most of them for existing streams; `producerBatch` has a separate test."""
    fields = fields_of("PublishRequest").map(lambda given: {k: v for k, v in given.items() if k != "producerBatch"})
    one = st.tuples(fields, STREAMS, st.integers(0, 1), st.booleans()).map(
        lambda parts: {**parts[0], "stream": parts[1], "partition": parts[2]} if parts[3] else parts[0]
    )
    return st.lists(one, max_size=20)


def test_arbitrary_streams_of_publishes_are_answered_one_by_one(tested: TestBroker) -> None:
    @settings(max_examples=60, **QUIET)
    @given(publish_requests())
    def drive(requests: list[dict[str, Any]]) -> None:
        numbered = [{**item, "correlationId": str(index)} for index, item in enumerate(requests)]
        answers = api.publish_async(numbered)
        answered = [answer.correlationId for answer in answers]
        assert len(set(answered)) == len(answered), "answered twice"
        due = {str(index) for index, item in enumerate(numbered) if item.get("ackPolicy", LEADER) in {0, 1}}
        assert due <= set(answered)
        for answer in answers:
            assert answer.HasField("ack")

    with Api(tested.address) as api:
        drive()
        check(api)


def test_arbitrary_batches_of_producers_end_their_call_or_are_answered(tested: TestBroker) -> None:
    """A batch that is not valid ends the call: the next requests may belong to it."""

    @settings(max_examples=60, **QUIET)
    @given(publish_requests(), st.binary(min_size=1, max_size=24), st.integers(0, 20))
    def drive(requests: list[dict[str, Any]], batch: bytes, at: int) -> None:
        first = {"stream": "s", "correlationId": "batch", "producerBatch": batch}
        try:
            answers = api.publish_async([*requests[:at], first, *requests[at:]])
        except Failed as refusal:
            assert refusal.code.name in {"INVALID_ARGUMENT", "FAILED_PRECONDITION"}  # noqa: PT017
            return
        assert "batch" in [answer.correlationId for answer in answers]

    with Api(tested.address) as api:
        drive()
        check(api)


def subscriptions() -> st.SearchStrategy[dict[str, Any]]:
    """Requests with arbitrary fields, most of which are rejected, and as many valid ones."""
    small = st.integers(-1, 3)
    numbers = {"startOffset": small, "stopPosition": st.integers(0, 3), "stopOffset": small, "partition": st.just(0)}
    plain = st.fixed_dictionaries({"startPosition": st.integers(0, 4), "reverse": st.booleans()}, optional=numbers)
    return st.one_of(fields_of("SubscribeRequest"), plain)


def test_arbitrary_subscriptions_give_ascending_offsets_and_an_end(tested: TestBroker) -> None:
    delivered: set[tuple[bool, bool]] = set()  # of each read: whether it was in reverse, whether a record came

    @settings(max_examples=80, **QUIET)
    @given(subscriptions(), st.one_of(st.none(), STREAMS))
    def drive(fields: dict[str, Any], stream: str | None) -> None:
        asked: dict[str, Any] = {"startPosition": EARLIEST, "stream": stream or "", **fields}
        if stream is not None:
            asked["stream"] = stream
        try:
            reading = api.subscribe(timeout=0.5, **asked)
        except Failed as refusal:
            assert refusal.code.name in REFUSALS  # noqa: PT017 - both outcomes are valid
            return
        found, end = reading.rest()
        offsets = [item.offset for item in found]
        reverse = bool(fields.get("reverse"))
        assert offsets == sorted(set(offsets), reverse=reverse)
        delivered.add((reverse, bool(offsets)))
        assert end is None or end.code.name in REFUSALS

    with Api(tested.address) as api:
        for name in ("s", "t"):
            api.publish(name, b"x", expectedOffset=-1)
        drive()
        assert {(False, True), (True, True)} <= delivered
        check(api)


@pytest.mark.parametrize("method", sorted(methods()))
def test_a_body_that_is_not_a_message_is_refused(tested: TestBroker, method: str) -> None:
    channel = grpc.insecure_channel(tested.address)
    path = f"/proto.API/{method}"

    @settings(max_examples=40, **QUIET)
    @given(st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=3))
    def drive(bodies: list[bytes]) -> None:
        kinds = {"Subscribe": channel.unary_stream, "PublishAsync": channel.stream_stream}
        call = kinds.get(method, channel.unary_unary)(path)
        request: Any = iter(bodies) if method == "PublishAsync" else bodies[0]
        try:
            answer = call(request, timeout=1.0)
            list(answer) if method in kinds else answer
        except grpc.RpcError as failure:
            assert failure.code().name in REFUSALS  # noqa: PT017  # pyright: ignore[reportAttributeAccessIssue]

    with channel:
        drive()


def test_arbitrary_messages_from_nats_are_stored_as_they_are(tested: TestBroker) -> None:
    """Valid envelopes, damaged envelopes, and other bytes."""
    sent: list[bytes] = []
    damage = st.tuples(st.integers(0, 60), st.integers(0, 255))
    cut = st.one_of(st.none(), st.integers(0, 40))

    @settings(max_examples=150, **QUIET)
    @given(fields_of("Message"), st.booleans(), st.one_of(st.none(), damage), cut, st.binary(max_size=60))
    def gather(fields: dict[str, Any], checksum: bool, changed: Any, end: int | None, plain: bytes) -> None:
        envelope = bytearray(envelopes.publish(checksum=checksum, **{**fields, "ackInbox": "acks.any"}))
        if changed is not None and changed[0] < len(envelope):
            envelope[changed[0]] = changed[1]
        sent.extend((bytes(envelope[:end]), plain))

    async def publish() -> None:
        client = await nats.connect(tested.nats_url)
        for data in sent:
            await client.publish("any.subject", data)
        await client.publish("any.subject", b"the last one")
        await client.flush()
        await client.close()

    gather()
    with Api(tested.address) as api:
        api.create("any", subject="any.*")
        asyncio.run(publish())
        found = api.subscribe("any").take(len(sent) + 1)
        assert [item.offset for item in found] == list(range(len(sent) + 1))
        for data, item in zip(sent, found, strict=False):
            assert item.value in {data, value_of(data)}, "the value of an envelope, or the whole payload"
        assert found[-1].value == b"the last one"
        check(api)


def value_of(envelope: bytes) -> bytes | None:
    """The value of a Publish envelope, if its payload can be decoded."""
    if len(envelope) < 8 or envelope[5] > len(envelope):
        return None
    try:
        payload = message("Message").FromString(envelope[envelope[5] :])
    except Exception:  # noqa: BLE001 - protobuf has several
        return None
    value: bytes = payload.value
    return value
