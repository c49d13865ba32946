"""Decisions: a state and a request in, a command or a rejection out. Pure.

A decision is made against the state as it is now; when another command gets in between, `apply` has the last word.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from bascule.metadata import (
    DEFAULT_NAMESPACE,
    FIXED_SETTINGS,
    MAX_PARTITIONS,
    CreateStream,
    DataKey,
    DeleteStream,
    EditStream,
    IggyTopic,
    PauseStream,
    Placement,
    PurgeStream,
    ResumeStream,
    SetStreamReadonly,
    State,
    Stream,
    StreamKey,
    StreamSettings,
    TrimPartition,
)
from bascule.metadata.json_codec import DecodeError, from_plain, to_plain
from bascule.metadata.model import SETTING_BOUNDS
from bascule.metadata.nats_acks import acks_refusal
from bascule.metadata.rejection import Rejection, RejectionCode, wrong_setting

ALL_BROKERS = -1
"""As a replication factor: as many replicas as there are brokers."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A request for a stream.

    Attributes:
        namespace: namespace; made when it does not exist.
        name: name, unique in the namespace.
        subject: NATS subject, wildcards allowed; empty = none.
        queue_group: NATS queue group; empty = none.
        partitions: how many, 1..MAX_PARTITIONS; a client of Iggy may ask for none in a namespace of its own.
        replication_factor: replicas of each partition, 1..cluster size, or `ALL_BROKERS`.
        settings: the rest.
        id: number within the namespace that the creator chose; `None` = the next one.
        iggy: what a client of Iggy asks for beside.
    """

    namespace: str
    name: str
    subject: str
    queue_group: str
    partitions: int
    replication_factor: int
    settings: StreamSettings
    id: int | None = None
    iggy: IggyTopic | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Partitions of a stream that a request is about; none named = all."""

    namespace: str
    name: str
    partitions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Trim:
    """A request that the records of a partition below offset `before` go."""

    namespace: str
    name: str
    partition: int
    before: int


@dataclass(frozen=True, slots=True)
class Load:
    """What a broker carries: replicas and leaderships of partitions that are not paused."""

    replicas: int
    leaders: int


def create_stream(
    state: State,
    request: StreamRequest,
    now_ns: int,
    data_keys: tuple[DataKey, ...] = (),
    reachable: frozenset[str] | None = None,
) -> CreateStream | Rejection:
    """The command that makes the stream, with its replicas placed; checks in the order of the codes.

    Args:
        state: the state.
        request: what is asked for.
        now_ns: the time.
        data_keys: one when the stream is encrypted.
        reachable: brokers that replicas may be placed on; `None` = all.
    """
    size = len(state.brokers)
    factor = size if request.replication_factor == ALL_BROKERS else request.replication_factor
    refusal = _check_partitions(request) or _check_replicas(factor, size)
    if refusal is not None:
        return refusal
    if state.stream(request.namespace, request.name) is not None:
        return Rejection(RejectionCode.STREAM_EXISTS, f"stream {request.namespace}/{request.name} exists")
    carried = {item: load for item, load in loads(state).items() if _takes_replicas(state, item, reachable)}
    if len(carried) < factor:
        message = f"Invalid replicationFactor {factor}, {len(carried)} of {size} brokers take replicas now"
        return Rejection(RejectionCode.NOT_ENOUGH_BROKERS, message)
    key = StreamKey(request.namespace, request.name)
    if refused := acks_refusal(state, key, request.subject, request.partitions, request.settings):
        return Rejection(RejectionCode.INVALID, "; ".join(refused))
    return CreateStream(
        namespace=request.namespace,
        name=request.name,
        subject=request.subject,
        queue_group=request.queue_group,
        created_ns=now_ns,
        settings=request.settings,
        placements=place(carried, request.partitions, factor),
        data_keys=data_keys,
        id=request.id,
        iggy=request.iggy,
    )


def due_for_data_key(state: State, master: str) -> list[Stream]:
    """Encrypted streams whose newest data key is wrapped by another master key than `master`, in order of identity."""
    streams = (stream for _, stream in sorted(state.streams.items()))
    return [stream for stream in streams if stream.data_keys and stream.data_keys[-1].master != master]


def delete_stream(state: State, namespace: str, name: str) -> DeleteStream | Rejection:
    """The command that deletes the stream as it is now."""
    stream = state.stream(namespace, name)
    if stream is None:
        return Rejection(RejectionCode.STREAM_NOT_FOUND, f"stream {namespace}/{name} does not exist")
    return DeleteStream(namespace, name, stream.incarnation)


def pause_stream(state: State, target: Target, *, resume_all: bool, now_ns: int) -> PauseStream | Rejection:
    """The command that pauses the partitions."""
    found = _partitions(state, target)
    if isinstance(found, Rejection):
        return found
    stream, numbers = found
    return PauseStream(stream.namespace, stream.name, stream.incarnation, numbers, resume_all, now_ns)


def resume_partition(
    state: State, namespace: str, name: str, partition: int, now_ns: int
) -> ResumeStream | Rejection | None:
    """The command that resumes `partition`, or every paused partition of the stream when its last pause asked for that,
    also when `partition` itself is open; None when there is nothing to resume.
    """
    found = _partitions(state, Target(namespace, name, (partition,)))
    if isinstance(found, Rejection):
        return found
    stream, numbers = found
    wanted = tuple(item.number for item in stream.partitions) if stream.resume_all else numbers
    numbers = tuple(number for number in wanted if stream.partitions[number].paused)
    if not numbers:
        return None
    return ResumeStream(namespace, name, stream.incarnation, numbers, stream.resume_all, now_ns)


def set_readonly(state: State, target: Target, *, readonly: bool, now_ns: int) -> SetStreamReadonly | Rejection:
    """The command that sets the flag of the partitions."""
    found = _partitions(state, target)
    if isinstance(found, Rejection):
        return found
    stream, numbers = found
    return SetStreamReadonly(stream.namespace, stream.name, stream.incarnation, numbers, readonly, now_ns)


def resume_stream(state: State, target: Target, now_ns: int) -> ResumeStream | Rejection | None:
    """The command that resumes those of the partitions that are paused; None when none is."""
    found = _partitions(state, target)
    if isinstance(found, Rejection):
        return found
    stream, numbers = found
    paused = tuple(number for number in numbers if stream.partitions[number].paused)
    # The request to resume all together ends when none is left paused.
    all_open = all(not item.paused or item.number in paused for item in stream.partitions)
    if not paused:
        return None
    return ResumeStream(stream.namespace, stream.name, stream.incarnation, paused, all_open, now_ns)


def edit_stream(
    state: State, namespace: str, name: str, changes: Mapping[str, object]
) -> EditStream | Rejection | None:
    """The command that changes settings; None when they are so already.

    Args:
        state: the state.
        namespace: part of the identity.
        name: part of the identity.
        changes: names of `StreamSettings` to plain values; None = as the broker's configuration says.
    """
    stream = state.stream(namespace, name)
    if stream is None:
        return Rejection(RejectionCode.STREAM_NOT_FOUND, f"stream {namespace}/{name} does not exist")
    settings = _edited(stream.settings, changes)
    if isinstance(settings, Rejection):
        return settings
    if refused := acks_refusal(state, stream.key, stream.subject, len(stream.partitions), settings):
        return Rejection(RejectionCode.INVALID, "; ".join(refused))
    return (
        None
        if settings == stream.settings
        else EditStream(namespace, name, stream.incarnation, settings, stream.settings if state.level >= 2 else None)
    )


def _edited(settings: StreamSettings, changes: Mapping[str, object]) -> StreamSettings | Rejection:
    known = [item.name for item in fields(StreamSettings) if item.name not in FIXED_SETTINGS]
    for setting in sorted(changes):
        if setting in FIXED_SETTINGS:
            message = f"{setting} stays as the stream was created: create another one and copy the records"
            return Rejection(RejectionCode.INVALID, message)
        if setting not in known:
            return Rejection(
                RejectionCode.INVALID, f"{setting} is not a setting of a stream, which has {', '.join(known)}"
            )
    for setting, value in changes.items():
        wrong = wrong_setting(setting, value) if setting in SETTING_BOUNDS and isinstance(value, int) else None
        if wrong:
            return Rejection(RejectionCode.INVALID, wrong)
    try:
        return from_plain(StreamSettings, {**to_plain(settings), **changes})
    except DecodeError as wrong:
        return Rejection(RejectionCode.INVALID, f"the settings are not valid: {wrong}")


def trim_partition(state: State, request: Trim, high_watermark: int | None) -> TrimPartition | Rejection | None:
    """The command that removes the prefix; None when that was done already.

    Args:
        state: the state.
        request: what is to go.
        high_watermark: end of what is committed in the partition; None = it is not open here.
    """
    found = _partitions(state, Target(request.namespace, request.name, (request.partition,)))
    if isinstance(found, Rejection):
        return found
    stream, _ = found
    if stream.partitions[request.partition].paused:
        message = (
            f"partition {request.partition} of stream {request.name} is paused: resume it first, bascule stream resume"
        )
        return Rejection(RejectionCode.PAUSED, message)
    if high_watermark is None:
        message = f"partition {request.partition} of stream {request.namespace}/{request.name} is not open here"
        return Rejection(RejectionCode.NOT_OPEN, message)
    if not 0 <= request.before <= high_watermark:
        message = f"offset {request.before} is not between 0 and the high watermark {high_watermark}, which removes all"
        return Rejection(RejectionCode.INVALID, message)
    chosen = stream.partitions[request.partition]
    if request.before <= chosen.trimmed_to:
        return None
    return TrimPartition(
        request.namespace, request.name, stream.incarnation, request.partition, chosen.incarnation, request.before
    )


def purge_stream(state: State, namespace: str, name: str) -> PurgeStream | Rejection:
    """The command that removes all records of the stream as it is now."""
    stream = state.stream(namespace, name)
    if stream is None:
        return Rejection(RejectionCode.STREAM_NOT_FOUND, f"stream {namespace}/{name} does not exist")
    partitions = tuple(item.incarnation for item in stream.partitions) if state.level >= 2 else ()
    return PurgeStream(namespace, name, stream.incarnation, partitions)


def loads(state: State) -> dict[str, Load]:
    """The load of every broker, in order of id."""
    replicas, leaders = dict.fromkeys(sorted(state.brokers), 0), dict.fromkeys(state.brokers, 0)
    for stream in state.streams.values():
        for partition in stream.partitions:
            if partition.paused:
                continue
            for broker_id in partition.replicas:
                replicas[broker_id] += 1
            if partition.leader:
                leaders[partition.leader] += 1
    return {broker_id: Load(replicas[broker_id], leaders[broker_id]) for broker_id in replicas}


def place(carried: Mapping[str, Load], partitions: int, factor: int) -> tuple[Placement, ...]:
    """Where `partitions` partitions of `factor` replicas go.

    Each goes to the brokers that carry the fewest replicas, those placed just before included, and is led by the one
    among them that leads the fewest; equals are taken in the order of `carried`.

    Args:
        carried: load by broker id, at least `factor` of them.
        partitions: how many, ≥ 0.
        factor: replicas of each, ≥ 1.
    """
    replicas = {broker_id: load.replicas for broker_id, load in carried.items()}
    leaders = {broker_id: load.leaders for broker_id, load in carried.items()}
    placements: list[Placement] = []
    for _ in range(partitions):
        chosen = sorted(replicas, key=replicas.__getitem__)[:factor]
        leader = min(chosen, key=leaders.__getitem__)
        for broker_id in chosen:
            replicas[broker_id] += 1
        leaders[leader] += 1
        placements.append(Placement((leader, *(item for item in chosen if item != leader)), leader))
    return tuple(placements)


def _partitions(state: State, target: Target) -> tuple[Stream, tuple[int, ...]] | Rejection:
    """The stream and the numbers meant, ascending and distinct."""
    shown = f"{target.namespace}/{target.name}"
    stream = state.stream(target.namespace, target.name)
    if stream is None:
        return Rejection(RejectionCode.STREAM_NOT_FOUND, f"stream {shown} does not exist")
    for number in target.partitions:
        if not 0 <= number < len(stream.partitions):
            return Rejection(RejectionCode.PARTITION_NOT_FOUND, f"partition {number} of stream {shown} does not exist")
    return stream, tuple(sorted(set(target.partitions))) or tuple(range(len(stream.partitions)))


def _takes_replicas(state: State, broker_id: str, reachable: frozenset[str] | None) -> bool:
    """Whether new replicas may be placed there."""
    broker = state.brokers[broker_id]
    is_member = state.level < 2 or (broker.run == "confirmed" and not broker.draining and not broker.removed)
    return is_member and (reachable is None or broker_id in reachable)


def _check_partitions(request: StreamRequest) -> Rejection | None:
    is_iggy = request.iggy is not None and request.namespace != DEFAULT_NAMESPACE
    if request.partitions < (0 if is_iggy else 1):
        return Rejection(RejectionCode.NO_PARTITIONS, "no partitions provided")
    if request.partitions > MAX_PARTITIONS:
        message = f"{request.partitions} partitions are more than the {MAX_PARTITIONS} a stream may have"
        return Rejection(RejectionCode.TOO_MANY_PARTITIONS, message)
    full = request.subject == ">" or request.subject.endswith(".>")
    if full and request.partitions > 1 and not request.settings.partition_by_subject:
        message = f"subject {request.subject} ends in >, so a partition above 0 would have no subject to listen on"
        return Rejection(RejectionCode.SUBJECT_HAS_NO_ROOM, message)
    return None


def _check_replicas(factor: int, size: int) -> Rejection | None:
    if factor <= 0:
        return Rejection(RejectionCode.INVALID_REPLICATION_FACTOR, f"Invalid replicationFactor {factor}")
    if factor > size:
        return Rejection(RejectionCode.NOT_ENOUGH_BROKERS, f"Invalid replicationFactor {factor}, cluster size {size}")
    return None
