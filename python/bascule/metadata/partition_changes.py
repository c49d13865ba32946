"""Changes of partitions all over the state, and what a recorded loss does to sinks and archives. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Final, TypeAlias

from bascule.metadata.choose import in_order, renewed, without
from bascule.metadata.model import Broker, Partition, State, Stream, StreamKey
from bascule.metadata.rejection import RejectedError, RejectionCode, invalid, rejected
from bascule.metadata.replicas import Ending, Run
from bascule.metadata.sinks import Sink, TargetPartition

Change: TypeAlias = Callable[[Stream, Partition], Partition]
_INCARNATION: Final = attrgetter("incarnation")


def change_partitions(state: State, change: Change, incarnations: Collection[int] | None = None) -> State:
    """The state with `change` made to the partitions of these incarnations; None = to all."""
    streams: dict[StreamKey, Stream] = {}
    starts: dict[int, int] = {}
    for key, stream in state.streams.items():
        if incarnations is not None and not any(map(incarnations.__contains__, map(_INCARNATION, stream.partitions))):
            continue  # without a step of Python for each partition: most entries are about one stream of many
        partitions = tuple(
            change(stream, item) if incarnations is None or item.incarnation in incarnations else item
            for item in stream.partitions
        )
        if partitions != stream.partitions:
            lost = _lost_from(zip(stream.partitions, partitions, strict=True))
            streams[key] = replace(stream, partitions=tuple(_unarchived(item, lost) for item in partitions))
            starts.update(lost)
    if not streams:
        return state
    changed = replace(state, streams={**state.streams, **streams})
    return replace(changed, sinks=_lowered(changed.sinks, starts)) if starts else changed


def partition_of(state: State, incarnation: int) -> Partition:
    """The partition of this incarnation.

    Raises:
        RejectedError: there is none.
    """
    for stream in state.streams.values():
        for partition in stream.partitions:
            if partition.incarnation == incarnation:
                return partition
    raise rejected(RejectionCode.PARTITION_NOT_FOUND, f"no partition has the incarnation {incarnation}")


def run_of(state: State, broker_id: str, boot_epoch: int, runs: Collection[Run]) -> Broker:
    """The broker whose last run this is.

    Raises:
        RejectedError: it is not known, another run is its last one, or that run may not do this any more, or not yet.
    """
    broker = state.brokers.get(broker_id)
    if broker is None:
        raise rejected(RejectionCode.BROKER_UNKNOWN, f"broker {broker_id} is not known")
    if broker.boot_epoch != boot_epoch:
        raise stale(f"the last run of broker {broker_id} has the boot epoch {broker.boot_epoch}, not {boot_epoch}")
    if broker.run not in runs:
        raise stale(f"run {boot_epoch} of broker {broker_id} is {broker.run}, not {' or '.join(sorted(runs))}")
    return broker


def stale(message: str) -> RejectedError:
    """The error for an entry that something newer has overtaken."""
    return rejected(RejectionCode.STALE_EPOCH, message)


def check_distinct(what: str, names: tuple[str, ...]) -> None:
    """Refuse names that repeat."""
    if len(set(names)) != len(names):
        raise invalid(f"{what} repeat")


def as_unclean(partition: Partition, broker_id: str) -> Partition:
    """The replica may lack what was counted of it: it leaves the ISR."""
    return replace(
        partition,
        unclean=in_order(partition, {*partition.unclean, broker_id}),
        isr=without(partition.isr, (broker_id,)),
    )


def ended(brokers: Mapping[str, Broker], before: Partition, after: Partition, index: int) -> Partition:
    """`after` with its leader ended by entry `index`: nobody leads until that broker has applied it."""
    leader = brokers[after.leader]
    ending = Ending(leader.id, leader.boot_epoch, index)
    return renewed(before, replace(after, leader="", leader_epoch=index, ending=ending), index)


def _lost_from(pairs: Iterable[tuple[Partition, Partition]]) -> dict[int, int]:
    """By incarnation: from where on records may be missing, as far as that is new."""
    starts: dict[int, int] = {}
    for before, after in pairs:
        new = [item.start for item in after.losses if item not in before.losses and item.start >= 0 and not item.end]
        if new:
            starts[after.incarnation] = min(new)
    return starts


def _unarchived(partition: Partition, starts: Mapping[int, int]) -> Partition:
    """A partition whose archive has its records up to the start of a loss: beyond it, the archive has lost ones."""
    start = starts.get(partition.incarnation, partition.archived_to)
    return replace(partition, archived_to=start) if start < partition.archived_to else partition


def _lowered(sinks: Mapping[StreamKey, Sink], starts: Mapping[int, int]) -> dict[StreamKey, Sink]:
    """Sinks that search their decided rows from the start of a loss on: they may be appended below the old point."""

    def lower(item: TargetPartition) -> TargetPartition:
        start = starts.get(item.incarnation, item.from_offset)
        is_lower = item.phase == "decided" and start < item.from_offset
        return replace(item, from_offset=start) if is_lower else item

    changed = dict(sinks)
    for key, sink in sinks.items():
        if sink.last is None:
            continue
        targets = tuple(
            replace(stream, partitions=tuple(lower(item) for item in stream.partitions)) for stream in sink.last.targets
        )
        if targets != sink.last.targets:
            changed[key] = replace(sink, last=replace(sink.last, targets=targets))
    return changed
