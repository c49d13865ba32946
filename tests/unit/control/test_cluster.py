"""A broker on its way into a cluster: which entry comes next, whatever the state is."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from bascule.control import StreamRequest, decide
from bascule.control.cluster import ClusterRules, Identity, Membership, RunFacts, is_registered, next_step
from bascule.errors import BrokerError, error
from bascule.metadata import CreateStream, EditStream, PurgeStream, RegisterBroker, State, StreamSettings, apply
from bascule.metadata.model import initial_state
from bascule.metadata.rejection import RejectedError, Rejection
from bascule.metadata.replica_commands import Addresses, FenceBroker, Finalize, JoinBroker, Register

from tests.unit.control.fake_plane import until

NAMES = ("b1", "b2", "b3")


def identity(name: str) -> Identity:
    return Identity(name, Addresses("localhost", 9292, "127.0.0.1", 7000 + int(name[1:])), "b1")


def facts(name: str, nonce: int = 7, directory: str = "") -> RunFacts:
    return RunFacts(nonce, 0, directory or f"directory of {name}", "c0ffee", int(name[1:]), "kernel", "mount")


class Log:
    """A log that commits at once, except that it first fails with these errors."""

    def __init__(self, *refused: Exception) -> None:
        self.state: State = initial_state().at(2)
        self.refused = list(refused)

    def now_ns(self) -> int:
        return 1_000

    async def propose(self, command: Any, timeout_s: float) -> int:
        assert timeout_s > 0
        if self.refused:
            raise self.refused.pop(0)
        self.state, result = apply(self.state, self.state.index + 1, command)
        if isinstance(result, Rejection):
            raise RejectedError(result)
        return self.state.index


class Plane:
    """A data plane of one broker that stores its boot epochs."""

    def __init__(self, run: RunFacts) -> None:
        self.run = run
        self.stored: list[int] = []
        self.connected = ["b3"]
        self.controller: str | None = "b3"
        self.has_stopped = False

    def cluster_run(self) -> dict[str, Any]:
        return {name: getattr(self.run, name) for name in RunFacts.__slots__}

    def store_boot_epoch(self, boot_epoch: int) -> None:
        self.stored.append(boot_epoch)

    def begin_run(self) -> None:
        self.run = replace(self.run, nonce=self.run.nonce + 100, stored=self.stored[-1])

    def cluster_status(self) -> dict[str, Any]:
        return {"connected": self.connected, "controller": self.controller}

    def stop_leading(self) -> None:
        self.has_stopped = True


async def founded(log: Log, names: tuple[str, ...] = NAMES) -> dict[str, Plane]:
    planes = {name: Plane(facts(name)) for name in names}
    for name, plane in planes.items():
        membership = Membership(log, plane, identity(name))
        await membership.register()
        await membership.confirm()
    return planes


async def test_three_brokers_found_a_cluster_of_level_2_in_which_all_vote() -> None:
    log = Log()
    planes = await founded(log)
    assert (log.state.level, log.state.cluster_id, log.state.voters) == (2, "c0ffee", (1, 2, 3))
    for name, plane in planes.items():
        broker = log.state.brokers[name]
        assert (broker.run, broker.raft_id, broker.directory_id) == ("confirmed", int(name[1:]), f"directory of {name}")
        assert plane.stored == [broker.boot_epoch]
        assert broker.peer_port == 7000 + int(name[1:])


async def test_each_entry_follows_from_the_state_before() -> None:
    log, run = Log(), facts("b1")
    steps: list[type[object]] = []
    while not is_registered(log.state, identity("b1"), run):
        step = next_step(log.state, identity("b1"), run, 1)
        steps.append(type(step))
        await log.propose(step, 1)
    assert steps == [RegisterBroker, Finalize, Register]
    assert next_step(log.state, identity("b1"), run, 1) is None
    assert isinstance(next_step(log.state, identity("b2"), facts("b2"), 1), JoinBroker)


def test_others_wait_for_the_founder() -> None:
    assert next_step(initial_state(), identity("b2"), facts("b2"), 1) is None


async def test_a_later_run_registers_again_and_leads_what_it_led() -> None:
    log = Log()
    await founded(log)
    request = StreamRequest("default", "s", "s", "", 1, 1, StreamSettings())
    command = decide.create_stream(log.state, request, 1, reachable=frozenset({"b2"}))
    await log.propose(command, 1)
    plane = Plane(replace(facts("b2", nonce=8), stored=log.state.brokers["b2"].boot_epoch))
    membership = Membership(log, plane, identity("b2"))
    await membership.register()
    assert log.state.streams["default", "s"].partitions[0].leader == ""  # type: ignore[index]
    await membership.confirm()
    partition = log.state.stream("default", "s").partitions[0]  # type: ignore[union-attr]
    assert (partition.leader, partition.unclean) == ("b2", ())
    assert partition.leader_epoch > log.state.brokers["b2"].boot_epoch


async def test_a_fenced_run_is_followed_by_another_one_that_leads_again() -> None:
    log = Log()
    planes = await founded(log)
    request = StreamRequest("default", "s", "s", "", 1, 1, StreamSettings())
    await log.propose(decide.create_stream(log.state, request, 1, reachable=frozenset({"b2"})), 1)
    membership = Membership(log, planes["b2"], identity("b2"))
    carried: list[int] = []

    async def carry_out() -> None:
        carried.append(log.state.index)

    keeping = asyncio.create_task(membership.keep(carry_out))
    await asyncio.sleep(0)
    first = log.state.brokers["b2"].boot_epoch
    await log.propose(FenceBroker("b2", first, ("b1", "b3"), 5), 1)
    assert log.state.streams["default", "s"].partitions[0].leader == ""  # type: ignore[index]
    membership.on_state(log.state)
    await until(lambda: log.state.brokers["b2"].run == "confirmed")
    again = log.state.brokers["b2"]
    assert again.boot_epoch > first
    assert (planes["b2"].stored[-1], again.fenced_ns) == (again.boot_epoch, 0)
    assert carried == [again.boot_epoch]
    partition = log.state.streams["default", "s"].partitions[0]  # type: ignore[index]
    assert (partition.leader, partition.unclean) == ("b2", ())
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


async def test_a_planned_stop_ends_the_run_once_leaders_take_no_more_and_begins_no_other() -> None:
    log = Log()
    planes = await founded(log)
    membership = Membership(log, planes["b1"], identity("b1"))
    keeping = asyncio.create_task(membership.keep(_nothing))
    await membership.leave()
    assert planes["b1"].has_stopped
    assert log.state.brokers["b1"].run == "fenced"
    membership.on_state(log.state)
    await asyncio.sleep(0.01)
    assert planes["b1"].run.nonce == 7
    assert not keeping.done()
    keeping.cancel()


@pytest.mark.parametrize("alone", ["nobody is connected", "no controller", "never confirmed"])
async def test_a_broker_that_nobody_can_follow_stops_without_a_goodbye(alone: str) -> None:
    log = Log()
    planes = await founded(log)
    if alone == "nobody is connected":
        planes["b1"].connected = []
    elif alone == "no controller":
        planes["b1"].controller = None
    else:
        await Membership(log, planes["b1"], identity("b1")).leave()
        planes["b1"].has_stopped = False
    index = log.state.index
    await Membership(log, planes["b1"], identity("b1")).leave()
    assert log.state.index == index
    assert not planes["b1"].has_stopped


async def test_a_goodbye_that_is_not_committed_lets_the_broker_stop_all_the_same() -> None:
    log = Log()
    planes = await founded(log)
    log.refused.append(error("no_quorum", "nobody answers"))
    await Membership(log, planes["b1"], identity("b1")).leave()
    assert planes["b1"].has_stopped
    assert log.state.brokers["b1"].run == "confirmed"


async def _nothing() -> None:
    """What is applied is carried out."""


async def test_a_run_that_is_fenced_before_it_may_lead_is_followed_by_another_one() -> None:
    log = Log()
    planes = await founded(log)
    plane = planes["b2"]
    plane.begin_run()
    membership = Membership(log, plane, identity("b2"))
    fenced: list[int] = []

    async def carry_out() -> None:
        if not fenced:
            fenced.append(log.state.brokers["b2"].boot_epoch)
            await log.propose(FenceBroker("b2", fenced[0], (), 5), 1)

    await membership.enter(carry_out)
    assert log.state.brokers["b2"].run == "confirmed"
    assert plane.stored[-1] == log.state.brokers["b2"].boot_epoch > fenced[0]


async def test_an_id_of_another_directory_is_refused_by_name() -> None:
    log = Log()
    await founded(log)
    with pytest.raises(BrokerError, match="broker id b2 belongs to another data directory") as refused:
        next_step(log.state, identity("b2"), facts("b2", directory="another"), 1)
    assert refused.value.code == "broker_id_in_use"


async def test_a_start_continues_after_errors_that_pass() -> None:
    log = Log(error("no_quorum", "nobody"), error("metadata_timeout", "late"))
    await founded(log, ("b1",))
    assert log.state.brokers["b1"].run == "confirmed"
    stopped = Log(error("metadata_stopped", "over"))
    with pytest.raises(BrokerError, match="over"):
        await founded(stopped, ("b1",))


async def test_new_partitions_go_to_confirmed_brokers_that_are_reached() -> None:
    log = Log()
    await founded(log)
    request = StreamRequest("default", "s", "s", "", 6, 1, StreamSettings())
    command = decide.create_stream(log.state, request, 1, reachable=frozenset({"b1", "b3"}))
    assert isinstance(command, CreateStream)
    assert {item.leader for item in command.placements} == {"b1", "b3"}
    refused = decide.create_stream(log.state, request, 1, reachable=frozenset())
    assert isinstance(refused, Rejection)
    assert "0 of 3 brokers take replicas now" in refused.message


async def test_a_purge_and_an_edit_name_what_their_proposer_saw() -> None:
    log = Log()
    await founded(log)
    request = StreamRequest("default", "s", "s", "", 2, 1, StreamSettings())
    await log.propose(decide.create_stream(log.state, request, 1), 1)
    edit = decide.edit_stream(log.state, "default", "s", {"retention_bytes": 5})
    assert isinstance(edit, EditStream)
    await log.propose(edit, 1)
    purge = decide.purge_stream(log.state, "default", "s")
    assert isinstance(purge, PurgeStream)
    await log.propose(purge, 1)
    stream = log.state.stream("default", "s")
    assert stream is not None
    assert stream.settings.retention_bytes == 5
    assert {item.incarnation for item in stream.partitions}.isdisjoint(purge.partition_incarnations)


@pytest.mark.parametrize(
    ("factor", "settings", "text"),
    [
        (1, StreamSettings(encryption=True), "encryption of streams is not available with several brokers yet"),
        (3, StreamSettings(encryption=True), "encryption of streams is not available with several brokers yet"),
        (2, StreamSettings(nats_acks="jetstream"), "natsAcks is not available with several replicas yet"),
        (3, StreamSettings(auto_pause_ms=1), "autoPauseTime is not available with several replicas yet"),
    ],
)
def test_what_is_not_safe_yet_is_refused_by_name(factor: int, settings: StreamSettings, text: str) -> None:
    rules = ClusterRules(Plane(facts("b2")), "b2")
    with pytest.raises(BrokerError, match=text) as refused:
        rules.check(StreamRequest("default", "s", "s", "", 1, factor, settings))
    assert refused.value.code == "cluster_unsupported"
    rules.check(StreamRequest("default", "s", "s", "", 1, 3, StreamSettings(min_isr=2)))
    rules.check(StreamRequest("default", "s", "s", "", 1, 3, StreamSettings(compact_enabled=True)))
    assert rules.reachable() == {"b2", "b3"}
