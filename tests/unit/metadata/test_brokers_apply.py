"""Brokers: joining, registration, confirmation and fencing, and what they do to partitions and groups."""

from dataclasses import replace

import pytest
from bascule.metadata import (
    Applied,
    Command,
    CreateStream,
    JoinGroup,
    Partition,
    Placement,
    RegisterBroker,
    Rejection,
    RejectionCode,
    State,
    StreamKey,
    StreamSettings,
    apply,
    initial_state,
)
from bascule.metadata.replica_commands import (
    Addresses,
    ConfirmBroker,
    EndLeader,
    FenceBroker,
    Finalize,
    JoinBroker,
    ReplicaReport,
)
from bascule.metadata.replicas import Loss, Position, Versions

from tests.unit.metadata.cluster_rig import HERE, LEVELS, Cluster, register_command


def code_of(state: State, command: Command) -> RejectionCode:
    after, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection), command
    assert after == state.at(after.index)
    return result.code


def test_level_2_makes_the_only_broker_the_first_voter_and_keeps_its_partitions() -> None:
    state = initial_state()
    for command in (
        RegisterBroker("a", "h", 1, 1),
        CreateStream("default", "o", "", "", 1, StreamSettings(), (Placement(("a",), "a"),)),
        CreateStream("default", "m", "", "", 1, StreamSettings(durability="memory"), (Placement(("a",), "a"),)),
        Finalize(2, "uuid"),
    ):
        state, result = apply(state, state.index + 1, command)
        assert result == Applied(state.index)
    assert (state.level, state.cluster_id, state.voters) == (2, "uuid", (4,))
    partition = state.streams[StreamKey("default", "o")].partitions[0]
    assert (partition.leader, partition.eligible, partition.min_isr, partition.epoch) == ("a", ("a",), 1, 2)
    assert state.streams[StreamKey("default", "m")].partitions[0].volatile == ("a",)
    state, _ = apply(state, 5, register_command("a", 7))
    partition = state.streams[StreamKey("default", "o")].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.isr) == ("", 5, ("a",))
    assert state.streams[StreamKey("default", "m")].partitions[0].unclean == ()
    state, _ = apply(state, 6, ConfirmBroker("a", 5))
    partition = state.streams[StreamKey("default", "o")].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.losses) == ("a", 6, ())


def test_a_level_is_raised_by_one_and_from_one_broker() -> None:
    state, _ = apply(initial_state(), 1, RegisterBroker("a", "h", 1, 1))
    assert code_of(state, Finalize(1, "c")) == RejectionCode.CLUSTER_VERSION
    assert code_of(state, Finalize(3, "c")) == RejectionCode.CLUSTER_VERSION
    assert code_of(state, Finalize(2, "")) == RejectionCode.INVALID
    two, _ = apply(state, 2, RegisterBroker("b", "h", 1, 1))
    assert code_of(two, Finalize(2, "c")) == RejectionCode.CLUSTER_VERSION
    assert code_of(initial_state(), Finalize(2, "c")) == RejectionCode.CLUSTER_VERSION


def test_a_broker_id_is_given_once() -> None:
    cluster = Cluster()
    again = JoinBroker("b", "other", HERE, LEVELS, "", 1)
    assert code_of(cluster.state, again) == RejectionCode.BROKER_ID_IN_USE
    assert cluster.state.brokers["b"].raft_id > 0


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (JoinBroker("d", "x", HERE, Versions(1, 1), "", 1), RejectionCode.CLUSTER_VERSION),
        (JoinBroker("d", "x", HERE, Versions(3, 4), "", 1), RejectionCode.CLUSTER_VERSION),
        (JoinBroker("", "x", HERE, LEVELS, "", 1), RejectionCode.INVALID),
        (JoinBroker("d", "", HERE, LEVELS, "", 1), RejectionCode.INVALID),
        (JoinBroker("d", "x", HERE, LEVELS, "r" * 256, 1), RejectionCode.INVALID),
        (JoinBroker("d", "x", Addresses("", 1), LEVELS, "", 1), RejectionCode.INVALID),
        (JoinBroker("d", "x", Addresses("h", 65536), LEVELS, "", 1), RejectionCode.INVALID),
        (JoinBroker("d", "x", Addresses("h", 1, "p", -1), LEVELS, "", 1), RejectionCode.INVALID),
        (register_command("d", 9), RejectionCode.BROKER_UNKNOWN),
        (register_command("a", 0), RejectionCode.INVALID),
        (register_command("a", 9, stored=-1), RejectionCode.INVALID),
        (register_command("a", 9, versions=Versions(1, 1)), RejectionCode.CLUSTER_VERSION),
        (ConfirmBroker("d", 1), RejectionCode.BROKER_UNKNOWN),
        (FenceBroker("d", 1, ()), RejectionCode.BROKER_UNKNOWN),
        (RegisterBroker("a", "h", 1, 1), RejectionCode.CLUSTER_VERSION),
    ],
)
def test_what_cannot_be_applied_changes_nothing(command: Command, code: RejectionCode) -> None:
    assert code_of(Cluster().state, command) == code


def test_every_led_partition_has_a_new_epoch_after_a_registration() -> None:
    cluster = Cluster(partitions=3, leaders=("a", "b", "a"))
    before = cluster.partitions
    cluster.do(register_command("a", 77, stored=cluster.boot("a")))
    index = cluster.state.index
    assert [item.leader for item in cluster.partitions] == ["b", "b", "b"]
    assert [item.leader_epoch for item in cluster.partitions] == [index, before[1].leader_epoch, index]
    assert all(item.isr == ("a", "b", "c") for item in cluster.partitions)
    assert all(item.unclean == () for item in cluster.partitions)


def test_the_same_broker_leads_in_a_new_epoch_when_nobody_else_can() -> None:
    cluster = Cluster(partitions=1, replicas=("a",))
    before = cluster.partitions[0]
    cluster.restart("a")
    after = cluster.partitions[0]
    assert (before.leader, after.leader) == ("a", "a")
    assert after.leader_epoch == cluster.state.index > before.leader_epoch


@pytest.mark.parametrize(("changes", "unclean"), [({}, ()), ({"directory_id": "new"}, ("b",)), ({"stored": 1}, ("b",))])
def test_a_lost_directory_makes_unclean(changes: dict[str, object], unclean: tuple[str, ...]) -> None:
    cluster = Cluster()
    cluster.do(register_command("b", 77, **{"stored": cluster.boot("b"), **changes}))
    partition = cluster.partitions[0]
    assert (partition.unclean, partition.leader) == (unclean, "a")
    assert partition.isr == (("a", "c") if unclean else ("a", "b", "c"))
    assert partition.eligible == partition.isr
    assert (partition.epoch == cluster.state.index) == bool(unclean)


def test_w12_a_boot_epoch_that_was_never_confirmed_loses_nothing() -> None:
    cluster = Cluster()
    cluster.do(register_command("b", 77, stored=cluster.boot("b")))
    cluster.do(register_command("b", 78, stored=cluster.boot("b")))
    assert cluster.partitions[0].unclean == ()


@pytest.mark.parametrize("changes", [{"kernel_boot_id": "k2"}, {"mount_id": "m2"}])
def test_a_new_kernel_loses_what_is_volatile(changes: dict[str, object]) -> None:
    memory = Cluster(settings=StreamSettings(durability="memory"))
    memory.do(register_command("b", 77, stored=memory.boot("b"), **changes))
    assert memory.partitions[0].unclean == ("b",)
    disk = Cluster()
    disk.do(register_command("b", 77, stored=disk.boot("b"), **changes))
    assert disk.partitions[0].unclean == ()


def test_a_registration_is_applied_once() -> None:
    cluster = Cluster()
    command = register_command("b", 77, stored=cluster.boot("b"))
    cluster.do(command)
    assert code_of(cluster.state, command) == RejectionCode.STALE_EPOCH


def test_a_late_copy_of_a_confirmation_changes_nothing() -> None:
    cluster = Cluster()
    boot = cluster.boot("b")
    command = ConfirmBroker("b", boot, (ReplicaReport(cluster.partitions[0].incarnation, ("unclean",)),))
    assert code_of(cluster.state, command) == RejectionCode.STALE_EPOCH
    cluster.do(FenceBroker("b", boot, ("a", "c")))
    assert code_of(cluster.state, command) == RejectionCode.STALE_EPOCH


@pytest.mark.parametrize(
    "report",
    [
        ReplicaReport(1, ("unclean", "unclean")),
        ReplicaReport(1, ("unable", "able")),
        ReplicaReport(1, (), Position(1, 5, 6)),
        ReplicaReport(1, (), Position(-1, 5, 5)),
        ReplicaReport(1, (), Position(1, 5, -1)),
        ReplicaReport(1, (), leader_epoch=4),
        ReplicaReport(1, (), broker_id="c"),
        ReplicaReport(1, (), durable_past=0),
    ],
)
def test_a_confirmation_with_a_report_that_makes_no_sense_is_refused(report: ReplicaReport) -> None:
    cluster = Cluster()
    cluster.do(register_command("b", 77, stored=cluster.boot("b")))
    assert code_of(cluster.state, ConfirmBroker("b", cluster.boot("b"), (report,))) == RejectionCode.INVALID


def test_after_a_power_cut_the_most_complete_leads_when_all_have_reported() -> None:
    cluster = Cluster()
    for name in ("a", "b", "c"):
        cluster.do(register_command(name, 70 + ord(name), stored=cluster.boot(name)))
    assert cluster.partitions[0].leader == ""
    incarnation = cluster.partitions[0].incarnation
    for name, end in (("c", 98), ("a", 95), ("b", 97)):
        assert cluster.partitions[0].leader == ""
        report = ReplicaReport(incarnation, ("cut",), Position(9, end, 90))
        cluster.do(ConfirmBroker(name, cluster.boot(name), (report,)))
    partition = cluster.partitions[0]
    assert (partition.leader, partition.cut, partition.reports) == ("c", ("a", "b"), ())
    assert partition.losses == (Loss(cluster.state.index, 98, 0, "cut"),)


def test_a_fence_takes_a_broker_out_of_every_isr_and_chooses_among_the_live() -> None:
    cluster = Cluster(partitions=2, leaders=("a", "b"))
    cluster.do(FenceBroker("a", cluster.boot("a"), ("c",)))
    first, second = cluster.partitions
    assert (first.leader, first.isr, first.eligible, first.leader_epoch) == (
        "c",
        ("b", "c"),
        ("b", "c"),
        cluster.state.index,
    )
    assert (second.leader, second.isr) == ("b", ("b", "c"))
    assert second.leader_epoch < second.epoch == cluster.state.index
    cluster.do(FenceBroker("b", cluster.boot("b"), ("c",)))
    assert [(item.leader, item.isr, item.eligible) for item in cluster.partitions] == [("c", ("c",), ("b", "c"))] * 2


def test_a_fence_is_applied_once_and_names_others_as_live() -> None:
    cluster = Cluster()
    boot = cluster.boot("a")
    assert code_of(cluster.state, FenceBroker("a", boot, ("a",))) == RejectionCode.INVALID
    assert code_of(cluster.state, FenceBroker("a", boot, ("b", "b"))) == RejectionCode.INVALID
    assert code_of(cluster.state, FenceBroker("a", boot + 1, ())) == RejectionCode.STALE_EPOCH
    cluster.do(FenceBroker("a", boot, ("b",)))
    assert code_of(cluster.state, FenceBroker("a", boot, ("b",))) == RejectionCode.STALE_EPOCH


def test_a_run_that_has_not_confirmed_can_be_fenced() -> None:
    cluster = Cluster()
    cluster.do(register_command("b", 77, stored=cluster.boot("b")))
    cluster.do(FenceBroker("b", cluster.boot("b"), ("a", "c")))
    assert cluster.partitions[0].isr == ("a", "c")


@pytest.mark.parametrize("by_fence", [True, False])
def test_n28_a_new_run_or_a_fence_settles_what_an_earlier_run_was_asked_to_end(by_fence: bool) -> None:
    cluster = Cluster()
    cluster.do(EndLeader(cluster.partitions[0].incarnation, cluster.partitions[0].epoch))
    ending = cluster.partitions[0].ending
    assert cluster.partitions[0].leader == ""
    assert ending is not None
    assert (ending.broker, ending.boot_epoch, ending.index) == ("a", cluster.boot("a"), cluster.state.index)
    if by_fence:
        cluster.do(FenceBroker("a", cluster.boot("a"), ("b", "c")))
    else:
        cluster.do(register_command("a", 77, stored=cluster.boot("a")))
    assert (cluster.partitions[0].leader, cluster.partitions[0].ending) == ("b", None)


def test_groups_of_a_dead_broker_go_to_the_others() -> None:
    cluster = Cluster()
    for number in range(20):
        cluster.do(JoinGroup(f"g{number}", "m", ("o",), "a"))
    before = cluster.state.groups
    cluster.do(FenceBroker("a", cluster.boot("a"), ("b", "c")))
    groups = cluster.state.groups.values()
    assert {item.coordinator for item in groups} == {"b", "c"}
    assert all(item.epoch == cluster.state.index for item in groups)
    assert all(item.members == before[item.id].members for item in groups)


def test_a_group_without_a_live_coordinator_gets_the_first_broker_that_returns() -> None:
    cluster = Cluster()
    cluster.do(JoinGroup("g", "m", ("o",), "a"))
    for name in ("b", "c", "a"):
        cluster.do(FenceBroker(name, cluster.boot(name), ()))
    assert cluster.state.groups["g"].coordinator == "a"
    cluster.do(register_command("c", 77, stored=cluster.boot("c")))
    assert cluster.state.groups["g"].coordinator == "a"
    cluster.do(ConfirmBroker("c", cluster.boot("c")))
    assert cluster.state.groups["g"].coordinator == "c"


def test_a_removed_broker_does_not_return() -> None:
    cluster = Cluster()
    gone = replace(cluster.state.brokers["c"], removed=True, run="fenced")
    state = replace(cluster.state, brokers={**cluster.state.brokers, "c": gone})
    assert code_of(state, register_command("c", 77)) == RejectionCode.BROKER_UNKNOWN


def test_a_partition_of_others_is_left_alone() -> None:
    cluster = Cluster(replicas=("a", "b"))
    before: Partition = cluster.partitions[0]
    cluster.restart("c")
    assert cluster.partitions[0] is before
