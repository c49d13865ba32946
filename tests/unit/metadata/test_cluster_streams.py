"""Streams and groups at level 2, answers to repeated proposals, and what a loss does to a sink and an archive."""

from dataclasses import replace

import pytest
from bascule.metadata import (
    Applied,
    ArchivedEnd,
    Command,
    CreateStream,
    EditStream,
    JoinGroup,
    PauseStream,
    Placement,
    PurgeStream,
    Rejection,
    RejectionCode,
    ReportArchived,
    ResumeStream,
    SetActivity,
    SetGroupCoordinator,
    State,
    StreamKey,
    StreamSettings,
    apply,
)
from bascule.metadata.commands import Plain, Proposed
from bascule.metadata.replica_commands import ChooseLeader, FenceBroker, ReplicaReport, ReportReplicas, StoppedLeading
from bascule.metadata.replicas import MAX_ANSWERS, Position, Proposal
from bascule.metadata.sink_commands import OpenSink, PublishSink
from bascule.metadata.sinks import TargetPartition, TargetStream

from tests.unit.metadata.cluster_rig import Cluster, register_command

KEY = StreamKey("default", "o")


def code_of(state: State, command: Command) -> RejectionCode:
    after, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection), command
    assert after == state.at(after.index)
    return result.code


def stream_index(cluster: Cluster) -> int:
    return cluster.state.streams[KEY].incarnation


def purge(cluster: Cluster) -> PurgeStream:
    seen = tuple(item.incarnation for item in cluster.partitions)
    return PurgeStream("default", "o", stream_index(cluster), seen)


def edit(cluster: Cluster, settings: StreamSettings) -> EditStream:
    return EditStream("default", "o", stream_index(cluster), settings, cluster.state.streams[KEY].settings)


def test_n40_a_broker_that_died_before_the_entry_is_neither_in_sync_nor_named() -> None:
    cluster = Cluster()
    cluster.do(FenceBroker("a", cluster.boot("a"), ("b", "c")))
    cluster.do(CreateStream("default", "p", "", "", 1, StreamSettings(), (Placement(("a", "c"), "a"),)))
    partition = cluster.state.streams[StreamKey("default", "p")].partitions[0]
    assert (partition.leader, partition.isr, partition.eligible, partition.min_isr) == ("c", ("c",), ("c",), 1)
    dead = CreateStream("default", "q", "", "", 1, StreamSettings(), (Placement(("a",), "a"),))
    assert code_of(cluster.state, dead) == RejectionCode.NOT_ENOUGH_BROKERS
    high = CreateStream("default", "q", "", "", 1, StreamSettings(min_isr=2), (Placement(("c",), "c"),))
    assert code_of(cluster.state, high) == RejectionCode.INVALID


def test_n48_a_purge_names_the_incarnations_that_its_proposer_saw() -> None:
    cluster = Cluster(partitions=2)
    cluster.do(
        ReportReplicas("b", cluster.boot("b"), (ReplicaReport(cluster.partitions[0].incarnation, ("unclean",)),))
    )
    command = purge(cluster)
    index = cluster.do(command)
    assert [item.incarnation for item in cluster.partitions] == [index << 16, (index << 16) + 1]
    assert all(item.isr == item.eligible == ("a", "b", "c") and not item.unclean for item in cluster.partitions)
    assert all((item.leader, item.leader_epoch) == ("a", index) for item in cluster.partitions)
    assert code_of(cluster.state, command) == RejectionCode.INCARNATION_CHANGED
    assert code_of(cluster.state, replace(command, partition_incarnations=())) == RejectionCode.INCARNATION_CHANGED


def test_n48_an_edit_names_the_settings_that_its_proposer_saw() -> None:
    cluster = Cluster()
    late = edit(cluster, StreamSettings(codec="lz4"))
    cluster.do(edit(cluster, StreamSettings(codec="zstd")))
    assert code_of(cluster.state, late) == RejectionCode.INVALID
    assert code_of(cluster.state, replace(late, seen=None)) == RejectionCode.INVALID


def test_an_edit_of_min_in_sync_decides_who_is_eligible() -> None:
    cluster = Cluster()
    cluster.do(FenceBroker("b", cluster.boot("b"), ("a", "c")))
    cluster.do(FenceBroker("c", cluster.boot("c"), ("a",)))
    assert cluster.partitions[0].eligible == ("a", "c")
    index = cluster.do(edit(cluster, StreamSettings(min_isr=1)))
    partition = cluster.partitions[0]
    assert (partition.eligible, partition.min_isr, partition.explicit_min_isr) == (("a",), 1, True)
    assert (partition.epoch, partition.leader) == (index, "a")
    assert code_of(cluster.state, edit(cluster, StreamSettings(min_isr=4))) == RejectionCode.INVALID


def test_a_change_of_class_is_past_when_the_replica_says_so_of_this_change() -> None:
    cluster = Cluster(settings=StreamSettings(durability="memory"))
    incarnation = cluster.partitions[0].incarnation

    def durable(since: int) -> None:
        report = ReplicaReport(incarnation, durable_past=since)
        cluster.do(ReportReplicas("b", cluster.boot("b"), (report,)))

    first = cluster.do(edit(cluster, StreamSettings()))
    assert cluster.partitions[0].volatile == ("a", "b", "c")
    durable(first)
    assert cluster.partitions[0].volatile == ("a", "c")
    cluster.do(edit(cluster, StreamSettings(durability="memory")))
    again = cluster.do(edit(cluster, StreamSettings()))
    durable(first)
    assert cluster.partitions[0].volatile == ("a", "b", "c")
    durable(again)
    assert cluster.partitions[0].volatile == ("a", "c")


def test_a_stream_that_was_compacted_stays_so_called() -> None:
    cluster = Cluster(settings=StreamSettings(compact_enabled=False))
    assert not cluster.state.streams[KEY].compacted
    cluster.do(edit(cluster, StreamSettings(compact_enabled=True)))
    cluster.do(edit(cluster, StreamSettings(compact_enabled=False)))
    assert cluster.state.streams[KEY].compacted


def pause(cluster: Cluster) -> int:
    return cluster.do(PauseStream("default", "o", stream_index(cluster), (0,), False, 1))


def resume(cluster: Cluster) -> int:
    return cluster.do(ResumeStream("default", "o", stream_index(cluster), (0,), False, 2))


def test_n45_while_a_paused_leader_may_not_know_only_that_one_is_named_again() -> None:
    cluster = Cluster()
    pause(cluster)
    assert (cluster.partitions[0].leader, cluster.partitions[0].paused) == ("", True)
    index = resume(cluster)
    assert (cluster.partitions[0].leader, cluster.partitions[0].leader_epoch) == ("a", index)
    assert cluster.partitions[0].ending is None


def test_n45_a_paused_leader_that_cannot_lead_keeps_others_out_until_it_has_stopped() -> None:
    cluster = Cluster()
    ended = pause(cluster)
    report = ReplicaReport(cluster.partitions[0].incarnation, ("unable",))
    cluster.do(ReportReplicas("a", cluster.boot("a"), (report,)))
    resume(cluster)
    assert (cluster.partitions[0].leader, cluster.partitions[0].paused) == ("", False)
    cluster.do(StoppedLeading("a", cluster.boot("a"), ended))
    assert cluster.partitions[0].leader == "b"


def test_w11_a_resumed_log_takes_part_in_a_new_leader_epoch_only() -> None:
    cluster = Cluster()
    ended = pause(cluster)
    cluster.do(StoppedLeading("a", cluster.boot("a"), ended))
    before = cluster.partitions[0]
    index = resume(cluster)
    assert before.leader_epoch < cluster.partitions[0].leader_epoch == index
    resume(cluster)
    assert cluster.partitions[0].leader_epoch == index


def test_a_group_is_coordinated_by_a_broker_with_a_confirmed_run() -> None:
    cluster = Cluster()
    cluster.do(FenceBroker("a", cluster.boot("a"), ("b", "c")))
    cluster.do(JoinGroup("g", "m", ("o",), "a"))
    group = cluster.state.groups["g"]
    assert group.coordinator in {"b", "c"}
    refused = SetGroupCoordinator("g", "a", group.epoch)
    assert code_of(cluster.state, refused) == RejectionCode.NO_COORDINATOR
    cluster.do(replace(refused, coordinator="c"))
    for name in ("b", "c"):
        cluster.do(FenceBroker(name, cluster.boot(name), ()))
    assert code_of(cluster.state, JoinGroup("h", "m", ("o",), "a")) == RejectionCode.NO_COORDINATOR


def test_w45_a_loss_lowers_where_rows_of_a_sink_are_searched() -> None:
    cluster = Cluster()
    incarnation = cluster.partitions[0].incarnation
    sink = cluster.do(OpenSink("default", "s", "ada", "batch", "kept", "", "r1"))
    target = TargetPartition(0, incarnation, 5, "d" * 32, 100)
    targets = (TargetStream("default", "o", (target,)),)
    cluster.do(PublishSink("default", "s", sink, sink, "r1", 0, "a" * 32, (0,), targets, 5, "d" * 32))
    for name in "abc":
        epoch = cluster.partitions[0].leader_epoch
        report = ReplicaReport(incarnation, ("unable",), Position(9, 60, 50), epoch)
        cluster.do(ReportReplicas(name, cluster.boot(name), (report,)))
    cluster.do(ChooseLeader(incarnation, cluster.partitions[0].epoch, "c", "operator", "ada"))
    last = cluster.state.sinks[StreamKey("default", "s")].last
    assert last is not None
    assert last.targets[0].partitions[0].from_offset == 60


@pytest.mark.parametrize(("archived_to", "after"), [(100, 60), (40, 40)])
def test_a_loss_lowers_what_an_archive_has(archived_to: int, after: int) -> None:
    cluster = Cluster()
    before = cluster.partitions[0]
    ends = (ArchivedEnd(0, before.incarnation, archived_to),)
    cluster.do(ReportArchived("default", "o", stream_index(cluster), "lake", ends, take_over=False))
    for name in "abc":
        report = ReplicaReport(before.incarnation, ("unable",), Position(9, 60, 50), cluster.partitions[0].leader_epoch)
        cluster.do(ReportReplicas(name, cluster.boot(name), (report,)))
    assert cluster.partitions[0].archived_to == archived_to
    cluster.do(ChooseLeader(before.incarnation, cluster.partitions[0].epoch, "c", "operator", "ada"))
    assert cluster.partitions[0].losses
    assert (cluster.partitions[0].archived_to, cluster.partitions[0].archive) == (after, "lake")


def propose(cluster: Cluster, counter: int, command: Plain, nonce: int = 101) -> object:
    proposed = Proposed(Proposal(nonce, counter), command)
    cluster.state, result = apply(cluster.state, cluster.state.index + 1, proposed)
    return result


def test_a_repeated_proposal_is_answered_as_the_first_time_and_applied_once() -> None:
    cluster = Cluster()
    command = purge(cluster)
    first = propose(cluster, 1, command)
    refused = propose(cluster, 2, command)
    before = cluster.state
    assert first == Applied(before.index - 1)
    assert isinstance(refused, Rejection)
    assert propose(cluster, 1, command) == first
    assert propose(cluster, 2, purge(cluster)) == refused
    assert cluster.state == before.at(cluster.state.index)


def test_n48_a_proposal_whose_answer_is_gone_is_never_applied() -> None:
    cluster = Cluster()
    for counter in range(1, MAX_ANSWERS + 3):
        assert propose(cluster, counter, SetActivity(False)) == Applied(cluster.state.index)
    assert len(cluster.state.answers) == MAX_ANSWERS
    assert cluster.state.answered_to == (Proposal(101, 2),)
    before = cluster.state
    for counter in (1, 2):
        result = propose(cluster, counter, SetActivity(True))
        assert isinstance(result, Rejection)
        assert result.code == RejectionCode.OUTCOME_UNKNOWN
    assert not cluster.state.activity_on
    assert isinstance(propose(cluster, 3, SetActivity(True)), Applied)
    assert cluster.state == before.at(cluster.state.index)


def test_a_proposal_of_a_run_that_is_over_is_never_applied() -> None:
    cluster = Cluster()
    cluster.do(register_command("a", 999, stored=cluster.boot("a")))
    result = propose(cluster, 1, SetActivity(True))
    assert isinstance(result, Rejection)
    assert result.code == RejectionCode.OUTCOME_UNKNOWN
    assert isinstance(propose(cluster, 1, SetActivity(True), nonce=999), Applied)


@pytest.mark.parametrize("proposal", [Proposal(0, 1), Proposal(101, 0), Proposal(-1, 1)])
def test_an_id_begins_at_1(proposal: Proposal) -> None:
    assert code_of(Cluster().state, Proposed(proposal, SetActivity(True))) == RejectionCode.INVALID
