"""Stored positions and consumer groups survive the loss of the broker that serves them."""

import asyncio
from pathlib import Path

import bascule
import grpc.aio

from tests.integration.cluster.brokers import NAMES, Brokers, cluster, until

CURSORS = "__cursors"
SETTINGS = {"cursors__partitions": 2, "groups__consumer_timeout_ms": 3000}


async def leaders(brokers: Brokers, name: str, stream: str) -> list[str]:
    """The leader of each partition, once all replicas are in sync; none before."""
    answer = await brokers.call(name, "FetchMetadata", streams=[stream])
    (found,) = answer.streamMetadata
    partitions = [found.partitions[number] for number in sorted(found.partitions)]
    if not partitions or any(set(item.isr) != set(NAMES) for item in partitions):
        return []
    return [item.leader for item in partitions]


async def ready(brokers: Brokers, *streams: str) -> None:
    """Wait until each broker knows all replicas of these streams as in sync."""
    for name in brokers.running:
        for stream in streams:

            async def is_ready(name: str = name, stream: str = stream) -> bool:
                try:
                    return bool(await leaders(brokers, name, stream))
                except grpc.aio.AioRpcError as failure:
                    if failure.code() is not grpc.StatusCode.NOT_FOUND:
                        raise
                    return False

            await until(is_ready)


async def test_a_position_that_was_stored_is_found_after_the_loss_of_its_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path, **SETTINGS) as brokers:
        await brokers.created("b1", "orders", factor=3)
        await ready(brokers, CURSORS, "orders")
        lost = (await leaders(brokers, "b1", CURSORS))[0]
        others = [name for name in NAMES if name != lost]
        async with brokers.client(others[0], timeout=30) as client:
            names = [f"reader-{number}" for number in range(20)]
            for offset in range(5):
                for name in names:
                    await client.set_cursor(name, "orders", offset)
            stored = dict.fromkeys(names, 4)

            async def store() -> None:
                """What is acknowledged while the broker dies counts."""
                for offset in range(5, 40):
                    for name in names:
                        await client.set_cursor(name, "orders", offset)
                        stored[name] = offset

            storing = asyncio.create_task(store())
            await asyncio.sleep(0.3)
            await brokers.kill(lost)
            await storing
        async with brokers.client(others[1], timeout=30) as client:
            assert {name: await client.fetch_cursor(name, "orders") for name in names} == stored
        assert set(stored.values()) == {39}


async def test_a_group_reads_on_after_the_loss_of_its_coordinator(tmp_path: Path) -> None:
    async with cluster(tmp_path, **SETTINGS) as brokers:
        await brokers.created("b1", "orders", factor=3, partitions=3)
        await ready(brokers, CURSORS, "orders")
        read: list[bytes | None] = []

        async def consume(client: bascule.AsyncClient, name: str) -> None:
            async with client.consumer("billing", "orders", consumer=name, commit_interval=0.2) as consumer:
                async for batch in consumer:
                    read.extend(record.value for record in batch)

        async def coordinator(name: str) -> str:
            async with brokers.client(name, timeout=30) as client:
                return (await client.get_group("billing")).coordinator

        async with (
            brokers.client("b1", timeout=30) as one,
            brokers.client("b2", timeout=30) as two,
            brokers.client("b3", timeout=30) as three,
        ):
            clients = {"b1": one, "b2": two, "b3": three}
            consuming = {name: asyncio.create_task(consume(clients[name], f"at-{name}")) for name in NAMES}
            sent = [b"%d" % number for number in range(60)]
            await one.publish_many("orders", sent[:30], partitions=[number % 3 for number in range(30)], ack="all")

            async def is_read(count: int) -> bool:
                for task in consuming.values():
                    if task.done():
                        task.result()
                return set(read) == set(sent[:count])

            await until(lambda: is_read(30))
            lost = await coordinator("b1")
            consuming.pop(lost).cancel()
            await brokers.kill(lost)
            left = clients[next(iter(consuming))]
            await left.publish_many("orders", sent[30:], partitions=[number % 3 for number in range(30)], ack="all")
            await until(lambda: is_read(60))
            assert await coordinator(next(iter(consuming))) != lost
            assert not any(task.done() for task in consuming.values())
            for task in consuming.values():
                task.cancel()
            await asyncio.gather(*consuming.values(), return_exceptions=True)
