"""Our SDK in a cluster: any broker will do, and the leader may be lost."""

import asyncio
from pathlib import Path

from tests.integration.cluster.brokers import NAMES, cluster, until
from tests.integration.cluster.test_failover import led_in_sync
from tests.integration.cluster.test_replicate import created

STREAM = "orders"


async def test_every_broker_takes_records_and_shows_the_leaders(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        await created(brokers, STREAM)
        for place, name in enumerate(NAMES):
            async with brokers.client(name) as client:
                receipt = await client.publish(STREAM, name.encode(), ack="all")
                assert receipt.offset == place + 1
                reading = client.subscribe(STREAM, start="earliest", stop="latest")
                found = [record.value async for record in reading.records()]
                assert found == [b"first", *(other.encode() for other in NAMES[: place + 1])]


async def test_a_subscription_continues_at_the_next_leader_without_a_gap_and_without_a_repetition(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as brokers:
        await created(brokers, STREAM)
        leader = await led_in_sync(brokers)
        others = [name for name in NAMES if name != leader]
        read: list[tuple[int, bytes | None]] = []
        async with (
            brokers.client(leader, *others, timeout=60) as reader,
            brokers.client(leader, *others, timeout=60) as writer,
        ):

            async def take() -> None:
                async for record in reader.subscribe(STREAM, start="earliest").records():
                    read.append((record.offset, record.value))  # noqa: PERF401 - it is read meanwhile

            taking = asyncio.create_task(take())
            written: dict[int, bytes] = {}

            async def write(count: int) -> None:
                for _ in range(count):
                    value = b"%d" % len(written)
                    written[(await writer.publish(STREAM, value, ack="all")).offset] = value

            async def is_read() -> bool:
                return taking.done() or len(read) > len(written)

            await write(50)
            await until(is_read)
            await brokers.kill(leader)
            await write(50)
            await until(is_read)
            taking.cancel()
        assert read == [(0, b"first"), *sorted(written.items())]


async def test_a_client_that_was_given_one_broker_asks_the_others_when_that_is_lost(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        await created(brokers, STREAM)
        leader = await led_in_sync(brokers)
        asked = next(name for name in NAMES if name != leader)
        async with brokers.client(asked, timeout=60) as client:

            async def is_read() -> bool:
                reading = client.subscribe(STREAM, start="earliest", stop="latest")
                return [record.value async for record in reading.records()] == [b"first"]

            await until(is_read)
            await brokers.kill(asked)
            await client.create_stream("payments")
            assert (await client.publish(STREAM, b"after", ack="all")).offset == 1
