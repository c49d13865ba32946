"""Liveness of members, and reports of coordinators."""

import asyncio
from typing import Any

import pytest
from bascule.control import GroupTimeouts
from bascule.control.groups import Reads
from bascule.control.handover import Place, Sign
from bascule.metadata import RegisterBroker
from bascule.metadata.rejection import RejectedError, RejectionCode

from tests.unit.control.fake_plane import Disk, until
from tests.unit.control.rig import Rig, running, stream_request

HASTY = GroupTimeouts(consumer_s=1.0, coordinator_s=1.0)
LIMIT_S = 60.0


async def joined(rig: Rig, *consumers: str) -> None:
    await rig.controller.create_stream(stream_request(partitions=2), 5.0)
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


async def test_a_defect_during_an_expiry_restarts_the_timer_of_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(timeouts=HASTY) as rig:
        await joined(rig, "a")
        propose, defects = rig.controller.propose, [KeyError("bug")]

        async def defective(*arguments: Any) -> int:
            if defects:
                raise defects.pop()
            return await propose(*arguments)

        monkeypatch.setattr(rig.controller, "propose", defective)
        await until(lambda: not members(rig), LIMIT_S)
        assert not defects


async def test_while_an_expiry_is_being_committed_the_member_is_not_active() -> None:
    async with running(timeouts=HASTY) as rig:
        await joined(rig, "a")
        rig.plane.silent = True
        await asyncio.sleep(1.5)  # longer than its time
        with pytest.raises(RejectedError):
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
        with pytest.raises(RejectedError, match="broker is not the consumer group coordinator"):
            rig.groups.assignments("g", "x", after.epoch)


async def test_reports_are_forgotten_after_the_timeout() -> None:
    async with running(timeouts=GroupTimeouts(60.0, 1.0)) as rig:
        await joined(rig, "x", "y")
        epoch = rig.controller.state.groups["g"].epoch
        await rig.groups.report("g", "x", "a", epoch, 5.0)
        await asyncio.sleep(1.5)  # longer than reports count
        await rig.groups.report("g", "y", "a", epoch, 5.0)
        with pytest.raises(RejectedError, match="No group coordinator candidates"):
            await rig.groups.report("g", "x", "a", epoch, 5.0)


def held(*numbers: int) -> frozenset[Place]:
    return frozenset(Place("orders", number) for number in numbers)


def numbers(reads: Reads) -> list[int]:
    return [number for part in reads.assignments for number in part.partitions]


async def joined_and_reading(rig: Rig) -> tuple[int, Reads]:
    """`a` reads both partitions, and then `b` joins; the epoch, and what `a` is answered."""
    await rig.controller.create_stream(stream_request(partitions=2), 5.0)
    await rig.groups.join("g", "a", ("orders",), 5.0, hands_over=True)
    assert numbers(rig.groups.assignments("g", "a", 0)) == [0, 1]
    await rig.groups.join("g", "b", ("orders",), 5.0, hands_over=True)
    epoch = rig.controller.state.groups["g"].epoch
    reads = rig.groups.assignments("g", "a", epoch, Sign(held(0, 1), rig.plane.group_versions["g"]))
    assert numbers(reads) == [0]
    return epoch, reads


async def test_the_next_member_gets_a_partition_when_it_is_released_and_is_woken() -> None:
    async with running() as rig:
        epoch, reads = await joined_and_reading(rig)
        before = rig.groups.assignments("g", "b", epoch)
        assert numbers(before) == []
        assert before.version == reads.version == rig.plane.group_versions["g"]
        rig.groups.assignments("g", "a", epoch, Sign(held(0), reads.version))
        assert rig.plane.group_versions["g"] > before.version
        after = rig.groups.assignments("g", "b", epoch, Sign(held(), before.version))
        assert numbers(after) == [1]
        assert after.version == rig.plane.group_versions["g"]


async def test_the_next_member_gets_a_partition_that_is_not_released_after_the_timeout() -> None:
    async with running(timeouts=HASTY) as rig:
        epoch, reads = await joined_and_reading(rig)
        async with asyncio.timeout(LIMIT_S):
            while not numbers(rig.groups.assignments("g", "b", epoch)):
                rig.groups.assignments("g", "a", epoch, Sign(held(0, 1), reads.version))
                await asyncio.sleep(0.02)
        assert members(rig) == ["a", "b"]
        assert rig.plane.group_versions["g"] > reads.version


async def test_a_member_that_leaves_hands_over_at_once_and_a_group_that_is_gone_has_no_version() -> None:
    async with running() as rig:
        await joined_and_reading(rig)
        before = rig.plane.group_versions["g"]
        await rig.groups.leave("g", "a", 5.0)
        assert rig.plane.group_versions["g"] > before
        epoch = rig.controller.state.groups["g"].epoch
        assert numbers(rig.groups.assignments("g", "b", epoch)) == [0, 1]
        await rig.groups.leave("g", "b", 5.0)
        assert rig.plane.group_versions["g"] == 0


async def test_a_member_that_does_not_hand_over_gets_all_at_once_and_no_version() -> None:
    async with running() as rig:
        await rig.controller.create_stream(stream_request(partitions=2), 5.0)
        await rig.groups.join("g", "a", ("orders",), 5.0, hands_over=True)
        rig.groups.assignments("g", "a", 0)
        await rig.groups.join("g", "f", ("orders",), 5.0)
        reads = rig.groups.assignments("g", "f", rig.controller.state.groups["g"].epoch)
        assert (numbers(reads), reads.version) == ([1], 0)


async def test_after_a_restart_a_partition_is_withheld_until_its_reader_was_heard() -> None:
    disk = Disk()
    async with running(disk) as rig:
        epoch, _ = await joined_and_reading(rig)
    async with running(disk) as rig:
        assert numbers(rig.groups.assignments("g", "b", epoch)) == []
        reads = rig.groups.assignments("g", "a", epoch, Sign(held(0, 1)))
        assert numbers(reads) == [0]
        assert numbers(rig.groups.assignments("g", "b", epoch)) == []
        rig.groups.assignments("g", "a", epoch, Sign(held(0), reads.version))
        assert numbers(rig.groups.assignments("g", "b", epoch)) == [1]


async def test_a_member_is_distinguished_from_an_earlier_one_of_its_id() -> None:
    async with running() as rig:
        await rig.controller.create_stream(stream_request(partitions=2), 5.0)
        first = await rig.groups.join("g", "a", ("orders",), 5.0)
        assert (first.epoch, first.generation) == (0, rig.controller.state.index)
        await rig.groups.leave("g", "a", 5.0, first.generation)
        second = await rig.groups.join("g", "a", ("orders",), 5.0)
        assert (second.epoch, second.generation) == (0, rig.controller.state.index)
        with pytest.raises(RejectedError, match="consumer is not a member of the consumer group"):
            rig.groups.assignments("g", "a", 0, joined=first.generation)
        with pytest.raises(RejectedError, match="consumer a is not a member of group g"):
            await rig.groups.leave("g", "a", 5.0, first.generation)
        third = await rig.groups.join("g", "b", ("orders",), 5.0)
        assert third.epoch == third.generation == third.joined
        for joined in (0, second.generation):
            assert numbers(rig.groups.assignments("g", "a", third.epoch, joined=joined)) == [0]


async def test_members_that_join_at_once_learn_with_which_entry_each_of_them_joined() -> None:
    async with running() as rig:
        await rig.controller.create_stream(stream_request(partitions=2), 5.0)
        names = ("a", "b", "c", "d")
        answers = await asyncio.gather(*(rig.groups.join("g", name, ("orders",), 5.0) for name in names))
        present = {item.id: item.joined for item in rig.controller.state.groups["g"].members}
        assert {name: answer.joined for name, answer in zip(names, answers, strict=True)} == present
        assert any(answer.joined < answer.generation for answer in answers), "they did not join at once"


class Leased:
    """Rules of a cluster whose controller has or has not heard this broker."""

    def __init__(self) -> None:
        self.heard = True

    def has_lease(self) -> bool:
        return self.heard


async def test_a_coordinator_without_a_lease_answers_nobody_and_expels_nobody() -> None:
    async with running(timeouts=HASTY) as rig:
        await joined(rig, "a")
        leased: Any = Leased()
        rig.controller.rules, leased.heard = leased, False
        with pytest.raises(RejectedError) as refused:
            rig.groups.assignments("g", "a", rig.controller.state.groups["g"].epoch)
        assert refused.value.rejection.code is RejectionCode.NO_LEASE
        await asyncio.sleep(1.5)  # longer than its time
        assert members(rig) == ["a"]
        leased.heard = True
        await until(lambda: not members(rig), LIMIT_S)
