"""The part of `apply` that concerns leaders and ISRs. Pure.

A change of an ISR or a resignation with the present leader epoch and partition epoch that is refused all the same sets
the partition epoch: late copies of it are void, and the leader learns of the refusal by the entry itself.
"""

from dataclasses import replace

from bascule.metadata.apply_reports import check_position
from bascule.metadata.choose import (
    Occasion,
    choose,
    in_order,
    is_confirmed,
    renewed,
    settle,
    waited_for,
    with_eligible,
    with_loss,
    without,
)
from bascule.metadata.model import Partition, State, Stream
from bascule.metadata.partition_changes import as_unclean, change_partitions, ended, partition_of, run_of, stale
from bascule.metadata.rejection import check_name, invalid
from bascule.metadata.replica_commands import (
    MAX_CHANGES,
    AcceptLoss,
    ChangeIsr,
    ChooseLeader,
    EndLeader,
    IsrChange,
    ReportLeader,
    Resign,
    Resigned,
    ResignReason,
    StoppedLeading,
)
from bascule.metadata.replicas import Loss

_ONLY_WITH_ANOTHER: frozenset[ResignReason] = frozenset({"standstill", "disk_full", "nats_lost"})
"""Reasons for which a leader stays if nobody else can lead."""

_UNABLE: frozenset[ResignReason] = frozenset({"failed", "disk_full", "nats_lost"})
"""Reasons that make the leader unable until it reports that it can lead again."""


def change_isr(state: State, index: int, command: ChangeIsr) -> State:
    """Make each change that is of its leader's present epochs."""
    run_of(state, command.broker_id, command.boot_epoch, {"confirmed"})
    changes: dict[int, list[IsrChange]] = {}
    for item in command.changes:
        changes.setdefault(item.incarnation, []).append(item)
    _check_count(len(command.changes))

    def change(_: Stream, partition: Partition) -> Partition:
        changed = partition
        for item in changes[partition.incarnation]:
            if _is_current(changed, command.broker_id, item):
                changed = _with_isr(state, changed, item, index)
        return changed

    return change_partitions(state, change, changes)


def resign(state: State, index: int, command: Resign) -> State:
    """Name another leader for each partition that its present leader gives up."""
    run_of(state, command.broker_id, command.boot_epoch, {"confirmed"})
    partitions: dict[int, list[Resigned]] = {}
    for item in command.partitions:
        partitions.setdefault(item.incarnation, []).append(item)
    _check_count(len(command.partitions))

    def change(_: Stream, partition: Partition) -> Partition:
        changed = partition
        for item in partitions[partition.incarnation]:
            if _is_current(changed, command.broker_id, item):
                changed = _resigned(state, changed, item, command, index)
        return changed

    return change_partitions(state, change, partitions)


def report_leader(state: State, index: int, command: ReportLeader) -> State:
    """The leader lacks what its follower knows as committed: it is unclean, and ended."""
    run_of(state, command.reporter, command.boot_epoch, {"confirmed"})
    check_position("report of a leader", command.position)
    partition = partition_of(state, command.incarnation)
    if partition.leader_epoch != command.leader_epoch or not partition.leader:
        raise stale(f"leader epoch {command.leader_epoch} of incarnation {command.incarnation} is over")
    reporter = command.reporter
    if reporter == partition.leader or reporter not in partition.eligible or reporter in partition.unclean:
        raise invalid(f"broker {reporter} leads, is unclean, or is not eligible for incarnation {command.incarnation}")

    def change(_: Stream, before: Partition) -> Partition:
        return ended(state.brokers, before, with_eligible(as_unclean(before, before.leader)), index)

    return change_partitions(state, change, (command.incarnation,))


def end_leader(state: State, index: int, command: EndLeader) -> State:
    """Nobody leads the partition until its leader has applied this."""
    partition = partition_of(state, command.incarnation)
    _check_partition_epoch(partition, command.partition_epoch)
    if not partition.leader:
        raise invalid(f"nobody leads incarnation {command.incarnation}")

    def change(_: Stream, before: Partition) -> Partition:
        return ended(state.brokers, before, before, index)

    return change_partitions(state, change, (command.incarnation,))


def stopped_leading(state: State, index: int, command: StoppedLeading) -> State:
    """Choose the leaders of the partitions whose ended leader has applied its end."""
    run_of(state, command.broker_id, command.boot_epoch, {"registered", "confirmed", "fenced"})
    if command.index >= index:
        raise invalid(f"entry {command.index} cannot have been applied before entry {index}")

    def change(_: Stream, partition: Partition) -> Partition:
        ending = partition.ending
        if ending is None or (ending.broker, ending.boot_epoch) != (command.broker_id, command.boot_epoch):
            return partition
        if ending.index > command.index:
            return partition
        return settle(state.brokers, partition, replace(partition, ending=None), index)

    return change_partitions(state, change)


def choose_leader(state: State, index: int, command: ChooseLeader) -> State:
    """Name a leader although the rules name none, and record the loss."""
    check_name("who decided", command.by)
    partition = partition_of(state, command.incarnation)
    _check_partition_epoch(partition, command.partition_epoch)
    leader = command.leader
    if partition.leader or partition.ending is not None:
        raise invalid(f"incarnation {command.incarnation} has a leader, or one that is ending")
    if leader not in partition.replicas or not is_confirmed(state.brokers, leader):
        raise invalid(f"broker {leader} has no replica of incarnation {command.incarnation}, or no confirmed run")
    if command.reason == "waited" and leader != waited_for(state.brokers, partition):
        raise invalid(f"broker {leader} is not the one that may lead incarnation {command.incarnation} after a wait")
    boot_epoch = state.brokers[leader].boot_epoch
    known = [item for item in partition.reports if (item.broker, item.boot_epoch) == (leader, boot_epoch)]
    start = known[0].position.end if known else -1

    def change(_: Stream, before: Partition) -> Partition:
        changed = replace(
            before,
            leader=leader,
            leader_epoch=index,
            isr=(leader,),
            eligible=(leader,),
            unclean=without(before.unclean, (leader,)),
            cut=without(before.cut, (leader,)),
            reports=(),
        )
        changed = with_loss(changed, Loss(index, start, 0, command.reason, command.by))
        return renewed(before, with_eligible(changed), index)

    return change_partitions(state, change, (command.incarnation,))


def accept_loss(state: State, _: int, command: AcceptLoss) -> State:
    """Record that the range is lost, so that replicas skip it."""
    check_name("who decided", command.by)
    if not 0 <= command.start < command.end:
        raise invalid(f"offsets from {command.start} to {command.end} are not a valid range")
    partition = partition_of(state, command.incarnation)
    if not partition.leader:
        raise invalid(f"nobody leads incarnation {command.incarnation}, and its leader reports the damage")
    if any((item.start, item.end) == (command.start, command.end) for item in partition.losses):
        raise invalid(f"the loss of {command.start} to {command.end} in {command.incarnation} is recorded")
    loss = Loss(partition.leader_epoch, command.start, command.end, "accepted", command.by)

    def change(_: Stream, before: Partition) -> Partition:
        return with_loss(before, loss)

    return change_partitions(state, change, (command.incarnation,))


def _with_isr(state: State, partition: Partition, change: IsrChange, index: int) -> Partition:
    verified = {item.broker_id for item in change.verified}
    if not _is_valid(state, partition, change, verified):
        return replace(partition, epoch=index)
    changed = replace(
        partition,
        isr=in_order(partition, change.isr),
        unclean=without(partition.unclean, verified),
        cut=without(partition.cut, verified),
        epoch=index,
    )
    return settle(state.brokers, partition, changed, index)


def _is_valid(state: State, partition: Partition, change: IsrChange, verified: set[str]) -> bool:
    asked = set(change.isr)
    if len(asked) != len(change.isr) or len(verified) != len(change.verified):
        return False
    if partition.leader not in asked or not asked <= set(partition.replicas):
        return False
    if not asked - set(partition.isr) <= verified <= asked:
        return False
    return all(
        is_confirmed(state.brokers, item.broker_id) and state.brokers[item.broker_id].boot_epoch == item.boot_epoch
        for item in change.verified
    )


def _resigned(state: State, partition: Partition, item: Resigned, command: Resign, index: int) -> Partition:
    leader, changed = command.broker_id, partition
    if command.reason in _UNABLE:
        changed = replace(changed, unable=in_order(changed, {*changed.unable, leader}))
    if command.reason == "standstill":
        tried = set[str]() if item.hw_moved else set(changed.tried)
        changed = replace(changed, tried=in_order(changed, {*tried, leader}))
    occasion = Occasion(replaced=True, first=command.target)
    if command.reason in _ONLY_WITH_ANOTHER:
        choice = choose(state.brokers, changed, occasion)
        is_other = choice.step == 3 and choice.leader != leader
        if not is_other or (command.reason == "standstill" and choice.leader in changed.tried):
            return replace(partition, epoch=index)
    return settle(state.brokers, partition, changed, index, occasion)


def _is_current(partition: Partition, leader: str, item: IsrChange | Resigned) -> bool:
    epochs = (leader, item.leader_epoch, item.partition_epoch)
    return (partition.leader, partition.leader_epoch, partition.epoch) == epochs


def _check_count(count: int) -> None:
    if count > MAX_CHANGES:
        raise invalid(f"{count} partitions are more than {MAX_CHANGES}")


def _check_partition_epoch(partition: Partition, epoch: int) -> None:
    if partition.epoch != epoch:
        raise stale(f"incarnation {partition.incarnation} is of partition epoch {partition.epoch}, not {epoch}")
