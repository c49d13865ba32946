"""The controller fences whom it does not hear, until the state has settled it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from bascule._seam import Expired, Stopped
from bascule.control import fencing
from bascule.control.fencing import Fencing
from bascule.errors import error
from bascule.metadata import CreateStream, Partition, Placement, State, StreamKey, StreamSettings, apply
from bascule.metadata.replica_commands import EndLeader, FenceBroker, StoppedLeading

from tests.unit.control.fake_plane import until
from tests.unit.control.test_cluster import Log, founded


class Plane:
    """Notes the terms in which brokers are watched."""

    def __init__(self, *live: str) -> None:
        self.terms: list[int] = []
        self.ended: list[tuple[int, int]] = []
        self.live = list(live)

    def watch_brokers(self, term: int, ended: Sequence[tuple[int, int]]) -> None:
        self.terms.append(term)
        self.ended = list(ended)

    def cluster_status(self) -> dict[str, Any]:
        return {"live": self.live}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fencing, "AGAIN_S", 0.001)


async def running(log: Log, plane: Plane, event: Expired | Stopped, done: Callable[[], bool]) -> None:
    """The duty with this event, until it is done."""
    duty = Fencing(log, plane)
    task = asyncio.create_task(duty.run(4))
    await until(lambda: plane.terms == [4])
    if isinstance(event, Stopped):
        duty.on_stopped(event)
    else:
        duty.on_expired(event)
    try:
        await until(lambda: done() or task.done())
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def expired(state: State, name: str) -> Expired:
    broker = state.brokers[name]
    return Expired(broker.raft_id, broker.boot_epoch)


async def test_a_silent_broker_is_fenced_and_the_others_are_live() -> None:
    log, plane = Log(), Plane("b1", "b2", "b3")
    await founded(log)
    proposed: list[Any] = []
    propose = log.propose

    async def noted(command: Any, timeout_s: float) -> int:
        proposed.append(command)
        return await propose(command, timeout_s)

    log.propose = noted  # type: ignore[method-assign]
    epoch = log.state.brokers["b2"].boot_epoch
    await running(log, plane, expired(log.state, "b2"), lambda: log.state.brokers["b2"].run == "fenced")
    assert proposed == [FenceBroker("b2", epoch, ("b1", "b3"), 1_000)]
    assert log.state.brokers["b2"].fenced_ns == 1_000


async def test_a_fence_that_fails_is_proposed_again() -> None:
    log, plane = Log(), Plane("b1", "b3")
    await founded(log)
    log.refused.extend([error("no_quorum", "nobody"), error("metadata_timeout", "late")])
    await running(log, plane, expired(log.state, "b2"), lambda: log.state.brokers["b2"].run == "fenced")


async def test_a_run_that_another_one_followed_is_left_alone() -> None:
    log, plane = Log(), Plane("b1", "b3")
    await founded(log)
    gone = Expired(2, log.state.brokers["b2"].boot_epoch - 1)
    before = log.state
    duty = Fencing(log, plane)
    task = asyncio.create_task(duty.run(4))
    await until(lambda: plane.terms == [4])
    for event in (gone, Expired(9, 1)):
        duty.on_expired(event)
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert log.state is before


async def test_what_was_silent_in_an_earlier_term_is_forgotten() -> None:
    log, plane = Log(), Plane("b1", "b2", "b3")
    await founded(log)
    duty = Fencing(log, plane)
    duty.on_expired(expired(log.state, "b2"))
    task = asyncio.create_task(duty.run(5))
    await until(lambda: plane.terms == [5])
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert log.state.brokers["b2"].run == "confirmed"


async def ended(log: Log) -> Partition:
    """A cluster with a partition whose leader, b2, was ended."""
    await founded(log)
    placement = Placement(("b1", "b2", "b3"), "b2")
    await log.propose(CreateStream("default", "s", "s", "", 5, StreamSettings(), (placement,)), 1)
    await log.propose(EndLeader(led(log).incarnation, led(log).epoch), 1)
    assert led(log).leader == ""
    return led(log)


def led(log: Log) -> Partition:
    return log.state.streams[StreamKey("default", "s")].partitions[0]


async def test_an_ended_leader_is_replaced_once_it_has_stopped_and_that_is_proposed_until_it_is_applied() -> None:
    log, plane = Log(), Plane("b1", "b2", "b3")
    ending = (await ended(log)).ending
    assert ending is not None
    log.refused.extend([error("no_quorum", "nobody"), error("metadata_timeout", "late")])
    event = Stopped(2, ending.boot_epoch, ending.index)
    await running(log, plane, event, lambda: led(log).leader != "")
    assert plane.ended == [(ending.index, 2)]
    assert (led(log).leader, led(log).ending) == ("b1", None)
    assert log.state.brokers["b2"].run == "confirmed"


@pytest.mark.parametrize("change", [(0, -1, 0), (0, 0, -1), (1, 0, 0)])
async def test_whoever_has_not_stopped_is_waited_for(change: tuple[int, int, int]) -> None:
    log, plane = Log(), Plane("b1", "b2", "b3")
    ending = (await ended(log)).ending
    assert ending is not None
    event = Stopped(2 + change[0], ending.boot_epoch + change[1], ending.index + change[2])
    before = log.state
    duty = Fencing(log, plane)
    task = asyncio.create_task(duty.run(4))
    await until(lambda: plane.terms == [4])
    duty.on_stopped(event)
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert log.state is before


async def test_what_a_run_has_stopped_is_void_after_its_fence() -> None:
    log = Log()
    ending = (await ended(log)).ending
    assert ending is not None
    await log.propose(FenceBroker("b2", ending.boot_epoch, ("b1", "b3"), 1), 1)
    assert (led(log).leader, led(log).ending) == ("b1", None)
    late = StoppedLeading("b2", ending.boot_epoch, ending.index)
    state, _ = apply(log.state, log.state.index + 1, late)
    assert state.streams == log.state.streams


async def test_a_fence_before_1970_is_rejected() -> None:
    log = Log()
    await founded(log)
    epoch = log.state.brokers["b2"].boot_epoch
    state, result = apply(log.state, log.state.index + 1, FenceBroker("b2", epoch, ("b1",), -1))
    assert "before 1970" in str(result)
    assert state.brokers["b2"].run == "confirmed"
