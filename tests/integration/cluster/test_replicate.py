"""Three brokers replicate records: the followers have the leader's bytes, and acks to all wait for them."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from bascule._liftbridge_pb import message
from bascule.engine import inspect_log, verify_log

from tests.integration.cluster.brokers import NAMES, Brokers, cluster, until
from tests.integration.server.process import Process, call

LEADER, ALL = 0, 1
RECORDS = 10_000


async def publish(life: Process, stream: str, values: list[bytes], policy: int) -> list[Any]:
    """Publish to partition 0 over one call; the answers in order."""
    request: Any = message("PublishRequest")
    response: Any = message("PublishResponse")
    async with life.channel() as channel:
        stub = channel.stream_stream(
            "/proto.API/PublishAsync",
            request_serializer=request.SerializeToString,
            response_deserializer=response.FromString,
        )
        publishing = stub()

        async def send() -> None:
            for number, value in enumerate(values):
                await publishing.write(request(stream=stream, value=value, correlationId=str(number), ackPolicy=policy))

        sending = asyncio.create_task(send())
        answers: list[Any] = []
        async with asyncio.timeout(60):
            while len(answers) < len(values):
                answers.append(await publishing.read())
        await sending
        publishing.cancel()
    return answers


async def high_watermark(life: Process, stream: str) -> int:
    """First offset after what is committed, as the leader knows it; -1 while it does not."""
    async with life.channel() as channel:
        try:
            answer = await call(channel, "FetchPartitionMetadata", stream=stream, partition=0)
        except grpc.aio.AioRpcError as failure:
            if failure.code() != grpc.StatusCode.UNAVAILABLE:
                raise
            return -1
    return int(answer.metadata.highWatermark) + 1


async def isr(brokers: Brokers, name: str, stream: str) -> set[str]:
    """The in-sync replicas, as a broker knows them."""
    answer = await brokers.call(name, "FetchMetadata", streams=[stream])
    return set(answer.streamMetadata[0].partitions[0].isr)


async def created(brokers: Brokers, stream: str, **settings: Any) -> str:
    """A stream of one partition on three brokers; the broker that leads it, once it takes records."""
    leader = await brokers.created("b1", stream, factor=3, **settings)
    await brokers.seen(stream)
    # A broker shows a stream in its metadata a moment before its data plane has it.
    not_yet = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL, grpc.StatusCode.NOT_FOUND}

    async def is_led() -> bool:
        try:
            await brokers.call(leader, "Publish", stream=stream, value=b"first", ackPolicy=LEADER)
        except grpc.aio.AioRpcError as failure:
            if failure.code() not in not_yet:
                raise
            return False
        return True

    await until(is_led)
    return leader


def verified(data: Path) -> list[tuple[int, int, int]]:
    """Base offset, link and chain of every batch of the only partition; all of the directory is intact."""
    document = verify_log(str(data))
    assert not document["damaged"]
    (partition,) = [log["incarnation"] for log in document["logs"] if log["incarnation"] != 1]
    (log,) = inspect_log(str(data / "partitions" / str(partition)), 0, 1_000_000)["logs"]
    return [(item["base_offset"], item["link"], item["chain"]) for item in log["batches"]]


async def test_followers_have_the_bytes_of_their_leader(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        leader = await created(brokers, "orders")
        answers = await publish(brokers.running[leader], "orders", [b"%d" % n for n in range(RECORDS)], LEADER)
        assert [answer.ack.offset for answer in answers] == list(range(1, RECORDS + 1))

        async def is_committed() -> bool:
            return await high_watermark(brokers.running[leader], "orders") == RECORDS + 1

        await until(is_committed)
        assert await isr(brokers, leader, "orders") == set(NAMES)
        await brokers.stop()

    logs = [verified(tmp_path / name / "data") for name in NAMES]
    assert logs[0] == logs[1] == logs[2]
    assert logs[0][-1][0] <= RECORDS


async def test_an_ack_to_all_waits_for_the_replicas_in_sync_until_a_stopped_one_has_left_them(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        leader = await created(brokers, "orders")
        assert len(await publish(brokers.running[leader], "orders", [b"two"], ALL)) == 1
        assert await high_watermark(brokers.running[leader], "orders") == 2

        stopped = next(name for name in NAMES if name != leader)
        brokers.running[stopped].process.send_signal(signal.SIGSTOP)
        waiting = asyncio.create_task(publish(brokers.running[leader], "orders", [b"three"], ALL))
        (answer,) = await publish(brokers.running[leader], "orders", [b"four"], LEADER)
        assert {answer.ack.offset, (await waiting)[0].ack.offset} == {2, 3}
        assert await isr(brokers, leader, "orders") == set(NAMES) - {stopped}
        assert (await publish(brokers.running[leader], "orders", [b"five"], ALL))[0].ack.offset == 4

        brokers.running[stopped].process.send_signal(signal.SIGCONT)

        async def is_back() -> bool:
            return await isr(brokers, leader, "orders") == set(NAMES)

        await until(is_back)
        assert (await publish(brokers.running[leader], "orders", [b"six"], ALL))[0].ack.offset == 5


async def test_with_fewer_replicas_in_sync_than_needed_nothing_is_acknowledged_to_all(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        leader = await created(brokers, "orders")
        others = [name for name in NAMES if name != leader]
        for name in others:
            await brokers.kill(name)
        # The metadata cannot change without a majority, so the dead ones stay in the ISR, and the ack waits.
        waiting = asyncio.create_task(publish(brokers.running[leader], "orders", [b"two"], ALL))
        await asyncio.sleep(3)
        assert not waiting.done()
        await brokers.start(others[0])
        assert (await waiting)[0].ack.offset == 1
        assert await high_watermark(brokers.running[leader], "orders") == 2


async def leader_of(brokers: Brokers, name: str) -> str:
    """The leader of the stream, as a broker knows it."""
    answer = await brokers.call(name, "FetchMetadata", streams=["orders"])
    return str(answer.streamMetadata[0].partitions[0].leader)


async def is_written(brokers: Brokers) -> bool:
    """Whether the leader took a record."""
    name = await leader_of(brokers, next(iter(brokers.running)))
    if name not in brokers.running:
        return False
    try:
        await brokers.call(name, "Publish", stream="orders", value=b"after", ackPolicy=LEADER)
    except grpc.aio.AioRpcError:
        return False
    return True


async def test_a_leader_that_comes_back_follows_the_next_one_and_drops_what_only_it_had(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        leader = await created(brokers, "orders")
        assert (await publish(brokers.running[leader], "orders", [b"kept"], ALL))[0].ack.offset == 1
        others = [name for name in NAMES if name != leader]

        async def is_alone() -> bool:
            for name in others:
                brokers.running[name].process.send_signal(signal.SIGSTOP)
            answers = await publish(brokers.running[leader], "orders", [b"only here"] * 3, LEADER)
            if not any(answer.HasField("asyncError") for answer in answers):
                return True
            # Its lease ended before.
            for name in others:
                brokers.running[name].process.send_signal(signal.SIGCONT)
            return False

        await until(is_alone)
        for name in NAMES:
            await brokers.kill(name)
        await brokers.start(*others)
        await brokers.start(leader)

        await until(lambda: is_written(brokers))
        name = await leader_of(brokers, others[0])

        async def is_whole() -> bool:
            committed = await high_watermark(brokers.running[name], "orders")
            return committed >= 3 and await isr(brokers, name, "orders") == set(NAMES)

        await until(is_whole)


async def test_what_does_not_work_with_several_replicas_yet_is_refused_by_name(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        settings = {"autoPauseTime": {"value": 1000}}
        for name, fields in settings.items():
            with pytest.raises(grpc.aio.AioRpcError, match="not available with several replicas yet"):
                await brokers.call("b1", "CreateStream", name=name, subject=name, replicationFactor=3, **{name: fields})
        leader = await brokers.created("b1", "orders", factor=3)
        with pytest.raises(grpc.aio.AioRpcError, match="cannot be paused yet"):
            await brokers.call(leader, "PauseStream", name="orders")
