"""Limits of time of sinks under a simulated clock: the publish timeout, the time to live of what is staged, ages."""

import asyncio
import time
from dataclasses import dataclass

import pytest
from bascule.control.decide_sinks import HOUR_MS, KEPT_MS
from bascule.control.sinks import CLOCK_S, Sinks
from bascule.metadata.sink_commands import OpenSink
from bascule.metadata.sinks import Attempt
from bascule.spark.sink.options import PUBLISH_TIMEOUT

from tests.unit.control.rig import running
from tests.unit.control.test_sinks import Clock, Leaders, link, prepared, publish
from tests.unit.metadata.sink_rig import OPEN, TOKEN

HOUR_S = HOUR_MS / 1000
KEYED = OpenSink("default", "job-1", "", "batch", "month", "", "r1")


@dataclass
class LoopClock:
    """The clock of the running loop, which the test moves."""

    moved_s: float = 0.0

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        real = loop.time
        loop.time = lambda: real() + self.moved_s  # type: ignore[method-assign]

    async def move(self, seconds: float) -> None:
        """Let everything run that is due then."""
        self.moved_s += seconds
        for _ in range(20):
            await asyncio.sleep(0)


async def test_a_publish_waits_its_sixty_seconds_and_is_answered_as_decided() -> None:
    timeout_s = int(PUBLISH_TIMEOUT.default or 0) / 1000
    assert timeout_s == 60
    async with running() as rig:
        clock, sinks = LoopClock(), await prepared(rig, Leaders())
        sink = await sinks.open(OPEN, 5.0)
        call = asyncio.create_task(sinks.publish(publish(sink, sinks.state, 0), timeout_s))
        while sinks.sink("default", "s").last_epoch is None:  # noqa: ASYNC110 - the decision has no event for callers
            await asyncio.sleep(0.001)  # until it is decided
        await clock.move(timeout_s - 5)
        assert not call.done()
        await clock.move(6)
        answered = await call
        assert (answered.last_epoch, answered.is_finished) == (0, False)
        # the rows are linked later, as if the call had waited for them
        await link(sinks, answered)
        assert sinks.sink("default", "s").is_finished


@pytest.mark.parametrize("jump_s", [0.0, 10.0 * 365 * 86_400, -10.0 * 365 * 86_400], ids=["none", "later", "earlier"])
async def test_what_is_staged_lives_an_hour_whatever_the_wall_clock_does(
    monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    async with running() as rig:
        leaders, clock = Leaders(), Clock(5_000_000.0)
        sinks = await prepared(rig, leaders, clock)
        sink = await sinks.open(OPEN, 5.0)
        wall = time.time
        monkeypatch.setattr(time, "time", lambda: wall() + jump_s)
        monkeypatch.setattr(time, "time_ns", lambda: int((wall() + jump_s) * 1e9))
        staged = {"sink": sink.id, "generation": sink.generation, "epoch": 0, "token": TOKEN, "bytes": 1}
        attempt = Attempt(0, TOKEN, sink.generation)
        sinks.renew(sink, attempt)
        leaders.idle = [{**staged, "idle_ms": HOUR_MS}]
        clock.now_s += HOUR_S - 1
        await sinks.round()
        assert sinks.sink("default", "s").expired == (), "it was renewed less than an hour ago"
        clock.now_s += 1
        leaders.idle = [{**staged, "idle_ms": HOUR_MS - 1}]
        await sinks.round()
        assert sinks.sink("default", "s").expired == (), "rows came less than an hour ago"
        leaders.idle = [{**staged, "idle_ms": HOUR_MS}]
        await sinks.round()
        assert sinks.sink("default", "s").expired == (attempt,)


async def test_a_new_controller_counts_renewals_from_the_start_and_ages_on() -> None:
    """Its monotonic clock may begin below that of the controller before it, as after a start of the machine."""
    month_s = KEPT_MS["month"] / 1000
    async with running() as rig:
        clock = Clock(9_000_000.0)
        sinks = await prepared(rig, Leaders(), clock)
        await sinks.open(KEYED, 5.0)
        clock.now_s += month_s - CLOCK_S
        await sinks.round()
        before_ms = sinks.state.clock_ms
        assert before_ms == KEPT_MS["month"] - CLOCK_S * 1000
        disk = rig.plane.disk
    async with running(disk) as rig:
        clock = Clock(0.0)
        again = Sinks(rig.controller, Leaders(), clock)
        again.start()
        await again.round()
        assert again.state.clock_ms == before_ms, "nothing has passed yet"
        clock.now_s += CLOCK_S - 1
        await again.round()
        assert [key.name for key in again.state.sinks] == ["job-1"]
        clock.now_s += 1
        await again.round()
        assert again.state.clock_ms == KEPT_MS["month"]
        assert again.state.sinks == {}, "it was not used for 30 days"


async def test_time_without_sinks_does_not_count() -> None:
    async with running() as rig:
        clock = Clock()
        sinks = await prepared(rig, Leaders(), clock)
        clock.now_s += KEPT_MS["month"] / 1000
        await sinks.round()
        await sinks.open(KEYED, 5.0)
        await sinks.round()
        assert [key.name for key in sinks.state.sinks] == ["job-1"]
