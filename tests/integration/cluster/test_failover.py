"""A partition's leader is lost: another replica leads, and nothing that was acknowledged to all replicas is lost."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import bascule
import grpc.aio
import pytest
from bascule._liftbridge_pb import message

from tests.integration.cluster.brokers import LIMIT_S, NAMES, Brokers, cluster, until
from tests.integration.cluster.test_replicate import ALL, LEADER, created, high_watermark, publish

STREAM = "orders"
WHILE_LED = 40
"""Records that are acknowledged under a leader before it is killed."""


async def shown_leader(brokers: Brokers) -> str:
    """The leader as a broker that runs knows it; empty = none."""
    for name in tuple(brokers.running):
        try:
            answer = await brokers.call(name, "FetchMetadata", streams=[STREAM])
        except (grpc.aio.AioRpcError, KeyError):
            continue
        leader = str(answer.streamMetadata[0].partitions[0].leader)
        if leader in brokers.running:
            return leader
    return ""


class Publisher:
    """Publishes one record after the other to whichever broker leads, until each is acknowledged by all.

    Attributes:
        acked: value by offset, as acknowledged.
        gaps: seconds between an acknowledged record and the next, where there was a failure in between.
    """

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self.acked: dict[int, bytes] = {}
        self.gaps: list[float] = []

    async def run(self) -> None:
        """Publish until cancelled."""
        number = 0
        while True:
            await self._publish(b"%d" % number)
            number += 1

    async def _publish(self, value: bytes) -> None:
        began, failed = time.monotonic(), False
        while True:
            leader = await shown_leader(self._brokers)
            if leader:
                try:
                    async with asyncio.timeout(5):
                        answer = await self._brokers.call(leader, "Publish", stream=STREAM, value=value, ackPolicy=ALL)
                except (grpc.aio.AioRpcError, TimeoutError, KeyError):
                    failed = True
                else:
                    assert answer.ack.offset not in self.acked, "one offset was acknowledged twice"
                    self.acked[answer.ack.offset] = value
                    if failed:
                        self.gaps.append(time.monotonic() - began)
                    return
            else:
                failed = True
            await asyncio.sleep(0.02)


async def stored(brokers: Brokers, name: str) -> dict[int, bytes]:
    """Committed records by offset, as a broker that leads serves them."""
    url = f"liftbridge://{brokers.running[name].addresses['address']}"
    async with bascule.connect_async(url) as client:
        reading = client.subscribe(STREAM, start="earliest", stop="latest")
        return {record.offset: record.value or b"" async for record in reading.records()}


async def led_in_sync(brokers: Brokers) -> str:
    """Wait until every broker knows that all three replicas are in sync; the leader."""
    leaders: set[str] = set()

    async def is_whole() -> bool:
        leaders.clear()
        for name in NAMES:
            answer = await brokers.call(name, "FetchMetadata", streams=[STREAM])
            partition = answer.streamMetadata[0].partitions[0]
            leaders.add(str(partition.leader) if set(partition.isr) == set(NAMES) else "")
        return len(leaders) == 1 and "" not in leaders

    await until(is_whole)
    return leaders.pop()


async def is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs any more: what it did before is done."""
    return set(_states(Path(f"/proc/{pid}/task"))) == {"T"}


def _states(tasks: Path) -> list[str]:
    return [task.read_text().rpartition(")")[2].split()[0] for task in tasks.glob("*/stat")]


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=[pytest.mark.long, pytest.mark.timeout(600)])])
async def test_nothing_that_all_acknowledged_is_lost_while_leaders_are_killed(tmp_path: Path, kills: int) -> None:
    async with cluster(tmp_path) as brokers:
        await created(brokers, STREAM)
        publisher = Publisher(brokers)
        publishing = asyncio.create_task(publisher.run())
        for _ in range(kills):
            leader = await led_in_sync(brokers)
            enough = len(publisher.acked) + WHILE_LED

            async def is_enough(enough: int = enough) -> bool:
                return publishing.done() or len(publisher.acked) >= enough

            await until(is_enough)
            await brokers.kill(leader)
            await until(is_enough)
            await brokers.start(leader)
        leader = await led_in_sync(brokers)
        publishing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await publishing
        found = await stored(brokers, leader)
    lost = {offset: value for offset, value in publisher.acked.items() if found.get(offset) != value}
    assert not lost, f"{len(lost)} of {len(publisher.acked)} acknowledged records are lost"
    assert publisher.gaps
    print(f"publish gaps: {sorted(round(gap, 2) for gap in publisher.gaps)}")


async def test_a_planned_stop_loses_nothing_and_nobody_waits_for_silence(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        first = await created(brokers, STREAM)
        await led_in_sync(brokers)
        acked: dict[int, bytes] = {}

        async def publish_on() -> None:
            for number in range(100_000):
                value = b"%d" % number
                answer = await brokers.call(first, "Publish", stream=STREAM, value=value, ackPolicy=LEADER)
                acked[answer.ack.offset] = value

        publishing = asyncio.create_task(publish_on())

        async def is_enough() -> bool:
            return publishing.done() or len(acked) >= WHILE_LED

        await until(is_enough)
        stopped = brokers.running.pop(first)
        code = await stopped.end(signal.SIGTERM)
        assert code == 0
        with pytest.raises((grpc.aio.AioRpcError, KeyError)):
            await publishing
        leader = await shown_leader(brokers)
        assert leader not in {"", first}

        async def is_taken() -> bool:
            try:
                await brokers.call(leader, "Publish", stream=STREAM, value=b"after", ackPolicy=ALL)
            except grpc.aio.AioRpcError:
                return False
            return True

        await until(is_taken)
        assert sum(brokers.heard(name, "a broker is silent") for name in brokers.running) == 0
        found = await stored(brokers, leader)
    assert {offset: found.get(offset) for offset in acked} == acked


async def test_a_new_leader_takes_what_only_another_replica_has_before_it_begins(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        first = await created(brokers, STREAM)
        await led_in_sync(brokers)
        answer = await brokers.call(first, "FetchMetadata", streams=[STREAM])
        replicas = [name for name in answer.streamMetadata[0].partitions[0].replicas if name != first]
        # The first replica in sync is chosen. It gets nothing of what the other one has.
        next_one = brokers.running[replicas[0]]
        next_one.process.send_signal(signal.SIGSTOP)
        answers = await publish(brokers.running[first], STREAM, [b"%d" % n for n in range(50)], LEADER)
        offsets = {item.ack.offset: b"%d" % int(item.correlationId) for item in answers}
        assert len(offsets) == 50
        await asyncio.sleep(0.3)
        await brokers.kill(first)
        next_one.process.send_signal(signal.SIGCONT)

        async def is_led_by_the_next_one() -> bool:
            return await shown_leader(brokers) == replicas[0]

        await until(is_led_by_the_next_one)

        async def is_taken() -> bool:
            try:
                answer = await brokers.call(replicas[0], "Publish", stream=STREAM, value=b"after", ackPolicy=ALL)
            except grpc.aio.AioRpcError:
                return False
            return int(answer.ack.offset) > max(offsets)

        await until(is_taken)
        found = await stored(brokers, replicas[0])
    assert {offset: found.get(offset) for offset in offsets} == offsets


async def test_a_leader_that_was_stopped_acknowledges_nothing_after_its_lease(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        old = await created(brokers, STREAM)
        await led_in_sync(brokers)
        life = brokers.running[old]
        async with life.channel() as channel:
            request: Any = message("PublishRequest")
            response: Any = message("PublishResponse")
            publishing: Any = channel.stream_stream(
                "/proto.API/PublishAsync",
                request_serializer=request.SerializeToString,
                response_deserializer=response.FromString,
            )()
            await publishing.write(request(stream=STREAM, value=b"before", correlationId="before", ackPolicy=LEADER))
            assert (await publishing.read()).correlationId == "before"
            life.process.send_signal(signal.SIGSTOP)
            await until(lambda: is_stopped(life.process.pid))
            others = [name for name in NAMES if name != old]
            # They wait in its socket until it continues.
            for number in range(20):
                late = request(stream=STREAM, value=b"late", correlationId=f"late {number}", ackPolicy=LEADER)
                await publishing.write(late)

            async def is_replaced() -> bool:
                answer = await brokers.call(others[0], "FetchMetadata", streams=[STREAM])
                return str(answer.streamMetadata[0].partitions[0].leader) in others

            await until(is_replaced)
            life.process.send_signal(signal.SIGCONT)
            async with asyncio.timeout(LIMIT_S):
                late = [await publishing.read() for _ in range(20)]
            publishing.cancel()
        assert [answer.ack.offset for answer in late if not answer.HasField("asyncError")] == []
        leader = await led_in_sync(brokers)
        found = await stored(brokers, leader)
        assert b"late" not in found.values()
        follower = old if leader != old else others[0]
        # It follows, and shows nothing as the leader.
        with pytest.raises(grpc.aio.AioRpcError, match="partition leader"):
            await brokers.call(follower, "FetchPartitionMetadata", stream=STREAM, partition=0)


async def test_without_a_majority_a_leader_serves_nobody_after_its_lease(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        leader = await created(brokers, STREAM)
        await led_in_sync(brokers)
        for name in NAMES:
            if name != leader:
                await brokers.kill(name)

        async def is_suspended() -> bool:
            return await high_watermark(brokers.running[leader], STREAM) == -1

        await until(is_suspended)
        for policy in (LEADER, ALL):
            with pytest.raises(grpc.aio.AioRpcError):
                await brokers.call(leader, "Publish", stream=STREAM, value=b"alone", ackPolicy=policy)
        others = [name for name in NAMES if name != leader]
        await brokers.start(*others)
        again = await led_in_sync(brokers)
        assert b"alone" not in (await stored(brokers, again)).values()
