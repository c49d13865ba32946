"""Further services: health, reflection, queue groups and partition subjects on NATS (liftbridge §4.1, §4.2, §9.5)."""

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import nats
import pytest
from bascule.testing import TestBroker

from tests.conformance.api import Api, values
from tests.waiting import until

SERVING = b"\x08\x01"


@pytest.fixture
def channel(running: TestBroker) -> Iterator[Any]:
    with grpc.insecure_channel(running.address) as it:
        yield it


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


def text_field(number: int, text: bytes) -> bytes:
    return bytes([number << 3 | 2, len(text)]) + text


@pytest.mark.parametrize(
    "service", [b"", b"proto.API", b"bascule.admin", b"bascule.admin.v1.Admin", b"arrow.flight.protocol.FlightService"]
)
def test_health_of_the_broker_and_of_each_service(channel: Any, service: bytes) -> None:
    check = channel.unary_unary("/grpc.health.v1.Health/Check")
    assert check(text_field(1, service), timeout=60) == SERVING
    watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(text_field(1, service), timeout=60)
    assert next(watch) == SERVING
    watch.cancel()
    with pytest.raises(grpc.RpcError) as unknown:
        check(text_field(1, b"nothing"), timeout=60)
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_reflection_describes_the_api(channel: Any, version: str) -> None:
    ask = channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo")
    names = (b"proto.API", b"bascule.admin.v1.Admin")
    asked = [text_field(7, b""), *(text_field(4, name) for name in names)]
    services, liftbridge, admin = list(ask(iter(asked), timeout=60))
    assert all(name in services for name in names)
    assert b"liftbridge.proto" in liftbridge
    assert b"FetchConsumerGroupAssignments" in liftbridge
    assert b"bascule_admin_v1.proto" in admin
    assert b"TrimPartitionRequest" in admin


async def publish(running: TestBroker, messages: list[tuple[str, bytes]]) -> None:
    client = await nats.connect(running.nats_url)
    for subject, value in messages:
        await client.publish(subject, value)
    await client.flush()
    await client.close()


def test_a_partition_listens_on_the_subject_with_its_number(running: TestBroker, api: Api, stream: str) -> None:
    api.create(stream, partitions=3)
    asyncio.run(publish(running, [(stream, b"zero"), (f"{stream}.2", b"two"), (f"{stream}.9", b"nobody")]))
    until(lambda: api.partition(stream, 2).newestOffset == 0 and api.partition(stream, 0).newestOffset == 0)
    assert values(api.read(stream, partition=0)) == [b"zero"]
    assert values(api.read(stream, partition=2)) == [b"two"]
    assert api.partition(stream, 1).newestOffset == -1


def test_a_queue_group_shares_the_messages_of_a_subject(running: TestBroker, api: Api, stream: str) -> None:
    subject = f"sub.{stream}"
    for name, group in (("a", "workers"), ("b", "workers"), ("c", "others"), ("d", "")):
        api.create(f"{stream}-{name}", subject=subject, group=group)
    sent = [b"%d" % index for index in range(200)]
    asyncio.run(publish(running, [(subject, value) for value in sent]))

    def count(name: str) -> int:
        return api.partition(f"{stream}-{name}").newestOffset + 1

    until(lambda: count("c") == count("d") == 200)
    until(lambda: count("a") + count("b") == 200)
    assert min(count("a"), count("b")) > 0
    shared = [*values(api.read(f"{stream}-a")), *values(api.read(f"{stream}-b"))]
    assert sorted(shared) == sorted(sent)
    assert values(api.read(f"{stream}-c")) == values(api.read(f"{stream}-d")) == sent
