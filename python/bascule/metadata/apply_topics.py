"""The part of `apply` that changes how many partitions a stream has, and names of streams and namespaces. Pure.

Clients of other protocols, sinks and archives know a stream by its name and its partitions by their number: what they
hold is refused a change that they would not notice.
"""

from dataclasses import replace

from bascule.metadata.apply_sinks import without_partitions
from bascule.metadata.apply_streams import check_placement, check_settings, find, new_partition
from bascule.metadata.apply_topic_groups import reassigned
from bascule.metadata.model import DEFAULT_NAMESPACE, MAX_TOPIC_PARTITIONS, State, Stream, StreamKey
from bascule.metadata.rejection import RejectionCode, check_name, invalid, rejected
from bascule.metadata.topic_commands import AddPartitions, ChangeTopic, RemovePartitions, RenameNamespace


def add_partitions(state: State, index: int, command: AddPartitions) -> State:
    """Add empty partitions after the last one."""
    stream = _divisible(state, command)
    count = command.seen + len(command.placements)
    if not command.placements:
        raise rejected(RejectionCode.NO_PARTITIONS, "no partitions provided")
    if count > MAX_TOPIC_PARTITIONS:
        message = f"{count} partitions are more than the {MAX_TOPIC_PARTITIONS} a stream may have"
        raise rejected(RejectionCode.TOO_MANY_PARTITIONS, message)
    for number, placement in enumerate(command.placements, command.seen):
        check_placement(state.brokers, number, placement)
    added = (new_partition(index, number, item) for number, item in enumerate(command.placements, command.seen))
    changed = replace(_limited(stream, command.retention_bytes), partitions=(*stream.partitions, *added))
    return _put(state, reassigned(changed, index))


def remove_partitions(state: State, index: int, command: RemovePartitions) -> State:
    """Remove the partitions with the highest numbers."""
    stream = _divisible(state, command)
    if not 1 <= command.count <= command.seen:
        raise invalid(f"{command.count} partitions are not between 1 and the {command.seen} of stream {command.name}")
    rest = command.seen - command.count
    state = without_partitions(state, replace(stream, partitions=stream.partitions[rest:]))
    changed = replace(_limited(stream, command.retention_bytes), partitions=stream.partitions[:rest])
    return _put(state, reassigned(changed, index))


def change_topic(state: State, _: int, command: ChangeTopic) -> State:
    """Change name and retention; number, partitions and records stay."""
    stream = find(state, command)
    settings = replace(
        stream.settings, retention_age_ms=command.retention_age_ms, retention_bytes=command.retention_bytes
    )
    check_settings(settings)
    changed = replace(stream, settings=settings, iggy=command.iggy, name=command.to)
    if command.to == command.name:
        return _put(state, changed)
    check_name("stream name", command.to)
    if changed.key in state.streams:
        raise rejected(RejectionCode.STREAM_EXISTS, f"stream {command.namespace}/{command.to} exists")
    _check_movable(state, stream)
    return replace(state, streams=_moved(state, {stream.key: changed}))


def rename_namespace(state: State, _: int, command: RenameNamespace) -> State:
    """Give the namespace another name; its number and its streams stay."""
    found = state.namespaces.get(command.name)
    if found is None or found.id != command.id:
        raise rejected(RejectionCode.NAMESPACE_NOT_FOUND, f"namespace {command.name} does not exist")
    if command.to == command.name:
        return state
    check_name("namespace", command.to)
    if command.to in state.namespaces:
        raise rejected(RejectionCode.NAMESPACE_EXISTS, f"namespace {command.to} exists")
    if command.name == DEFAULT_NAMESPACE:
        raise rejected(RejectionCode.NAME_IN_USE, f"namespace {DEFAULT_NAMESPACE} keeps its name")
    held = [stream for key, stream in sorted(state.streams.items()) if key.namespace == command.name]
    _check_sinks(state, command.name)
    for stream in held:
        _check_movable(state, stream)
    names = {name: item for name, item in state.namespaces.items() if name != command.name}
    return replace(
        state,
        namespaces={**names, command.to: replace(found, name=command.to)},
        streams=_moved(state, {stream.key: replace(stream, namespace=command.to) for stream in held}),
    )


def _divisible(state: State, command: AddPartitions | RemovePartitions) -> Stream:
    """The stream, if its number of partitions may change."""
    stream = find(state, command)
    if len(stream.partitions) != command.seen:
        message = f"stream {stream.name} has {len(stream.partitions)} partitions by now, not {command.seen}"
        raise rejected(RejectionCode.INCARNATION_CHANGED, message)
    if stream.namespace == DEFAULT_NAMESPACE or stream.subject:
        message = (
            f"stream {stream.namespace}/{stream.name} keeps its partitions: clients of Liftbridge and of NATS choose "
            "them by their number"
        )
        raise rejected(RejectionCode.PARTITIONS_FIXED, message)
    return stream


def _check_movable(state: State, stream: Stream) -> None:
    """Refuse another name while something outside of the state knows the stream by the one that it has."""
    shown = f"stream {stream.namespace}/{stream.name}"
    if stream.namespace == DEFAULT_NAMESPACE or stream.subject:
        message = f"{shown} keeps its name: clients of Liftbridge and of NATS, and their positions, know it by that"
        raise rejected(RejectionCode.NAME_IN_USE, message)
    archive = next((item.archive for item in stream.partitions if item.archive), "")
    if archive:
        raise rejected(RejectionCode.NAME_IN_USE, f"{shown} keeps its name: the archive {archive!r} has it under that")
    _check_sinks(state, stream.namespace)


def _check_sinks(state: State, namespace: str) -> None:
    sink = next((key.name for key in sorted(state.sinks) if key.namespace == namespace), None)
    if sink is not None:
        message = f"names in namespace {namespace} stay while it has the sink {sink!r}: delete it, bascule sink delete"
        raise rejected(RejectionCode.NAME_IN_USE, message)


def _limited(stream: Stream, retention_bytes: int | None) -> Stream:
    settings = replace(stream.settings, retention_bytes=retention_bytes)
    check_settings(settings)
    return replace(stream, settings=settings)


def _put(state: State, stream: Stream) -> State:
    return replace(state, streams={**state.streams, stream.key: stream})


def _moved(state: State, changed: dict[StreamKey, Stream]) -> dict[StreamKey, Stream]:
    """All streams, those with these keys replaced and under the keys that they have now."""
    rest = {key: stream for key, stream in state.streams.items() if key not in changed}
    return {**rest, **{stream.key: stream for stream in changed.values()}}
