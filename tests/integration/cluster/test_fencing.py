"""A silent broker is fenced, a stopped controller fences nobody, and whoever returns is live again."""

import signal
from pathlib import Path
from typing import Any

import grpc.aio

from tests.integration.cluster.brokers import NAMES, Brokers, cluster, until


def changes(brokers: Brokers, name: str, text: str) -> list[dict[str, Any]]:
    """The lines of a broker's log with this message, in order."""
    return [line for line in brokers.running[name].lines() if line.get("message") == text]


async def published(brokers: Brokers, name: str, stream: str) -> None:
    """Publish a record through a broker, again while its partition has no leader."""

    async def is_written() -> bool:
        try:
            await brokers.call(name, "Publish", stream=stream, value=b"one", ackPolicy=0)
        except grpc.aio.AioRpcError as failure:
            if failure.code() not in {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE}:
                raise
            return False
        return True

    await until(is_written)


async def test_a_killed_broker_is_fenced_and_is_live_again_after_its_return(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        controller = await brokers.settled()
        silent = next(name for name in NAMES if name != controller)
        left = [name for name in NAMES if name != silent]
        led = ""
        for number in range(3):
            leader = await brokers.created(silent, f"s{number}")
            led = f"s{number}" if leader == silent else led
        assert led, "the streams are spread over the brokers"
        await published(brokers, silent, led)
        await brokers.reached(controller, **dict.fromkeys(NAMES, "live"))

        await brokers.kill(silent)
        for name in left:
            await brokers.reached(name, **{silent: "fenced"}, **dict.fromkeys(left, "live"))
        code, status = await brokers.shown(controller)
        assert (code, status["controller"], status["answered_by"]) == (0, controller, controller)
        row = next(item for item in status["brokers"] if item["broker"] == silent)
        assert row["fenced_since"]
        assert row["problem"]
        # Proposed by the controller alone, and then applied by both.
        fences = changes(brokers, controller, "a broker is silent, and is fenced")
        assert [line["broker"] for line in fences] == [silent]
        for name in left:
            applied = changes(brokers, name, "a broker is fenced")
            assert [line["broker"] for line in applied] == [silent]
        assert fences[0]["time"] <= changes(brokers, controller, "a broker is fenced")[0]["time"]
        assert await brokers.created(controller, "while-it-is-away") in left

        await brokers.start(silent)
        await brokers.reached(controller, **dict.fromkeys(NAMES, "live"))
        again = next(item for item in (await brokers.status(controller)).brokers if item.id == silent)
        assert again.fenced is None
        assert again.boot_epoch > row["boot_epoch"]
        answer = await brokers.call(silent, "FetchPartitionMetadata", stream=led, partition=0)
        assert answer.metadata.highWatermark == 0
        await published(brokers, silent, led)


async def test_a_controller_that_was_stopped_fences_nobody_and_returns_by_itself(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        controller = await brokers.settled()
        left = [name for name in NAMES if name != controller]
        await brokers.created(controller, "kept")
        await brokers.seen("kept")
        stopped = brokers.running[controller].process
        epochs = {item.id: item.boot_epoch for item in (await brokers.status(left[0])).brokers}
        stopped.send_signal(signal.SIGSTOP)
        try:
            # The others elect another controller, which fences the one that is silent.
            await brokers.reached(left[0], **{controller: "fenced"}, **dict.fromkeys(left, "live"))
        finally:
            stopped.send_signal(signal.SIGCONT)
        await brokers.reached(left[0], **dict.fromkeys(NAMES, "live"))
        await brokers.said(controller, "this broker is registered again")
        assert changes(brokers, controller, "a broker is silent, and is fenced") == []
        after = {item.id: item.boot_epoch for item in (await brokers.status(left[0])).brokers}
        assert {name: after[name] for name in left} == {name: epochs[name] for name in left}
        assert after[controller] > epochs[controller]
        leader = await brokers.created(controller, "later")
        await brokers.seen("later")
        await published(brokers, leader, "later")


async def test_an_ended_leader_that_lives_is_settled_without_a_fence(tmp_path: Path) -> None:
    """A pause ends the leader: only when that one has stopped, somebody may be named again."""
    async with cluster(tmp_path) as brokers:
        controller = await brokers.settled()
        led = {await brokers.created(controller, f"s{number}"): f"s{number}" for number in range(3)}
        assert led.keys() == set(NAMES), "the streams are spread over the brokers"
        before = [item.boot_epoch for item in (await brokers.status(controller)).brokers]
        for owner, stream in led.items():
            await brokers.seen(stream)
            await brokers.call(owner, "PauseStream", name=stream)
            await until(lambda owner=owner, stream=stream: is_paused_at(brokers, owner, stream))
        assert [item.boot_epoch for item in (await brokers.status(controller)).brokers] == before
        assert [name for name in NAMES if changes(brokers, name, "a broker is silent, and is fenced")] == []
        for owner, stream in led.items():
            await published(brokers, owner, stream)


async def is_paused_at(brokers: Brokers, leader: str, stream: str) -> bool:
    """Whether a paused stream has this leader."""
    answer = await brokers.call(leader, "FetchMetadata", streams=[stream])
    partition = answer.streamMetadata[0].partitions[0]
    assert partition.paused
    return str(partition.leader) == leader


async def test_without_a_majority_nobody_is_fenced(tmp_path: Path) -> None:
    async with cluster(tmp_path) as brokers:
        await brokers.settled()
        before = brokers.heard("b2", "no controller: 2 of the 3 brokers have to agree")
        for name in ("b1", "b3"):
            brokers.running[name].process.send_signal(signal.SIGSTOP)
        try:
            await brokers.said("b2", "no controller: 2 of the 3 brokers have to agree", before)
            code, status = await brokers.shown("b2")
            assert (code, status["controller"]) == (1, "")
            assert {row["state"] for row in status["brokers"]} == {"live"}
        finally:
            for name in ("b1", "b3"):
                brokers.running[name].process.send_signal(signal.SIGCONT)
        await brokers.created("b2", "later")
        await brokers.seen("later")
        await brokers.reached("b2", **dict.fromkeys(NAMES, "live"))
