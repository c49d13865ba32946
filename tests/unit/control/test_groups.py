"""Liveness of members, and reports of coordinators."""

import asyncio

import pytest
from bascule.control import GroupTimeouts
from bascule.control.controller import RefusedError
from bascule.control.groups import NotServedError, NotWatchedError
from bascule.metadata import RegisterBroker

from tests.unit.control.fake_plane import Disk, until
from tests.unit.control.rig import Rig, running, wish

HASTY = GroupTimeouts(consumer_s=1.0, coordinator_s=1.0)
LIMIT_S = 60.0


async def joined(rig: Rig, *consumers: str) -> None:
    await rig.controller.create_stream(wish(partitions=2), 5.0)
    for consumer in consumers:
        await rig.groups.join("g", consumer, ("orders",), 5.0)


def members(rig: Rig) -> list[str]:
    group = rig.controller.state.groups.get("g")
    return [item.id for item in group.members] if group else []


async def test_silence_ends_a_membership_and_a_fetch_prolongs_it() -> None:
    async with running(timeouts=HASTY) as rig:
        await joined(rig, "silent", "lively")
        async with asyncio.timeout(LIMIT_S):
            while members(rig) != ["lively"]:
                rig.groups.assignments("g", "lively", rig.controller.state.groups["g"].epoch)
                await asyncio.sleep(0.02)
        await until(lambda: not members(rig), LIMIT_S)


async def test_a_failed_expiry_gives_the_member_its_time_again() -> None:
    async with running(timeouts=HASTY) as rig:
        await joined(rig, "a")
        rig.plane.refusing = "disk_full"
        await asyncio.sleep(1.5)  # longer than its time
        assert members(rig) == ["a"]
        rig.plane.refusing = ""
        await until(lambda: not members(rig), LIMIT_S)


async def test_while_an_expiry_is_being_committed_the_member_is_not_active() -> None:
    async with running(timeouts=HASTY) as rig:
        await joined(rig, "a")
        rig.plane.silent = True
        await asyncio.sleep(1.5)  # longer than its time
        with pytest.raises(NotWatchedError):
            rig.groups.assignments("g", "a", 0)


async def test_members_have_all_their_time_after_a_restart() -> None:
    disk = Disk()
    async with running(disk) as rig:
        await joined(rig, "a")
    async with running(disk, timeouts=HASTY) as rig:
        rig.groups.assignments("g", "a", 0)
        await until(lambda: not members(rig), LIMIT_S)


async def test_most_members_replace_a_coordinator_and_one_alone_does_not() -> None:
    async with running(timeouts=GroupTimeouts(60.0, 60.0)) as rig:
        await joined(rig, "x", "y", "z")
        await rig.controller.propose(RegisterBroker("b", "h", 1, 1), 5.0)
        before = rig.controller.state.groups["g"]
        assert before.coordinator == "a"
        await rig.groups.report("g", "x", "a", before.epoch, 5.0)
        await rig.groups.report("g", "x", "a", before.epoch, 5.0)
        assert rig.controller.state.groups["g"] == before
        await rig.groups.report("g", "y", "a", before.epoch, 5.0)
        after = rig.controller.state.groups["g"]
        assert (after.coordinator, after.epoch) == ("b", rig.controller.state.index)
        assert [item.assignments for item in after.members] == [item.assignments for item in before.members]
        with pytest.raises(NotServedError, match="broker is not the consumer group coordinator"):
            rig.groups.assignments("g", "x", after.epoch)


async def test_reports_are_forgotten_after_the_timeout() -> None:
    async with running(timeouts=GroupTimeouts(60.0, 1.0)) as rig:
        await joined(rig, "x", "y")
        epoch = rig.controller.state.groups["g"].epoch
        await rig.groups.report("g", "x", "a", epoch, 5.0)
        await asyncio.sleep(1.5)  # longer than reports count
        await rig.groups.report("g", "y", "a", epoch, 5.0)
        with pytest.raises(RefusedError, match="No group coordinator candidates"):
            await rig.groups.report("g", "x", "a", epoch, 5.0)
