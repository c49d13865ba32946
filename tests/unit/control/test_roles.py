"""Roles of replicas, as values; and that an ISR opens nothing again."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bascule.control.reconcile import plan
from bascule.control.roles import Roles, role_changes, role_of
from bascule.metadata import (
    Applied,
    Broker,
    CreateStream,
    Partition,
    PauseStream,
    Placement,
    State,
    Stream,
    StreamKey,
    StreamSettings,
    apply,
    decode_command,
)
from bascule.metadata.replica_commands import ChangeIsr, EndLeader, IsrChange, Verified
from bascule.metadata.replicas import Loss

from tests.unit.control.test_cluster import Log, founded

NAMES = ("b1", "b2", "b3")
KEY = StreamKey("default", "s")


async def replicated(*placements: Placement) -> State:
    """A cluster of three with the stream `s`."""
    log = Log()
    await founded(log)
    await log.propose(CreateStream("default", "s", "s", "", 5, StreamSettings(), placements), 1)
    return log.state


def partition_of(state: State, number: int = 0) -> Partition:
    return state.streams[KEY].partitions[number]


def shrunk(state: State) -> State:
    """Without the last replica in sync."""
    partition, leader = partition_of(state), state.brokers[partition_of(state).leader]
    isr = tuple(name for name in partition.isr if name != NAMES[2])
    change = IsrChange(partition.incarnation, partition.leader_epoch, partition.epoch, isr)
    after, result = apply(state, state.index + 1, ChangeIsr(leader.id, leader.boot_epoch, (change,)))
    assert isinstance(result, Applied)
    return after


class Plane:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[int, Mapping[str, Any]]] = []

    def set_roles(self, index: int, changes: Mapping[str, Any]) -> None:
        self.given.append((index, changes))


async def test_a_role_names_brokers_by_their_numbers_and_has_every_flag() -> None:
    state = await replicated(Placement(NAMES, "b2"))
    partition = replace(partition_of(state), unclean=("b1",), cut=("b3",), losses=(Loss(9, -1, 0, "cut"),))
    role = role_of(state.brokers, state.streams[KEY], partition)
    assert (role["leader"], role["isr"], role["eligible"], role["min_isr"]) == (2, [1, 2, 3], [1, 2, 3], 2)
    assert [item["id"] for item in role["replicas"]] == [1, 2, 3]
    assert [item["unclean"] for item in role["replicas"]] == [True, False, False]
    assert [item["cut"] for item in role["replicas"]] == [False, False, True]
    assert all(item["confirmed"] for item in role["replicas"])
    assert [item["boot_epoch"] for item in role["replicas"]] == [state.brokers[name].boot_epoch for name in NAMES]
    assert role["losses"] == [(9, 0)]
    assert role_of(state.brokers, state.streams[KEY], replace(partition, leader=""))["leader"] == 0


async def test_only_roles_that_changed_are_shown_and_those_that_are_gone_removed() -> None:
    state = await replicated(Placement(NAMES, "b1"), Placement(("b2",), "b2"), Placement(("b2", "b3"), "b3"))
    plane = Plane()
    roles = Roles(plane, "b2")
    roles.follow(state)
    index, changes = plane.given[-1]
    first, third = partition_of(state), partition_of(state, 2)
    assert (index, changes["broker"], changes["removed"], changes["applied"]) == (state.index, 2, [], state.index)
    assert [role["incarnation"] for role in changes["roles"]] == [first.incarnation, third.incarnation]

    roles.follow(state)
    roles.follow(state.at(state.index + 1))
    nothing = {"broker": 2, "roles": [], "removed": [], "changed": []}
    assert plane.given[1:] == [(index, {**nothing, "applied": index}) for index in (state.index, state.index + 1)]

    after = shrunk(state)
    roles.follow(after)
    index, changes = plane.given[-1]
    assert index == after.index
    assert [(role["incarnation"], role["isr"]) for role in changes["roles"]] == [(first.incarnation, [1, 2])]
    assert changes["changed"] == [(1, False), (2, False), (3, False)]

    roles.follow(replace(after, streams={}))
    assert plane.given[-1][1]["removed"] == [first.incarnation, third.incarnation]


async def test_the_registration_of_a_replica_changes_the_roles_of_its_partitions() -> None:
    state = await replicated(Placement(NAMES, "b1"))
    plane = Plane()
    roles = Roles(plane, "b1")
    roles.follow(state)
    broker: Broker = replace(state.brokers["b3"], boot_epoch=99, run="registered")
    roles.follow(replace(state, brokers={**state.brokers, "b3": broker}))
    (role,) = plane.given[-1][1]["roles"]
    assert role["replicas"][2] == {**role["replicas"][1], "id": 3, "boot_epoch": 99, "confirmed": False}


async def test_a_change_of_roles_opens_nothing_again_and_leads_nothing_past_them() -> None:
    state = await replicated(Placement(NAMES, "b1"))
    first = plan(replace(state, streams={}), state, "b1")
    assert [item.incarnation for _, item in first.open] == [partition_of(state).incarnation]
    assert first.lead == ()
    steps = plan(state, shrunk(state), "b1")
    assert (steps.open, steps.lead, steps.close, steps.delete) == ((), (), (), ())
    assert [stream.key for stream in steps.streams] == [KEY]


async def test_a_change_of_settings_opens_replicas_with_them() -> None:
    state = await replicated(Placement(NAMES, "b1"))
    stream: Stream = replace(state.streams[KEY], settings=StreamSettings(retention_bytes=7))
    steps = plan(state, replace(state, streams={KEY: stream}), "b2")
    assert [item.incarnation for _, item in steps.open] == [partition_of(state).incarnation]
    readonly = replace(partition_of(state), readonly=True)
    steps = plan(state, replace(state, streams={KEY: replace(state.streams[KEY], partitions=(readonly,))}), "b2")
    assert len(steps.open) == 1


async def test_an_entry_names_the_brokers_whose_roles_it_changes_and_whom_it_ends() -> None:
    state = await replicated(Placement(NAMES[:2], "b2"), Placement(("b3",), "b3"))
    first = partition_of(state)
    after, result = apply(state, state.index + 1, EndLeader(first.incarnation, first.epoch))
    assert isinstance(result, Applied)
    assert role_changes(state, after) == [(1, False), (2, True)]
    assert role_changes(after, after.at(after.index + 1)) == []
    assert role_changes(State(), after) == [(1, False), (2, True)]
    paused = pause(after, 1)
    assert role_changes(after, paused) == [(3, True)]


def pause(state: State, number: int) -> State:
    """With a partition that is paused."""
    command = PauseStream("default", "s", state.streams[KEY].incarnation, (number,), False, 7)
    after, result = apply(state, state.index + 1, command)
    assert isinstance(result, Applied)
    return after


async def test_a_leader_without_other_replicas_has_stopped_when_its_partition_is_closed() -> None:
    state = await replicated(Placement(NAMES, "b1"), Placement(("b2",), "b2"))
    plane = Plane()
    roles = Roles(plane, "b2")
    roles.follow(state)
    roles.on_carried_out(state)
    paused = pause(state, 1)
    roles.follow(paused)
    later = paused.at(paused.index + 3)
    roles.follow(later)
    assert [changes["applied"] for _, changes in plane.given] == [state.index, state.index, state.index]
    roles.on_carried_out(state.at(paused.index - 1))
    assert len(plane.given) == 3
    roles.on_carried_out(paused)
    assert plane.given[-1][0] == plane.given[-1][1]["applied"] == later.index
    other = Plane()
    Roles(other, "b1").follow(paused)
    assert other.given[-1][1]["applied"] == paused.index


def test_a_growth_names_the_runs_that_were_verified() -> None:
    """The entry that the data plane writes is one that this program reads."""
    entry = (
        b'{"v":1,"type":"change_isr","body":{"broker_id":"b1","boot_epoch":3,"changes":[{"incarnation":65536,'
        b'"leader_epoch":4,"partition_epoch":5,"isr":["b1","b2"],"verified":[{"broker_id":"b2","boot_epoch":9}]}]}}'
    )
    change = IsrChange(65536, 4, 5, ("b1", "b2"), (Verified("b2", 9),))
    assert decode_command(entry) == ChangeIsr("b1", 3, (change,))
