"""The part of `apply` that concerns streams. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from bascule.metadata import apply_users
from bascule.metadata.activity import record_activity
from bascule.metadata.apply_groups import without_stream
from bascule.metadata.apply_sinks import without_partitions
from bascule.metadata.commands import (
    AddDataKey,
    CreateStream,
    CreateTopicGroup,
    DeleteStream,
    DeleteTopicGroup,
    EditStream,
    PauseStream,
    PurgeStream,
    ResumeStream,
    SetStreamReadonly,
    TrimPartition,
)
from bascule.metadata.model import (
    DEFAULT_NAMESPACE,
    FIXED_SETTINGS,
    MAX_NUMBERS,
    MAX_PARTITIONS,
    MAX_SUBJECT_BYTES,
    SETTING_BOUNDS,
    Activity,
    Broker,
    DataKey,
    Namespace,
    Partition,
    State,
    Stream,
    StreamKey,
    StreamSettings,
    incarnation_of,
)
from bascule.metadata.nats_acks import acks_refusal
from bascule.metadata.rejection import MAX_NAME_BYTES, RejectionCode, check_name, invalid, rejected, wrong_setting
from bascule.metadata.topic_commands import OfTopic, Placement


def create(state: State, index: int, command: CreateStream) -> State:
    """Add the stream with the placement that the proposer chose."""
    _check_creation(state, command)
    known = state.namespaces.get(command.namespace)
    namespace = known or Namespace(command.namespace, state.next_namespace_id, 0, command.created_ns)
    number = namespace.next_stream_id if command.id is None else command.id
    stream = Stream(
        namespace=command.namespace,
        name=command.name,
        id=number,
        incarnation=index,
        subject=command.subject,
        queue_group=command.queue_group,
        created_ns=command.created_ns,
        settings=command.settings,
        partitions=tuple(new_partition(index, number, item) for number, item in enumerate(command.placements)),
        data_keys=command.data_keys,
        iggy=command.iggy,
    )
    namespace = replace(namespace, next_stream_id=max(namespace.next_stream_id, number + 1))
    changed = replace(
        state,
        namespaces={**state.namespaces, namespace.name: namespace},
        streams={**state.streams, stream.key: stream},
        next_namespace_id=state.next_namespace_id + (0 if known else 1),
    )
    numbers = tuple(range(len(stream.partitions)))
    return _recorded(changed, stream, Activity(index, "create_stream", stream.name, numbers))


def add_data_key(state: State, _: int, command: AddDataKey) -> State:
    """Add a data key, which encrypts new batches."""
    stream = find(state, command)
    if not stream.data_keys:
        raise invalid(f"stream {_shown(stream.key)} is not encrypted")
    if command.data_key.number != stream.data_keys[-1].number + 1:
        raise invalid(f"data key {command.data_key.number} does not follow {stream.data_keys[-1].number}")
    _check_data_key(command.data_key)
    return _put(state, replace(stream, data_keys=(*stream.data_keys, command.data_key)))


def delete(state: State, index: int, command: DeleteStream) -> State:
    """Remove the stream and balance the groups that read it again."""
    stream = find(state, command)
    rest = replace(state, streams={key: item for key, item in state.streams.items() if key != stream.key})
    rest = without_partitions(rest, stream)
    rest = apply_users.without_stream(rest, state.namespaces[stream.namespace].id, stream.id)
    if stream.namespace == DEFAULT_NAMESPACE:
        rest = without_stream(rest, index, stream.name)
    return _recorded(rest, stream, Activity(index, "delete_stream", stream.name))


def pause(state: State, index: int, command: PauseStream) -> State:
    """Pause the partitions; those paused already get the new time too."""

    def change(partition: Partition) -> Partition:
        first_ns = partition.first_paused_ns or command.changed_ns
        return replace(partition, paused=True, first_paused_ns=first_ns, last_paused_ns=command.changed_ns)

    stream = find(state, command)
    changed = replace(_with(stream, command.partitions, change), resume_all=command.resume_all)
    event = Activity(index, "pause_stream", stream.name, command.partitions, flag=command.resume_all)
    return _recorded(_put(state, changed), stream, event)


def resume(state: State, index: int, command: ResumeStream) -> State:
    """Resume the paused ones of the partitions."""

    def change(partition: Partition) -> Partition:
        return replace(partition, paused=False, last_paused_ns=command.changed_ns) if partition.paused else partition

    stream = find(state, command)
    changed = _with(stream, command.partitions, change)
    if command.clear_resume_all:
        changed = replace(changed, resume_all=False)
    event = Activity(index, "resume_stream", stream.name, command.partitions)
    return _recorded(_put(state, changed), stream, event)


def set_readonly(state: State, index: int, command: SetStreamReadonly) -> State:
    """Set or clear the read-only flag of the partitions."""

    def change(partition: Partition) -> Partition:
        first_ns = partition.first_readonly_ns or command.changed_ns
        return replace(
            partition,
            readonly=command.readonly,
            first_readonly_ns=first_ns,
            last_readonly_ns=command.changed_ns,
        )

    stream = find(state, command)
    changed = _with(stream, command.partitions, change)
    event = Activity(index, "set_stream_readonly", stream.name, command.partitions, flag=command.readonly)
    return _recorded(_put(state, changed), stream, event)


def edit(state: State, _: int, command: EditStream) -> State:
    """Replace the settings; partitions, subject and keys stay."""
    stream = find(state, command)
    check_settings(command.settings)
    _check_acks(state, stream.key, stream.subject, len(stream.partitions), command.settings)
    for name in FIXED_SETTINGS:
        if getattr(command.settings, name) != getattr(stream.settings, name):
            raise invalid(f"{name} of stream {_shown(stream.key)} stays as it was created")
    return _put(state, replace(stream, settings=command.settings))


def trim(state: State, _: int, command: TrimPartition) -> State:
    """Raise the log start of the partition to the offset."""

    def change(partition: Partition) -> Partition:
        if partition.incarnation != command.partition_incarnation:
            raise invalid(f"partition {command.partition} of {command.name} is another incarnation by now")
        return replace(partition, trimmed_to=max(partition.trimmed_to, command.before))

    if command.before < 0:
        raise invalid(f"offset {command.before} is below 0")
    stream = find(state, command)
    return _put(state, _with(stream, (command.partition,), change))


def purge(state: State, index: int, command: PurgeStream) -> State:
    """Give every partition a new, empty incarnation with the same leader and replicas."""

    def change(partition: Partition) -> Partition:
        return replace(
            partition,
            incarnation=incarnation_of(index, partition.number),
            leader_epoch=index,
            epoch=index,
            trimmed_to=0,
            archived_to=0,
            archive="",
        )

    stream = find(state, command)
    rest = without_partitions(state, stream)
    return _put(rest, replace(stream, partitions=tuple(change(item) for item in stream.partitions)))


_OfStream: TypeAlias = (
    AddDataKey
    | DeleteStream
    | PauseStream
    | ResumeStream
    | SetStreamReadonly
    | EditStream
    | TrimPartition
    | PurgeStream
    | CreateTopicGroup
    | DeleteTopicGroup
    | OfTopic
)


def find(state: State, command: _OfStream) -> Stream:
    """The stream that the command names, if it is the same incarnation."""
    key = StreamKey(command.namespace, command.name)
    stream = state.streams.get(key)
    if stream is None or stream.incarnation != command.incarnation:
        raise rejected(RejectionCode.STREAM_NOT_FOUND, f"stream {_shown(key)} does not exist")
    return stream


def _with(stream: Stream, numbers: tuple[int, ...], change: Callable[[Partition], Partition]) -> Stream:
    """The stream with the partitions of these numbers changed."""
    if len(set(numbers)) != len(numbers):
        raise invalid("numbers of partitions repeat")
    partitions = list(stream.partitions)
    for number in numbers:
        if not 0 <= number < len(partitions):
            message = f"partition {number} of stream {_shown(stream.key)} does not exist"
            raise rejected(RejectionCode.PARTITION_NOT_FOUND, message)
        partitions[number] = change(partitions[number])
    return replace(stream, partitions=tuple(partitions))


def _put(state: State, stream: Stream) -> State:
    if state.streams[stream.key] == stream:
        return state
    return replace(state, streams={**state.streams, stream.key: stream})


def _recorded(state: State, stream: Stream, event: Activity) -> State:
    """Record the event of a stream; only streams of the namespace `default` have events."""
    return record_activity(state, event) if stream.namespace == DEFAULT_NAMESPACE else state


def new_partition(index: int, number: int, placement: Placement) -> Partition:
    """A partition that entry `index` makes, all replicas in sync."""
    return Partition(
        number=number,
        incarnation=incarnation_of(index, number),
        leader=placement.leader,
        leader_epoch=index,
        epoch=index,
        replicas=placement.replicas,
        isr=placement.replicas,
    )


def _check_creation(state: State, command: CreateStream) -> None:
    check_name("namespace", command.namespace)
    check_name("stream name", command.name)
    for what, name, most in (
        ("subject", command.subject, MAX_SUBJECT_BYTES),
        ("queue group", command.queue_group, MAX_NAME_BYTES),
    ):
        if len(name.encode()) > most:
            raise invalid(f"{what} of stream {command.name} is {len(name.encode())} bytes long, more than {most}")
    check_settings(command.settings)
    if len(command.placements) > MAX_PARTITIONS:
        raise invalid(f"{len(command.placements)} partitions are more than {MAX_PARTITIONS}")
    for number, placement in enumerate(command.placements):
        check_placement(state.brokers, number, placement)
    if [item.number for item in command.data_keys] != list(range(1, len(command.data_keys) + 1)):
        raise invalid("numbers of data keys do not count up from 1")
    for data_key in command.data_keys:
        _check_data_key(data_key)
    key = StreamKey(command.namespace, command.name)
    if key in state.streams:
        raise rejected(RejectionCode.STREAM_EXISTS, f"stream {_shown(key)} exists")
    if command.id is not None:
        _check_number(state, command.namespace, command.id)
    _check_acks(state, key, command.subject, len(command.placements), command.settings)


def _check_number(state: State, namespace: str, number: int) -> None:
    """A number that the creator chose is free, also if a stream that is gone had it."""
    if not 0 <= number < MAX_NUMBERS:
        raise invalid(f"number {number} of a stream is not between 0 and {MAX_NUMBERS - 1}")
    for stream in state.streams.values():
        if stream.namespace == namespace and stream.id == number:
            raise rejected(RejectionCode.NUMBER_IN_USE, f"stream {_shown(stream.key)} has the number {number}")


def check_placement(brokers: Mapping[str, Broker], number: int, placement: Placement) -> None:
    """Refuse replicas that are not known or repeat, and a leader that is none of them."""
    for broker_id in placement.replicas:
        if broker_id not in brokers:
            raise rejected(RejectionCode.BROKER_UNKNOWN, f"broker {broker_id} of partition {number} is not known")
    if len(set(placement.replicas)) != len(placement.replicas) or placement.leader not in placement.replicas:
        raise invalid(f"replicas of partition {number} repeat, or its leader is not one of them")


def _check_data_key(data_key: DataKey) -> None:
    check_name("id of a master key", data_key.master)
    check_name("wrapped data key", data_key.wrapped)


def check_settings(settings: StreamSettings) -> None:
    """Refuse settings out of their bounds, and those that lack another one."""
    for name in SETTING_BOUNDS:
        value: int | None = getattr(settings, name)
        if value is not None and (problem := wrong_setting(name, value)):
            raise invalid(problem)
    if settings.retention_after_archive and settings.retention_after_archive_max_bytes is None:
        raise invalid(
            "retention_after_archive needs retention_after_archive_max_bytes: the size of a partition above which "
            "retention does not wait, so that an archive that is down does not fill the disk"
        )
    if settings.retention_hold_expiry_ms is not None and settings.retention_hold_max_bytes is None:
        raise invalid(
            "retention_hold_expiry_ms needs retention_hold_max_bytes: the size of a partition above which queries hold "
            "nothing, so that a query that is stuck does not fill the disk"
        )


def _check_acks(state: State, key: StreamKey, subject: str, partitions: int, settings: StreamSettings) -> None:
    if refusal := acks_refusal(state, key, subject, partitions, settings):
        raise invalid("; ".join(refusal))


def _shown(key: StreamKey) -> str:
    return f"{key.namespace}/{key.name}"
