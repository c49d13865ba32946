"""Leaders and ISRs: changes, resignations, reports, ends, and choices by a person."""

from dataclasses import replace

import pytest
from bascule.metadata import Command, Rejection, RejectionCode, State, StreamSettings, apply
from bascule.metadata.replica_commands import (
    AcceptLoss,
    ChangeIsr,
    ChooseLeader,
    ConfirmBroker,
    EndLeader,
    FenceBroker,
    Flag,
    IsrChange,
    ReplicaReport,
    ReportLeader,
    ReportReplicas,
    Resign,
    Resigned,
    ResignReason,
    StoppedLeading,
    Verified,
)
from bascule.metadata.replicas import Ending, Loss, Position

from tests.unit.metadata.cluster_rig import Cluster, register_command


def code_of(state: State, command: Command) -> RejectionCode:
    after, result = apply(state, state.index + 1, command)
    assert isinstance(result, Rejection), command
    assert after == state.at(after.index)
    return result.code


def change(cluster: Cluster, isr: str, counted: str = "", **changes: object) -> ChangeIsr:
    """The change that the present leader asks for."""
    partition = cluster.partitions[0]
    item = IsrChange(
        partition.incarnation,
        partition.leader_epoch,
        partition.epoch,
        tuple(isr),
        tuple(Verified(name, cluster.boot(name)) for name in counted),
    )
    item = replace(item, **changes)  # type: ignore[arg-type]  # names of fields, as the caller wrote them
    return ChangeIsr(partition.leader, cluster.boot(partition.leader), (item,))


def resignation(cluster: Cluster, reason: ResignReason, target: str = "", *, hw_moved: bool = False) -> Resign:
    """The resignation of the present leader."""
    partition = cluster.partitions[0]
    item = Resigned(partition.incarnation, partition.leader_epoch, partition.epoch, hw_moved)
    return Resign(partition.leader, cluster.boot(partition.leader), (item,), reason, target)


def report(cluster: Cluster, broker: str, *flags: Flag, **changes: object) -> ReportReplicas:
    """The broker's report of its own replica in the present leader epoch."""
    partition = cluster.partitions[0]
    item = ReplicaReport(partition.incarnation, flags, None, partition.leader_epoch)
    item = replace(item, **changes)  # type: ignore[arg-type]  # names of fields, as the caller wrote them
    return ReportReplicas(broker, cluster.boot(broker), (item,))


def test_an_isr_shrinks_and_grows_again() -> None:
    cluster = Cluster()
    index = cluster.do(change(cluster, "ab"))
    partition = cluster.partitions[0]
    assert (partition.isr, partition.eligible, partition.epoch) == (("a", "b"), ("a", "b"), index)
    cluster.do(change(cluster, "a"))
    assert (cluster.partitions[0].isr, cluster.partitions[0].eligible) == (("a",), ("a", "b"))
    cluster.do(change(cluster, "ca", "c"))
    assert (cluster.partitions[0].isr, cluster.partitions[0].eligible) == (("a", "c"), ("a", "c"))
    assert (cluster.partitions[0].leader, cluster.partitions[0].leader_epoch) == ("a", partition.leader_epoch)


@pytest.mark.parametrize(
    ("isr", "counted", "changes"),
    [
        ("b", "", {}),
        ("", "", {}),
        ("aa", "", {}),
        ("ad", "", {}),
        ("abc", "", {}),
        ("ab", "c", {}),
        ("abc", "cc", {}),
        ("abc", "", {"verified": (Verified("c", 1),)}),
    ],
)
def test_n29_a_refused_change_ends_the_proposals_of_its_partition_epoch(
    isr: str, counted: str, changes: dict[str, object]
) -> None:
    cluster = Cluster()
    cluster.do(change(cluster, "ab"))
    late = change(cluster, "abc", "c")
    before = cluster.partitions[0]
    index = cluster.do(change(cluster, isr, counted, **changes))
    assert cluster.partitions[0] == replace(before, epoch=index)
    cluster.do(late)
    assert cluster.partitions[0] == replace(before, epoch=index)


@pytest.mark.parametrize("field", ["leader_epoch", "partition_epoch", "incarnation"])
def test_n4_a_change_of_other_epochs_changes_nothing(field: str) -> None:
    cluster = Cluster()
    before = cluster.partitions[0]
    cluster.do(change(cluster, "ab", "", **{field: 1}))
    assert cluster.partitions[0] is before


def test_a_change_by_a_broker_that_does_not_lead_changes_nothing() -> None:
    cluster = Cluster()
    before = cluster.partitions[0]
    cluster.do(replace(change(cluster, "ab"), broker_id="b", boot_epoch=cluster.boot("b")))
    assert cluster.partitions[0] is before
    assert code_of(cluster.state, replace(change(cluster, "ab"), boot_epoch=1)) == RejectionCode.STALE_EPOCH


def test_w34_only_verified_members_lose_their_flags_and_flags_void_a_shrink() -> None:
    cluster = Cluster()
    late = change(cluster, "ac")
    cluster.do(register_command("c", 77, stored=cluster.boot("c")))
    incarnation = cluster.partitions[0].incarnation
    cluster.do(ConfirmBroker("c", cluster.boot("c"), (ReplicaReport(incarnation, ("cut",)),)))
    before = cluster.partitions[0]
    assert before.cut == ("c",)
    cluster.do(late)
    assert cluster.partitions[0] is before
    cluster.do(change(cluster, "ac"))
    assert (cluster.partitions[0].isr, cluster.partitions[0].cut) == (("a", "c"), ("c",))
    cluster.do(change(cluster, "ac", "c"))
    assert (cluster.partitions[0].isr, cluster.partitions[0].cut) == (("a", "c"), ())


def test_an_unclean_replica_is_clean_when_it_joins_again() -> None:
    cluster = Cluster()
    cluster.do(report(cluster, "c", "unclean"))
    assert (cluster.partitions[0].isr, cluster.partitions[0].unclean) == (("a", "b"), ("c",))
    cluster.do(change(cluster, "abc", "c"))
    assert (cluster.partitions[0].isr, cluster.partitions[0].unclean) == (("a", "b", "c"), ())


def test_a_transfer_names_its_target_and_flags_nobody() -> None:
    cluster = Cluster()
    index = cluster.do(resignation(cluster, "transfer", "c"))
    partition = cluster.partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.isr) == ("c", index, ("a", "b", "c"))
    assert partition.unable + partition.tried == ()


@pytest.mark.parametrize("reason", ["failed", "disk_full", "nats_lost"])
def test_a_leader_that_fails_is_unable_until_it_says_otherwise(reason: ResignReason) -> None:
    cluster = Cluster()
    cluster.do(resignation(cluster, reason))
    assert (cluster.partitions[0].leader, cluster.partitions[0].unable) == ("b", ("a",))
    cluster.do(report(cluster, "a", "able"))
    assert (cluster.partitions[0].leader, cluster.partitions[0].unable) == ("b", ())


def test_n8_each_member_is_tried_once_in_a_standstill() -> None:
    cluster = Cluster()
    for leader in ("b", "c"):
        cluster.do(resignation(cluster, "standstill"))
        assert cluster.partitions[0].leader == leader
    before = cluster.partitions[0]
    index = cluster.do(resignation(cluster, "standstill"))
    assert cluster.partitions[0] == replace(before, epoch=index)
    cluster.do(resignation(cluster, "standstill", hw_moved=True))
    assert (cluster.partitions[0].leader, cluster.partitions[0].tried) == ("a", ("c",))


@pytest.mark.parametrize("reason", ["standstill", "disk_full", "nats_lost"])
def test_n39_n43_a_refused_resignation_sets_the_partition_epoch_so_that_its_copies_are_void(
    reason: ResignReason,
) -> None:
    cluster = Cluster()
    cluster.do(FenceBroker("c", cluster.boot("c"), ("a", "b")))
    cluster.do(FenceBroker("b", cluster.boot("b"), ("a",)))
    copy = resignation(cluster, reason)
    before = cluster.partitions[0]
    index = cluster.do(copy)
    assert cluster.partitions[0] == replace(before, epoch=index)
    cluster.restart("b")
    cluster.do(copy)
    assert cluster.partitions[0] == replace(before, epoch=index)


def test_a_leader_that_cannot_lead_leaves_even_if_nobody_follows() -> None:
    cluster = Cluster(replicas=("a",))
    index = cluster.do(resignation(cluster, "failed"))
    assert (cluster.partitions[0].leader, cluster.partitions[0].leader_epoch) == ("", index)
    cluster.do(report(cluster, "a", "able"))
    assert cluster.partitions[0].leader == "a"


def test_n44_a_refused_resignation_ends_a_proposed_growth() -> None:
    cluster = Cluster()
    cluster.do(report(cluster, "c", "unclean"))
    cluster.do(FenceBroker("b", cluster.boot("b"), ("a", "c")))
    growth = change(cluster, "ac", "c")
    index = cluster.do(resignation(cluster, "standstill"))
    assert (cluster.partitions[0].leader, cluster.partitions[0].epoch) == ("a", index)
    cluster.do(growth)
    assert cluster.partitions[0].isr == ("a",)


def test_a_leader_that_reports_itself_has_stopped_and_is_replaced() -> None:
    cluster = Cluster()
    cluster.do(report(cluster, "a", "unclean"))
    partition = cluster.partitions[0]
    assert (partition.leader, partition.isr, partition.unclean) == ("b", ("b", "c"), ("a",))


def test_a_late_copy_of_a_leaders_report_of_itself_is_void_when_it_leads_again() -> None:
    cluster = Cluster()
    copy = report(cluster, "a", "unable")
    cluster.do(copy)
    cluster.do(report(cluster, "a", "able"))
    cluster.do(resignation(cluster, "transfer", "a"))
    before = cluster.partitions[0]
    cluster.do(copy)
    assert cluster.partitions[0] is before


def test_a_leader_reports_what_another_broker_lost() -> None:
    cluster = Cluster()
    of_c = {"broker_id": "c", "broker_boot_epoch": cluster.boot("c")}
    for late in ({"leader_epoch": 1}, {"broker_boot_epoch": 1}, {"broker_id": "x"}):
        cluster.do(report(cluster, "a", "unclean", **{**of_c, **late}))
    cluster.do(report(cluster, "b", "unclean", **of_c))
    assert cluster.partitions[0].unclean == ()
    cluster.do(report(cluster, "a", "unclean", **of_c))
    assert (cluster.partitions[0].unclean, cluster.partitions[0].isr) == (("c",), ("a", "b"))
    assert code_of(cluster.state, report(cluster, "a", "cut", **of_c)) == RejectionCode.INVALID


def test_positions_are_kept_while_nobody_leads_and_only_of_that_time() -> None:
    cluster = Cluster()
    early = report(cluster, "b", position=Position(9, 100, 90))
    cluster.do(early)
    assert cluster.partitions[0].reports == ()
    for name in "abc":
        cluster.do(report(cluster, name, "unable"))
    assert cluster.partitions[0].leader == ""
    cluster.do(early)
    assert cluster.partitions[0].reports == ()
    cluster.do(report(cluster, "b", position=Position(9, 100, 90)))
    assert [item.broker for item in cluster.partitions[0].reports] == ["b"]
    cluster.do(report(cluster, "c", "able"))
    assert (cluster.partitions[0].leader, cluster.partitions[0].reports) == ("c", ())


def test_data_is_volatile_until_it_is_durable_past_the_change_of_class() -> None:
    cluster = Cluster(settings=StreamSettings(durability="memory"))
    assert cluster.partitions[0].volatile == ("a", "b", "c")
    cluster.do(report(cluster, "b", durable_past=0))
    assert cluster.partitions[0].volatile == ("a", "b", "c")


def leader_report(cluster: Cluster, reporter: str = "b", **changes: object) -> ReportLeader:
    partition = cluster.partitions[0]
    command = ReportLeader(
        partition.incarnation, partition.leader_epoch, reporter, cluster.boot(reporter), Position(9, 100, 95)
    )
    return replace(command, **changes)  # type: ignore[arg-type]  # names of fields, as the caller wrote them


def test_n1_a_reported_leader_is_ended_and_nobody_leads_before_it_has_stopped() -> None:
    cluster = Cluster()
    index = cluster.do(leader_report(cluster))
    partition = cluster.partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.unclean) == ("", index, ("a",))
    assert (partition.isr, partition.eligible) == (("b", "c"), ("b", "c"))
    assert partition.ending == Ending("a", cluster.boot("a"), index)
    cluster.do(report(cluster, "b", "able"))
    assert cluster.partitions[0].leader == ""
    cluster.do(StoppedLeading("a", cluster.boot("a"), index - 1))
    assert cluster.partitions[0].leader == ""
    cluster.do(StoppedLeading("a", cluster.boot("a"), index))
    assert (cluster.partitions[0].leader, cluster.partitions[0].ending) == ("b", None)


def test_n46_a_late_report_of_a_leader_is_refused() -> None:
    cluster = Cluster()
    late = leader_report(cluster)
    cluster.do(resignation(cluster, "transfer", "c"))
    assert code_of(cluster.state, late) == RejectionCode.STALE_EPOCH


def test_who_may_report_a_leader() -> None:
    cluster = Cluster()
    assert code_of(cluster.state, leader_report(cluster, "a")) == RejectionCode.INVALID
    assert code_of(cluster.state, leader_report(cluster, boot_epoch=1)) == RejectionCode.STALE_EPOCH
    assert code_of(cluster.state, leader_report(cluster, incarnation=1)) == RejectionCode.PARTITION_NOT_FOUND
    assert code_of(cluster.state, leader_report(cluster, position=Position(1, 2, 3))) == RejectionCode.INVALID
    cluster.do(report(cluster, "b", "unclean"))
    assert code_of(cluster.state, leader_report(cluster, "b")) == RejectionCode.INVALID


def test_an_end_is_of_a_partition_epoch() -> None:
    cluster = Cluster()
    command = EndLeader(cluster.partitions[0].incarnation, cluster.partitions[0].epoch)
    assert code_of(cluster.state, replace(command, partition_epoch=1)) == RejectionCode.STALE_EPOCH
    cluster.do(command)
    again = replace(command, partition_epoch=cluster.partitions[0].epoch)
    assert code_of(cluster.state, again) == RejectionCode.INVALID
    future = StoppedLeading("a", cluster.boot("a"), cluster.state.index + 1)
    assert code_of(cluster.state, future) == RejectionCode.INVALID


def test_w15_after_a_wait_the_most_complete_of_the_reported_leads() -> None:
    cluster = Cluster()
    incarnation = cluster.partitions[0].incarnation
    for name in "abc":
        cluster.do(register_command(name, 70 + ord(name), stored=cluster.boot(name)))
    for name, end in (("a", 95), ("b", 97)):
        item = ReplicaReport(incarnation, ("cut",), Position(9, end, 90))
        cluster.do(ConfirmBroker(name, cluster.boot(name), (item,)))
    partition = cluster.partitions[0]
    assert partition.leader == ""
    command = ChooseLeader(incarnation, partition.epoch, "b", "waited", "controller")
    assert code_of(cluster.state, replace(command, leader="a")) == RejectionCode.INVALID
    assert code_of(cluster.state, replace(command, leader="c")) == RejectionCode.INVALID
    assert code_of(cluster.state, replace(command, partition_epoch=1)) == RejectionCode.STALE_EPOCH
    assert code_of(cluster.state, replace(command, by="")) == RejectionCode.INVALID
    index = cluster.do(command)
    partition = cluster.partitions[0]
    assert (partition.leader, partition.isr, partition.eligible, partition.cut) == ("b", ("b",), ("b",), ("a",))
    assert partition.losses == (Loss(index, 97, 0, "waited", "controller"),)
    late = replace(command, partition_epoch=partition.epoch)
    assert code_of(cluster.state, late) == RejectionCode.INVALID


def test_the_leader_that_a_person_named_reports_where_its_loss_begins() -> None:
    cluster = Cluster()
    for name in "abc":
        cluster.do(report(cluster, name, "unable"))
    partition = cluster.partitions[0]
    index = cluster.do(ChooseLeader(partition.incarnation, partition.epoch, "c", "operator", "ada"))
    assert cluster.partitions[0].losses == (Loss(index, -1, 0, "operator", "ada"),)
    cluster.do(report(cluster, "c", position=Position(9, 42, 40)))
    assert cluster.partitions[0].losses == (Loss(index, 42, 0, "operator", "ada"),)
    cluster.do(report(cluster, "c", position=Position(9, 50, 40)))
    assert cluster.partitions[0].losses == (Loss(index, 42, 0, "operator", "ada"),)


def test_a_lost_range_is_recorded_once() -> None:
    cluster = Cluster()
    command = AcceptLoss(cluster.partitions[0].incarnation, 10, 20, "ada")
    for wrong in ({"start": -1}, {"end": 10}, {"by": ""}):
        assert code_of(cluster.state, replace(command, **wrong)) == RejectionCode.INVALID  # type: ignore[arg-type]  # fields
    cluster.do(command)
    epoch = cluster.partitions[0].leader_epoch
    assert cluster.partitions[0].losses == (Loss(epoch, 10, 20, "accepted", "ada"),)
    assert code_of(cluster.state, command) == RejectionCode.INVALID


def test_an_entry_has_at_most_1000_partitions() -> None:
    cluster = Cluster()
    item = change(cluster, "a").changes[0]
    assert code_of(cluster.state, ChangeIsr("a", cluster.boot("a"), (item,) * 1001)) == RejectionCode.INVALID
    gone = resignation(cluster, "failed").partitions[0]
    assert code_of(cluster.state, Resign("a", cluster.boot("a"), (gone,) * 1001, "failed")) == RejectionCode.INVALID
    reported = ReplicaReport(item.incarnation)
    assert code_of(cluster.state, ReportReplicas("a", cluster.boot("a"), (reported,) * 1001)) == RejectionCode.INVALID
