"""What level 2 adds to the entries about streams and groups that exist since level 1. Pure."""

from collections.abc import Callable
from dataclasses import replace

from bascule.metadata import apply_groups, apply_streams, apply_topics
from bascule.metadata.apply_brokers import coordinator_of, default_min_isr
from bascule.metadata.choose import Occasion, choose, is_confirmed, settle
from bascule.metadata.commands import (
    CreateStream,
    EditStream,
    JoinGroup,
    PauseStream,
    PurgeStream,
    RegisterBroker,
    ResumeStream,
    SetGroupCoordinator,
)
from bascule.metadata.model import Partition, State, Stream, StreamKey, StreamSettings
from bascule.metadata.partition_changes import ended
from bascule.metadata.rejection import RejectionCode, invalid, rejected
from bascule.metadata.topic_commands import AddPartitions


def register_broker(state: State, _: int, command: RegisterBroker) -> State:
    """Refused: runs are registered by `register`."""
    message = f"broker {command.broker_id} is to register by an entry of level {state.level}"
    raise rejected(RejectionCode.CLUSTER_VERSION, message)


def create(state: State, index: int, command: CreateStream) -> State:
    """Add the stream; replicas without a confirmed run are not in sync, and the leader is chosen."""
    changed = apply_streams.create(state, index, command)

    def begin(stream: Stream, partition: Partition) -> Partition:
        return _begun(state, _with_min_isr(stream.settings, partition), stream.settings, index)

    compacted = command.settings.compact_enabled is not False
    return _each(changed, StreamKey(command.namespace, command.name), begin, compacted=compacted)


def purge(state: State, index: int, command: PurgeStream) -> State:
    """Give the partitions that the proposer saw new incarnations without flags."""
    stream = apply_streams.find(state, command)
    if command.partition_incarnations != tuple(item.incarnation for item in stream.partitions):
        message = f"the partitions of stream {stream.namespace}/{stream.name} are other incarnations by now"
        raise rejected(RejectionCode.INCARNATION_CHANGED, message)
    changed = apply_streams.purge(state, index, command)

    def begin(stream: Stream, partition: Partition) -> Partition:
        clean = replace(
            partition, unclean=(), unable=(), cut=(), ending=None, reports=(), losses=(), tried=(), volatile_since=0
        )
        return _begun(state, clean, stream.settings, index)

    return _each(changed, stream.key, begin)


def add_partitions(state: State, index: int, command: AddPartitions) -> State:
    """Add partitions as `create` does; those that were there stay."""
    changed = apply_topics.add_partitions(state, index, command)

    def begin(stream: Stream, partition: Partition) -> Partition:
        if partition.number < command.seen:
            return partition
        return _begun(state, _with_min_isr(stream.settings, partition), stream.settings, index)

    return _each(changed, StreamKey(command.namespace, command.name), begin)


def pause(state: State, index: int, command: PauseStream) -> State:
    """Pause, and end the leaders: they may apply it late."""
    changed = apply_streams.pause(state, index, command)

    def end(_: Stream, partition: Partition) -> Partition:
        if partition.number not in command.partitions or not partition.leader:
            return partition
        return ended(state.brokers, partition, partition, index)

    return _each(changed, StreamKey(command.namespace, command.name), end)


def resume(state: State, index: int, command: ResumeStream) -> State:
    """Resume with a new leader epoch; while a leader is ending, only that one may be named again."""
    stream = apply_streams.find(state, command)
    changed = apply_streams.resume(state, index, command)
    paused = {item.number for item in stream.partitions if item.paused and item.number in command.partitions}

    def begin(_: Stream, partition: Partition) -> Partition:
        if partition.number not in paused:
            return partition
        first = partition.ending.broker if partition.ending else partition.leader
        occasion = Occasion(replaced=True, first=first)
        clear = replace(partition, ending=None)
        if partition.ending is not None:
            choice = choose(state.brokers, clear, occasion)
            if choice.step != 3 or choice.leader != first:
                return partition
        return settle(state.brokers, partition, clear, index, occasion)

    return _each(changed, stream.key, begin)


def edit(state: State, index: int, command: EditStream) -> State:
    """Replace the settings that the proposer saw; min-in-sync and the class of durability change the partitions."""
    stream = apply_streams.find(state, command)
    if command.seen != stream.settings:
        raise invalid(f"the settings of stream {stream.namespace}/{stream.name} have changed, or are not named")
    changed = apply_streams.edit(state, index, command)
    durability = command.settings.durability

    def change(after: Stream, partition: Partition) -> Partition:
        edited = _with_min_isr(after.settings, partition)
        if durability != stream.settings.durability:
            volatile = partition.replicas if durability == "memory" else partition.volatile
            edited = replace(edited, volatile=volatile, volatile_since=index)
        return settle(state.brokers, partition, edited, index)

    compacted = stream.compacted or command.settings.compact_enabled is not False
    return _each(changed, stream.key, change, compacted=compacted)


def join(state: State, index: int, command: JoinGroup) -> State:
    """Join; a new group is coordinated by the named broker if its run is confirmed, else by the next one."""
    if command.group in state.groups or is_confirmed(state.brokers, command.coordinator):
        return apply_groups.join(state, index, command)
    coordinator = coordinator_of(state, command.group, state.brokers)
    if not coordinator:
        raise rejected(RejectionCode.NO_COORDINATOR, f"no broker can coordinate group {command.group}")
    return apply_groups.join(state, index, replace(command, coordinator=coordinator))


def set_coordinator(state: State, index: int, command: SetGroupCoordinator) -> State:
    """Set the coordinator, whose run is confirmed."""
    if command.coordinator in state.brokers and not is_confirmed(state.brokers, command.coordinator):
        raise rejected(RejectionCode.NO_COORDINATOR, f"broker {command.coordinator} has no confirmed run")
    return apply_groups.set_coordinator(state, index, command)


def _begun(state: State, partition: Partition, settings: StreamSettings, index: int) -> Partition:
    """A new incarnation: whoever is there is in sync, for nothing is committed."""
    confirmed = tuple(item for item in partition.replicas if is_confirmed(state.brokers, item))
    if not confirmed:
        message = f"no broker of partition {partition.number} has a confirmed run: {', '.join(partition.replicas)}"
        raise rejected(RejectionCode.NOT_ENOUGH_BROKERS, message)
    begun = replace(
        partition,
        isr=confirmed,
        eligible=confirmed,
        volatile=partition.replicas if settings.durability == "memory" else (),
    )
    return settle(state.brokers, partition, begun, index, Occasion(replaced=True, first=partition.leader))


def _with_min_isr(settings: StreamSettings, partition: Partition) -> Partition:
    asked, factor = settings.min_isr or 0, len(partition.replicas)
    if asked > factor:
        raise invalid(f"min_isr {asked} is above the {factor} replicas of partition {partition.number}")
    return replace(partition, min_isr=asked or default_min_isr(factor), explicit_min_isr=asked > 0)


def _each(
    state: State, key: StreamKey, change: Callable[[Stream, Partition], Partition], *, compacted: bool | None = None
) -> State:
    stream = state.streams[key]
    partitions = tuple(change(stream, item) for item in stream.partitions)
    is_compacted = stream.compacted if compacted is None else compacted
    changed = replace(stream, partitions=partitions, compacted=is_compacted)
    return replace(state, streams={**state.streams, key: changed})
