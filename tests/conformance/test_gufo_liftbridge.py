"""gufo-liftbridge 0.2.0, unmodified, against a real broker: common operations."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterable
from importlib.metadata import version
from typing import Any

import pytest
from bascule.testing import TestBroker
from gufo.liftbridge.client import LiftbridgeClient
from gufo.liftbridge.error import ErrorAlreadyExists, ErrorNotFound
from gufo.liftbridge.types import AckPolicy, Message, StartPosition


async def take(messages: AsyncIterable[Message], count: int) -> list[Message]:
    """The first `count` messages."""
    found: list[Message] = []
    async with asyncio.timeout(60):
        async for message in messages:
            found.append(message)
            if len(found) == count:
                break
    return found


async def fill(client: LiftbridgeClient, stream: str, count: int) -> list[Any]:
    """Publish `0` to `count - 1` in bulk; returns the acks."""
    requests = (client.get_publish_request(b"%d" % number, stream=stream) for number in range(count))
    async with asyncio.timeout(60):
        return [ack async for ack in client.publish_bulk(requests)]


def test_the_client_is_unmodified() -> None:
    assert version("gufo-liftbridge") == "0.2.0"


async def test_create_shows_in_metadata(running: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([running.address]) as client:
        await client.create_stream(stream, subject=f"{stream}.*", partitions=3, wait_for_stream=True)
        metadata = await client.get_metadata(stream)
        host, _, port = running.address.rpartition(":")
        assert [(broker.host, broker.port) for broker in metadata.brokers] == [(host, int(port))]
        (found,) = metadata.metadata
        assert (found.name, found.subject, sorted(found.partitions)) == (stream, f"{stream}.*", [0, 1, 2])
        assert all(partition.leader == metadata.brokers[0].id for partition in found.partitions.values())
        assert all(partition.isr == [metadata.brokers[0].id] for partition in found.partitions.values())


async def test_a_second_create_fails(running: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([running.address]) as client:
        await client.create_stream(stream, wait_for_stream=True)
        with pytest.raises(ErrorAlreadyExists):
            await client.create_stream(stream)


async def test_a_record_is_read_with_key_headers_and_offset(running: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([running.address]) as client:
        await client.create_stream(stream, subject=f"subject.{stream}", wait_for_stream=True)
        before = time.time()
        for number in range(5):
            await client.publish(
                b"value %d" % number,
                stream=stream,
                key=b"key %d" % number,
                headers={"number": b"%d" % number},
                ack_policy=AckPolicy.ALL if number % 2 else AckPolicy.LEADER,
            )
        found = await take(client.subscribe(stream, start_position=StartPosition.EARLIEST), 5)
    assert [message.offset for message in found] == [0, 1, 2, 3, 4]
    for number, message in enumerate(found):
        assert (message.value, message.key) == (b"value %d" % number, b"key %d" % number)
        assert message.headers is not None
        assert message.headers["number"] == b"%d" % number
        assert message.headers["subject"] == f"subject.{stream}".encode()
        assert message.headers["reply"] == b""
        assert before - 1 < message.timestamp / 1e9 < time.time() + 1


async def test_bulk_publishes_are_all_acknowledged_in_order(running: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([running.address]) as client:
        await client.create_stream(stream, wait_for_stream=True)
        acks = await fill(client, stream, 2000)
        assert [ack.ack.offset for ack in acks] == list(range(2000))
        assert {ack.ack.stream for ack in acks} == {stream}
        partition = await client.get_partition_metadata(stream, 0)
        assert (partition.high_watermark, partition.newest_offset) == (1999, 1999)
        found = await take(client.subscribe(stream, start_position=StartPosition.EARLIEST), 2000)
    assert [message.value for message in found] == [b"%d" % number for number in range(2000)]


async def test_every_start_position(running: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([running.address]) as client:
        await client.create_stream(stream, wait_for_stream=True)
        await fill(client, stream, 10)
        everything = await take(client.subscribe(stream, start_position=StartPosition.EARLIEST), 10)
        (latest,) = await take(client.subscribe(stream, start_position=StartPosition.LATEST), 1)
        assert latest.offset == 9
        (at_offset,) = await take(client.subscribe(stream, start_offset=4), 1)
        assert at_offset.offset == 4
        time_of_six = everything[6].timestamp
        # a microsecond earlier: the client uses float seconds; records of one group have the same time
        by_time = await take(client.subscribe(stream, start_timestamp=(time_of_six - 1000) / 1e9), 1)
        assert time_of_six - 2000 <= by_time[0].timestamp <= time_of_six


async def test_new_only_and_offsets_after_the_end_begin_with_the_next_message(running: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([running.address]) as client:
        await client.create_stream(stream, wait_for_stream=True)
        await fill(client, stream, 5)
        waiting = [
            asyncio.create_task(take(client.subscribe(stream, start_position=StartPosition.NEW_ONLY), 1)),
            asyncio.create_task(take(client.subscribe(stream, start_offset=100), 1)),
        ]
        # the client does not report an open subscription, so publish until both have received a record
        for number in itertools.count():
            if all(task.done() for task in waiting):
                break
            await client.publish(b"new %d" % number, stream=stream)
            await asyncio.sleep(0.02)
        found = [task.result()[0] for task in waiting]
    assert all(message.offset >= 5 and message.value.startswith(b"new") for message in found)


async def test_partitions_are_separate_logs(running: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([running.address]) as client:
        await client.create_stream(stream, partitions=2, wait_for_stream=True)
        for partition in (0, 1, 1):
            await client.publish(b"in %d" % partition, stream=stream, partition=partition)
        found = await take(client.subscribe(stream, partition=1, start_position=StartPosition.EARLIEST), 2)
    assert [(message.offset, message.partition, message.value) for message in found] == [
        (0, 1, b"in 1"),
        (1, 1, b"in 1"),
    ]


async def test_a_deleted_streams_name_can_be_used_again(running: TestBroker, stream: str) -> None:
    async with LiftbridgeClient([running.address]) as client:
        await client.create_stream(stream, wait_for_stream=True)
        await fill(client, stream, 3)
        await client.delete_stream(stream)
        with pytest.raises(ErrorNotFound):
            await client.delete_stream(stream)
        await client.create_stream(stream, wait_for_stream=True)
        (ack,) = await fill(client, stream, 1)
        assert ack.ack.offset == 0


async def test_values_compressed_by_the_client_are_not_changed(running: TestBroker, stream: str) -> None:
    value = b"again and again " * 500
    async with LiftbridgeClient([running.address], compression_method="zlib", compression_threshold=100) as client:
        await client.create_stream(stream, wait_for_stream=True)
        await client.publish(value, stream=stream, auto_compress=True)
        (found,) = await take(client.subscribe(stream, start_position=StartPosition.EARLIEST), 1)
    assert found.value == value
