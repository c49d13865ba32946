"""Three brokers agree on the metadata: whatever is created on one is known to all, and outlives any one of them."""

import shutil
import signal
from pathlib import Path

import grpc
import grpc.aio
import pytest
from bascule.errors import StateError

from tests.integration.cluster.brokers import NAMES, Brokers, cluster, until
from tests.integration.server.process import Process


async def refusal(life: Process) -> str:
    """What a broker that could not start said last."""
    await life.end(signal.SIGCONT)
    return life.log_file.read_text().splitlines()[-1]


async def test_a_stream_created_on_one_broker_is_known_to_three_and_survives_the_controller(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        await brokers.created("b2", "first")
        await brokers.seen("first")

        controller = await brokers.settled()
        left = [name for name in NAMES if name != controller]
        gone = f'broker "{controller}" at {brokers.peers[controller]} is not connected'
        before = {name: brokers.heard(name, gone) for name in left}
        await brokers.kill(controller)
        for name in left:
            await brokers.said(name, gone, before[name])
        leader = await brokers.created(left[0], "second")
        assert leader in left, "a broker that is dead takes no new partition"
        await brokers.seen("second")
        assert await brokers.settled() in left

        await brokers.start(controller)
        await brokers.seen("second")
        await brokers.created(controller, "third")
        await brokers.seen("third")


async def test_every_broker_restarts_with_what_was_created(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        for number, name in enumerate(NAMES):
            await brokers.created(name, f"before-{number}")
            await brokers.running.pop(name).end(signal.SIGTERM)
            await brokers.start(name)
            await brokers.created(name, f"after-{number}")
        for name in NAMES:
            await brokers.seen("after-2")
            assert len(await brokers.streams(name)) == 6
        for name in NAMES:
            await brokers.kill(name)
        await brokers.start(*NAMES)
        for name in NAMES:
            assert len(await brokers.streams(name)) == 6


async def test_without_a_majority_writes_are_refused_by_name_and_reads_continue(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        await brokers.created("b1", "kept")
        await brokers.seen("kept")
        missing = "no controller: 2 of the 3 brokers have to agree"
        before = brokers.heard("b2", missing)
        await brokers.kill("b1")
        await brokers.kill("b3")
        await brokers.said("b2", missing, before)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await brokers.call("b2", "CreateStream", name="lost", subject="lost", replicationFactor=1)
        assert "2 of the 3 brokers have to agree" in str(refused.value.details())
        assert "b1" in str(refused.value.details())
        assert "b3" in str(refused.value.details())
        assert await brokers.streams("b2") == ["kept"]

        await brokers.start("b1")
        await brokers.created("b2", "later")
        assert await brokers.streams("b2") == ["kept", "later"]


async def test_a_partition_that_is_led_elsewhere_takes_records_and_is_read_at_its_leader_only(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        leader = await brokers.created("b1", "orders")
        await brokers.seen("orders")
        other = next(name for name in NAMES if name != leader)

        async def is_written() -> bool:
            try:
                await brokers.call(leader, "Publish", stream="orders", value=b"one", ackPolicy=0)
            except grpc.aio.AioRpcError as failure:
                if failure.code() not in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE}:
                    raise
                return False
            return True

        await until(is_written)
        answer = await brokers.call(other, "Publish", stream="orders", value=b"two", ackPolicy=0)
        assert answer.ack.offset == 1
        with pytest.raises(grpc.aio.AioRpcError, match="should be sent to partition leader"):
            await brokers.call(other, "FetchPartitionMetadata", stream="orders", partition=0)
        answer = await brokers.call(leader, "FetchPartitionMetadata", stream="orders", partition=0)
        assert answer.metadata.highWatermark == 1

        await brokers.kill(leader)
        await brokers.start(leader)
        answer = await brokers.call(leader, "FetchPartitionMetadata", stream="orders", partition=0)
        assert answer.metadata.highWatermark == 1
        await until(is_written)


async def test_what_is_not_safe_with_several_brokers_is_refused_by_name(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        async with brokers.client("b1") as client:
            with pytest.raises(StateError, match="FetchSinks is not available with several brokers yet") as refused:
                await client.sinks()
        assert refused.value.code == "cluster_unsupported"


async def test_a_broker_of_another_directory_or_cluster_is_refused_by_name(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        await brokers.created("b1", "kept")
        await brokers.running.pop("b3").end(signal.SIGTERM)

        copied = tmp_path / "copy"
        shutil.copytree(tmp_path / "b3", copied)
        copy = await brokers.launch("b3", directory="copy")
        assert "is a copy" in await refusal(copy)

        empty = await brokers.launch("b3", directory="empty")
        assert "another data directory than the one that asks" in await refusal(empty)

        alone = await brokers.launch("b3", cluster__peers={})
        assert "belongs to a broker of a cluster: set cluster.peers" in await refusal(alone)

        other = Brokers(tmp_path)
        other.peers = brokers.peers
        foreign = await brokers.launch("b3", directory="foreign", broker__cluster_id="another")
        try:

            async def is_named() -> bool:
                return any('is of cluster "another"' in line.get("message", "") for line in foreign.lines())

            await until(is_named)
        finally:
            await foreign.end(signal.SIGKILL)

        await brokers.start("b3")
        await brokers.created("b3", "again")
        await brokers.seen("again")
