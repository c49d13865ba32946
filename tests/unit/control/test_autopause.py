"""When partitions pause by themselves."""

import asyncio

import pytest
from bascule.control.autopause import AutoPause, AutoPauseDefaults, due, watched
from bascule.control.dataplane import PartitionStatus
from bascule.control.decide import Target
from bascule.metadata import CreateStream, Placement, RegisterBroker, State, StreamKey, StreamSettings, apply
from bascule.metadata.model import incarnation_of, initial_state

from tests.unit.control.rig import running, stream_request

MS = 1_000_000


def state(settings: StreamSettings) -> State:
    at = initial_state()
    here = (Placement(("a",), "a"),)
    for command in (RegisterBroker("a", "h", 1, 1), CreateStream("default", "s", "s", "", 1, settings, here * 2)):
        at, _ = apply(at, at.index + 1, command)
    return at


def status(last_ns: int = 0, subscribers: int = 0) -> PartitionStatus:
    return PartitionStatus(0, 0, 0, 0, last_ns, last_ns, subscribers)


FIRST, SECOND = incarnation_of(2, 0), incarnation_of(2, 1)


def test_streams_without_a_time_are_not_watched_and_defaults_and_overrides_count() -> None:
    open_ended = state(StreamSettings())
    assert watched(open_ended, "a", AutoPauseDefaults()) == []
    assert len(watched(open_ended, "a", AutoPauseDefaults(50))) == 2
    assert watched(open_ended, "b", AutoPauseDefaults(50)) == []
    never = state(StreamSettings(auto_pause_ms=0))
    assert watched(never, "a", AutoPauseDefaults(50)) == []
    overridden = AutoPauseDefaults(0, False, {StreamKey("default", "s"): 7})
    assert [item[2] for item in watched(never, "a", overridden)] == [7, 7]


def test_idle_time_counts_from_the_last_record_or_from_opening() -> None:
    candidates = watched(state(StreamSettings(auto_pause_ms=100)), "a", AutoPauseDefaults())
    found = due(
        candidates,
        {FIRST: status(last_ns=950 * MS), SECOND: status()},
        {FIRST: 0, SECOND: 900 * MS},
        1_000 * MS,
        disable_if_subscribers=False,
    )
    assert found.targets == (Target("default", "s", (1,)),)
    assert found.next_s == 0.05


def test_subscribers_count_when_the_stream_or_the_default_says_so() -> None:
    for asked, default, pauses in ((None, False, True), (None, True, False), (True, False, False), (False, True, True)):
        settings = StreamSettings(auto_pause_ms=100, auto_pause_disable_if_subscribers=asked)
        candidates = watched(state(settings), "a", AutoPauseDefaults())[:1]
        found = due(candidates, {FIRST: status(subscribers=1)}, {FIRST: 0}, 1_000 * MS, disable_if_subscribers=default)
        assert bool(found.targets) is pauses
        assert found.next_s == (None if pauses else 0.1)


def test_what_a_sink_has_staged_keeps_a_partition_awake() -> None:
    candidates = watched(state(StreamSettings(auto_pause_ms=100)), "a", AutoPauseDefaults())[:1]
    for held, pauses in ((0, True), (1, False)):
        at = {FIRST: status()._replace(held=held)}
        found = due(candidates, at, {FIRST: 0}, 1_000 * MS, disable_if_subscribers=False)
        assert (len(found.targets) == 1) is pauses


def test_a_partition_that_is_not_open_here_is_checked_again() -> None:
    candidates = watched(state(StreamSettings(auto_pause_ms=100)), "a", AutoPauseDefaults())[:1]
    found = due(candidates, {}, {}, 1_000 * MS, disable_if_subscribers=False)
    assert (found.targets, found.next_s) == ((), 0.1)


@pytest.mark.parametrize("turns", range(5))
async def test_the_loop_ends_when_it_is_cancelled_within_a_few_turns_of_a_change(turns: int) -> None:
    async with running() as rig:
        defaults = AutoPauseDefaults(60_000)
        await rig.controller.create_stream(stream_request(), 5.0)
        loop = asyncio.create_task(AutoPause(rig.controller, defaults).run())
        await asyncio.sleep(0.01)

        def cancel_after(left: int) -> None:
            loop.cancel() if left == 0 else asyncio.get_running_loop().call_soon(cancel_after, left - 1)

        rig.controller.follow(lambda _: cancel_after(turns))
        await rig.controller.create_stream(stream_request("second"), 5.0)
        await asyncio.wait({loop}, timeout=1.0)
        assert loop.cancelled()
