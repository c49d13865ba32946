"""The part of `apply` that concerns reports of replicas. Pure."""

from dataclasses import replace

from bascule.metadata.choose import Occasion, in_order, settle, without
from bascule.metadata.model import Broker, Partition, State, Stream
from bascule.metadata.partition_changes import as_unclean, change_partitions, run_of
from bascule.metadata.rejection import invalid
from bascule.metadata.replica_commands import MAX_CHANGES, ReplicaReport, ReportReplicas
from bascule.metadata.replicas import Position, Reported


def report_replicas(state: State, index: int, command: ReportReplicas) -> State:
    """Apply each report that is not overtaken; choices run."""
    run = run_of(state, command.broker_id, command.boot_epoch, {"confirmed"})
    if len(command.reports) > MAX_CHANGES:
        raise invalid(f"{len(command.reports)} reports are more than {MAX_CHANGES}")
    check_reports(command.reports, is_confirmation=False)
    reports: dict[int, list[ReplicaReport]] = {}
    for report in command.reports:
        reports.setdefault(report.incarnation, []).append(report)

    def change(stream: Stream, partition: Partition) -> Partition:
        changed, is_reason = partition, False
        for report in reports[partition.incarnation]:
            subject = _subject(state, partition, run, report)
            if subject is None:
                continue
            stops = subject.id == partition.leader and _takes_away(report)
            is_reason = is_reason or stops
            is_current = report.leader_epoch == partition.leader_epoch
            keeps_position = is_current and (not partition.leader or stops)
            changed = with_report(stream, changed, subject, report, keeps_position=keeps_position)
            if is_current and subject.id == partition.leader and report.position is not None:
                changed = _with_start(changed, report.position)
        if changed == partition and not is_reason:
            return partition
        return settle(state.brokers, partition, changed, index, Occasion(replaced=is_reason))

    return change_partitions(state, change, reports)


def check_reports(reports: tuple[ReplicaReport, ...], *, is_confirmation: bool) -> None:
    """Refuse reports that no state would allow.

    Args:
        reports: of one entry.
        is_confirmation: they are those of `confirm_broker`, about replicas without a role.
    """
    for report in reports:
        where = f"report of incarnation {report.incarnation}"
        if len(set(report.flags)) != len(report.flags) or {"unable", "able"} <= set(report.flags):
            raise invalid(f"flags of the {where} repeat or contradict each other: {', '.join(report.flags)}")
        if report.position is not None:
            check_position(where, report.position)
        is_of_other = bool(report.broker_id or report.broker_boot_epoch)
        if is_confirmation and (is_of_other or report.leader_epoch or report.durable_past >= 0):
            raise invalid(f"the {where} confirms a run, and names a broker, a leader epoch or a change of class")
        only_unclean = report.flags == ("unclean",) and report.position is None and report.durable_past < 0
        if is_of_other and not only_unclean:
            raise invalid(f"the {where} is about another broker, and says more than that its replica is unclean")


def check_position(what: str, position: Position) -> None:
    """Refuse a position that no log has."""
    if position.epoch < 0 or not 0 <= position.hw <= position.end:
        raise invalid(f"the {what} has epoch {position.epoch}, end {position.end} and high watermark {position.hw}")


def with_report(
    stream: Stream, partition: Partition, broker: Broker, report: ReplicaReport, *, keeps_position: bool
) -> Partition:
    """`partition` with what the report says about the broker's replica, before any choice.

    Args:
        stream: of the partition.
        partition: one that the broker has a replica of; else it stays as it is.
        broker: whose replica it is, of its last run.
        report: what is known of it.
        keeps_position: the position may be compared with those of others.
    """
    name = broker.id
    if name not in partition.replicas:
        return partition
    changed = as_unclean(partition, name) if "unclean" in report.flags else partition
    if "cut" in report.flags:
        changed = replace(changed, cut=in_order(changed, {*changed.cut, name}))
    if "unable" in report.flags:
        changed = replace(changed, unable=in_order(changed, {*changed.unable, name}))
    if "able" in report.flags:
        changed = replace(changed, unable=without(changed.unable, (name,)))
    if stream.settings.durability == "disk" and report.durable_past == partition.volatile_since:
        changed = replace(changed, volatile=without(changed.volatile, (name,)))
    if report.position is not None and keeps_position:
        others = tuple(item for item in changed.reports if item.broker != name)
        changed = replace(changed, reports=(*others, Reported(name, broker.boot_epoch, report.position)))
    return changed


def _subject(state: State, partition: Partition, run: Broker, report: ReplicaReport) -> Broker | None:
    """Whose replica the report is about; None = it is overtaken, or nobody may say this."""
    is_current = report.leader_epoch == partition.leader_epoch
    if report.broker_id in {"", run.id}:
        return None if run.id == partition.leader and _takes_away(report) and not is_current else run
    subject = state.brokers.get(report.broker_id)
    if subject is None or subject.boot_epoch != report.broker_boot_epoch:
        return None
    return subject if partition.leader == run.id and is_current else None


def _takes_away(report: ReplicaReport) -> bool:
    """Whether a leader of which this is true cannot lead."""
    return bool({"unclean", "cut", "unable"} & set(report.flags))


def _with_start(partition: Partition, position: Position) -> Partition:
    """The leader reports where the loss begins that came with its choice."""
    losses = tuple(
        replace(item, start=position.end) if item.leader_epoch == partition.leader_epoch and item.start < 0 else item
        for item in partition.losses
    )
    return replace(partition, losses=losses)
