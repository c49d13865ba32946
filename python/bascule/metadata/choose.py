"""Who leads a partition: the five steps of the choice, and what naming a leader changes. Pure.

`docs/decisions/replication.md#entries` has the steps; `settle` runs them after every change of a partition.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from bascule.metadata.model import Broker, Partition
from bascule.metadata.replicas import MAX_LOSSES, Loss, Reported


@dataclass(frozen=True, slots=True)
class Occasion:
    """What makes a choice necessary.

    Attributes:
        live: brokers that may be named; None = every broker whose run is confirmed.
        replaced: the present leader, or its run, is the reason, so that it does not stay.
        first: broker that is named before others if step 3 may name it; empty = none.
    """

    live: frozenset[str] | None = None
    replaced: bool = False
    first: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The outcome.

    Attributes:
        leader: broker id; empty = none.
        step: that decided it, 1…5.
        loss: to be recorded, its leader epoch yet unknown (0).
    """

    leader: str
    step: int
    loss: Loss | None = None


ANY = Occasion()
"""Something changed; the present leader stays if it can."""


def choose(brokers: Mapping[str, Broker], partition: Partition, occasion: Occasion = ANY) -> Choice:
    """Run the five steps.

    Args:
        brokers: by id; one that is not among them cannot be named.
        partition: with the change that makes the choice necessary.
        occasion: what that change was.
    """
    if partition.ending is not None:
        return Choice("", 1)
    if not occasion.replaced and is_confirmed(brokers, partition.leader):
        return Choice(partition.leader, 2)
    candidates = tuple(item for item in partition.replicas if _is_candidate(brokers, item, occasion.live))
    if leader := _complete_leader(brokers, partition, candidates, occasion.first):
        return Choice(leader, 3)
    return _most_complete_leader(brokers, partition, candidates)


def settle(
    brokers: Mapping[str, Broker], before: Partition, after: Partition, index: int, occasion: Occasion = ANY
) -> Partition:
    """`after` as entry `index` leaves it: *eligible* by its rule, the leader by choice, epochs and reports in order.

    Args:
        brokers: with the change of the entry.
        before: the partition before the entry.
        after: with the change of the entry, and nothing of what follows from it.
        index: of the entry; above all epochs of the partition.
        occasion: what the change was.
    """
    after = with_eligible(after)
    choice = choose(brokers, after, occasion)
    if choice.step in {3, 4}:
        after = _named(after, choice, index)
    elif choice.step != 2 and before.leader:
        after = replace(after, leader="", leader_epoch=index)
    reports = () if after.leader else tuple(item for item in after.reports if _is_of_present_run(brokers, item))
    return renewed(before, replace(after, reports=reports), index)


def renewed(before: Partition, after: Partition, index: int) -> Partition:
    """`after` with the partition epoch `index` if it differs from `before` in what the partition epoch stands for."""
    return after if _versioned(before) == _versioned(after) else replace(after, epoch=index)


def with_eligible(partition: Partition) -> Partition:
    """An ISR of min-in-sync members is what is eligible; a smaller one changes nothing."""
    if len(partition.isr) < partition.min_isr:
        return partition
    return replace(partition, eligible=partition.isr)


def with_loss(partition: Partition, loss: Loss) -> Partition:
    """Record the loss: the last ones are kept, and of those of reason `cut` the last one."""
    kept = tuple(item for item in partition.losses if loss.reason != "cut" or item.reason != "cut")
    return replace(partition, losses=(*kept, loss)[-MAX_LOSSES:])


def in_order(partition: Partition, brokers: Collection[str]) -> tuple[str, ...]:
    """Those of `brokers` that are replicas, in the order of `replicas`."""
    return tuple(item for item in partition.replicas if item in brokers)


def without(brokers: tuple[str, ...], leaving: Collection[str]) -> tuple[str, ...]:
    """`brokers` without those that leave."""
    return tuple(item for item in brokers if item not in leaving)


def is_confirmed(brokers: Mapping[str, Broker], broker_id: str) -> bool:
    """Whether the last run of the broker may lead and join an ISR."""
    broker = brokers.get(broker_id)
    return broker is not None and broker.run == "confirmed"


def waited_for(brokers: Mapping[str, Broker], partition: Partition) -> str:
    """Whom `choose_leader` with the reason `waited` may name; empty = nobody.

    It is the most complete of those that have reported, if a clean eligible member is among them, or if nothing is
    missing but the report of a replica that is not eligible.
    """
    if partition.leader or partition.ending is not None:
        return ""
    reports = _reports(brokers, partition, partition.replicas)
    reporters = {item.broker for item in reports}
    is_enough = any(item in reporters and item not in partition.unclean for item in partition.eligible)
    if not is_enough and not (partition.eligible and set(partition.eligible) <= reporters):
        return ""
    best = _most_complete(partition, reports)
    return best.broker if best is not None else ""


def _complete_leader(
    brokers: Mapping[str, Broker], partition: Partition, candidates: tuple[str, ...], first: str
) -> str:
    """Step 3: a clean, able, eligible candidate whose log was not cut; those that leave or were tried come last."""
    flagged = {*partition.unclean, *partition.unable, *partition.cut}
    complete = [item for item in candidates if item in partition.eligible and item not in flagged]
    if first in complete and first in partition.isr:
        return first
    leaving = {item for item in complete if item in partition.removing or brokers[item].draining}
    return min(complete, key=lambda item: (item in leaving, item in partition.tried), default="")


def _most_complete_leader(brokers: Mapping[str, Broker], partition: Partition, candidates: tuple[str, ...]) -> Choice:
    """Step 4: the most complete one, once everybody who may have more has reported; else step 5, nobody."""
    nobody = Choice("", 5)
    members = _reports(brokers, partition, in_order(partition, partition.eligible))
    if not partition.eligible or len(members) < len(partition.eligible):
        return nobody
    if any(item.broker not in candidates for item in members):
        return nobody
    best = _most_complete(partition, members)
    if best is not None and best.broker in partition.unclean:
        there = tuple(item for item in partition.replicas if item in brokers and brokers[item].run != "fenced")
        reports = _reports(brokers, partition, there)
        if len(reports) < len(there):
            return nobody
        best = _most_complete(partition, tuple(item for item in reports if item.broker in candidates))
    if best is None:
        return nobody
    return Choice(best.broker, 4, _loss(partition, best, members))


def _loss(partition: Partition, best: Reported, members: tuple[Reported, ...]) -> Loss | None:
    """What to record when `best` leads: nothing if a member that holds everything committed has no more than it."""
    flagged = {*partition.unclean, *partition.cut}
    whole = [item for item in members if item.broker not in flagged]
    if best.broker not in partition.unclean and any(item.position.order <= best.position.order for item in whole):
        return None
    is_cut_only = best.broker not in partition.unclean and not set(partition.eligible) & set(partition.unclean)
    return Loss(0, best.position.end, 0, "cut" if is_cut_only else "unclean")


def _most_complete(partition: Partition, reports: Iterable[Reported]) -> Reported | None:
    """The able one with the greatest position; among equals clean ones first, then by the order of replicas."""
    able = [item for item in reports if item.broker not in partition.unable]
    return max(able, key=lambda item: (item.position.order, item.broker not in partition.unclean), default=None)


def _reports(brokers: Mapping[str, Broker], partition: Partition, among: tuple[str, ...]) -> tuple[Reported, ...]:
    """The reports of confirmed runs of `among`, in that order."""
    known = {item.broker: item for item in partition.reports if _is_of_present_run(brokers, item)}
    return tuple(known[item] for item in among if item in known and is_confirmed(brokers, item))


def _named(partition: Partition, choice: Choice, index: int) -> Partition:
    leader = choice.leader
    is_member = leader in partition.isr
    eligible = partition.eligible if is_member or choice.step == 3 else (leader,)
    named = replace(
        partition,
        leader=leader,
        leader_epoch=index,
        isr=partition.isr if is_member else (leader,),
        eligible=eligible,
        unclean=without(partition.unclean, (leader,)),
        cut=without(partition.cut, (leader,)),
    )
    if choice.loss is not None:
        named = with_loss(named, replace(choice.loss, leader_epoch=index))
    return with_eligible(named)


def _is_candidate(brokers: Mapping[str, Broker], broker_id: str, live: frozenset[str] | None) -> bool:
    return is_confirmed(brokers, broker_id) and (live is None or broker_id in live)


def _is_of_present_run(brokers: Mapping[str, Broker], report: Reported) -> bool:
    broker = brokers.get(report.broker)
    return broker is not None and broker.boot_epoch == report.boot_epoch


def _versioned(partition: Partition) -> tuple[object, ...]:
    return (
        partition.incarnation,
        partition.leader,
        partition.leader_epoch,
        partition.replicas,
        partition.isr,
        partition.eligible,
        partition.unclean,
        partition.unable,
        partition.cut,
        partition.min_isr,
    )
