"""gufo-liftbridge 0.2.0, unmodified: cursors, resuming, reading from replicas, and all settings that it sends."""

import asyncio
from collections.abc import Iterator

import pytest
from bascule.testing import TestBroker, broker
from gufo.liftbridge.client import LiftbridgeClient
from gufo.liftbridge.types import AckPolicy, StartPosition

from tests.conformance.api import Api
from tests.conformance.test_gufo_liftbridge import fill, take


@pytest.fixture(scope="module")
def keeping() -> Iterator[TestBroker]:
    """A broker with cursors."""
    with broker(settings={"cursors.partitions": 2}) as started:
        yield started


async def test_a_cursor_is_where_a_reader_continues(keeping: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([keeping.address]) as client:
        await client.wait_for_cursors()
        await client.create_stream(stream, wait_for_stream=True)
        assert await client.get_cursor(stream, 0, "reader") == -1
        await fill(client, stream, 10)
        await client.set_cursor(stream, 0, "reader", 4)
        assert await client.get_cursor(stream, 0, "reader") == 5, "this client stores the next offset to read"
        found = await take(client.subscribe(stream, start_position=StartPosition.RESUME, cursor_id="reader"), 3)
        assert [message.offset for message in found] == [5, 6, 7]


async def test_resuming_and_reading_from_replicas(keeping: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([keeping.address]) as client:
        await client.create_stream(stream, wait_for_stream=True)
        await fill(client, stream, 3)
        with Api(keeping.address) as api:
            api.call("PauseStream", name=stream)
        found = await take(client.subscribe(stream, start_position=StartPosition.EARLIEST, resume=True), 3)
        assert [message.offset for message in found] == [0, 1, 2]
        found = await take(client.subscribe(stream, start_position=StartPosition.EARLIEST, allow_isr=True), 3)
        assert [message.value for message in found] == [b"0", b"1", b"2"]


async def test_every_setting_it_sends_is_accepted(keeping: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([keeping.address]) as client:
        await client.create_stream(
            stream,
            subject=f"sub.{stream}",
            group="workers",
            replication_factor=1,
            minisr=1,
            partitions=2,
            retention_max_age=86_400,
            retention_max_bytes=1 << 30,
            segment_max_age=3_600,
            segment_max_bytes=1 << 20,
            auto_pause_time=300,
            auto_pause_disable_if_subscribers=True,
            wait_for_stream=True,
        )
        await client.publish(b"x", stream=stream, partition=1, ack_policy=AckPolicy.ALL)
        partition = await client.get_partition_metadata(stream, 1)
        assert partition.newest_offset == 0
        request = client.get_publish_request(b"y", stream=stream, partition=1, correlation_id="c", ack_inbox="inbox")
        async with asyncio.timeout(60):
            acks = [ack async for ack in client.publish_bulk([request])]
        assert len(acks) == 1
