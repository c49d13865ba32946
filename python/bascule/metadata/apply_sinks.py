"""The part of `apply` that concerns sinks. Pure. The rules are those of `docs/decisions/sink.md`."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from bascule.metadata.model import State, Stream, StreamKey
from bascule.metadata.rejection import RejectionCode, check_name, invalid, rejected
from bascule.metadata.sink_commands import (
    AdvanceClock,
    DeleteSink,
    ExpireSink,
    LinkSink,
    OpenSink,
    PublishSink,
    SetSinkOwner,
    SetSinkQuota,
    SkipSink,
)
from bascule.metadata.sinks import (
    MAX_EXPIRED,
    MAX_RETIRED_QUERIES,
    MAX_RETIRED_RUNS,
    MAX_SINKS,
    Attempt,
    Lifetime,
    Published,
    Sink,
    Skip,
    TargetPartition,
    TargetStream,
)

Command = PublishSink | LinkSink | ExpireSink | SkipSink | DeleteSink | SetSinkQuota | SetSinkOwner


def open_sink(state: State, index: int, command: OpenSink) -> State:
    """Make this run the sink's current one; the run that is current already changes nothing but the time of use."""
    check_name("name of a sink", command.name)
    check_name("namespace", command.namespace)
    if bool(command.query_id) == (command.kind == "batch") or not command.run_id:
        raise invalid(f"a {command.kind} write has query {command.query_id!r} and run {command.run_id!r}")
    known = state.sinks.get(StreamKey(command.namespace, command.name))
    _check_query(state, command)
    if known is None:
        _check_room(state, command)
        sink = Sink(
            namespace=command.namespace,
            name=command.name,
            owner=command.owner,
            kind=command.kind,
            lifetime=command.lifetime,
            id=index,
            generation=index,
            query_id=command.query_id,
            run_id=command.run_id,
        )
    else:
        _check_opener(known, command)
        sink = _renewed(known, index, command)
    return put(state, replace(sink, used_ms=state.clock_ms))


def _check_query(state: State, command: OpenSink) -> None:
    """A streaming query has one sink: under a second name, its last epoch would be written once more."""
    if command.kind == "batch":
        return
    for sink in state.sinks.values():
        if sink.query_id != command.query_id or sink.kind == "batch":
            continue
        is_same = (sink.namespace, sink.name) == (command.namespace, command.name)
        if not is_same and "stream" in (sink.kind, command.kind):
            raise rejected(
                RejectionCode.SINK_CONFLICT,
                f"query {command.query_id} writes to sink {sink.name} in namespace {sink.namespace}, not to "
                f"{command.name}: set sinkId to {sink.name}, or start with a new checkpoint",
            )


_ANOTHER: Final = "another sinkId, or for a copy another id"
_WITHOUT_ROOM: Final[Mapping[Lifetime, tuple[str, str]]] = {
    "kept": ("named sinks", "delete some that are not used"),
    "month": (
        "idempotency keys and queries without sinkId that were used in the last 30 days",
        "delete some that are not used any more, or give the query a sinkId",
    ),
    "hour": ("batch writes of the last hour", "write larger batches less often, or give them an idempotencyKey"),
}
"""By lifetime: what there is too much of, and what to do about it."""


def _check_room(state: State, command: OpenSink) -> None:
    """Each lifetime has places of its own: batch writes do not take those of idempotency keys. One client may have a
    share of them; clients without certificates cannot be distinguished and have no share.
    """
    place = (command.namespace, command.lifetime)
    owners = Counter(item.owner for item in state.sinks.values() if (item.namespace, item.lifetime) == place)
    what, remedy = _WITHOUT_ROOM[command.lifetime]
    if owners.total() >= MAX_SINKS:
        owner, count = min(owners.items(), key=lambda item: (-item[1], item[0]))
        most = f"; {_client(owner)} has the most of them, {count}"
        message = f"namespace {command.namespace} has {MAX_SINKS} {what}, the most it may: {remedy}{most}"
        raise rejected(RejectionCode.NO_ROOM, message)
    if command.owner and 0 < command.most_of_owner <= owners[command.owner]:
        raise rejected(
            RejectionCode.NO_ROOM,
            f"{_client(command.owner)} has {owners[command.owner]} {what} in namespace {command.namespace}, the most "
            f"that one client may (limits.sinks_per_client): {remedy}",
        )


def _client(owner: str) -> str:
    return f"client {owner}" if owner else "a client without a certificate"


def owner_sentence(sink: Sink) -> str:
    """Why a client that is not the owner is refused, and the remedy."""
    return (
        f"sink {sink.name} belongs to {sink.owner or 'a client without a certificate'}: write as that client, or have "
        f"an administrator give the sink to this one by `bascule sink owner {sink.name} <client>`"
    )


def _check_opener(sink: Sink, command: OpenSink) -> None:
    if sink.owner != command.owner:
        raise rejected(RejectionCode.SINK_NOT_OWNED, owner_sentence(sink))
    if sink.kind != command.kind:
        message = f"sink {sink.name} is written by a {sink.kind} write, not by a {command.kind} write"
        raise rejected(RejectionCode.SINK_CONFLICT, message)
    if command.query_id in sink.retired_queries:
        raise rejected(
            RejectionCode.SINK_FENCED,
            f"query {command.query_id} was replaced by {sink.query_id} as the writer of sink {sink.name}, for ever: "
            "start it with a new checkpoint, or give it a sinkId of its own, or for a copy an id",
        )
    if command.run_id in sink.retired_runs:
        raise rejected(
            RejectionCode.SINK_FENCED,
            f"run {command.run_id} was replaced by run {sink.run_id} as the writer of sink {sink.name}, for ever",
        )


def _renewed(sink: Sink, index: int, command: OpenSink) -> Sink:
    if (command.query_id, command.run_id) == (sink.query_id, sink.run_id):
        return sink
    queries, runs = sink.retired_queries, (*sink.retired_runs, sink.run_id)[-MAX_RETIRED_RUNS:]
    if command.query_id != sink.query_id:
        _check_take_over(sink, command)
        queries = (*queries, sink.query_id)
        if len(queries) > MAX_RETIRED_QUERIES:
            raise invalid(f"sink {sink.name} had {MAX_RETIRED_QUERIES} queries, the most it may: use {_ANOTHER}")
    return replace(
        sink,
        generation=index,
        query_id=command.query_id,
        run_id=command.run_id,
        retired_queries=queries,
        retired_runs=runs,
        accepted=None,
    )


def _check_take_over(sink: Sink, command: OpenSink) -> None:
    if sink.last is None or command.take_over == sink.query_id:
        return
    raise rejected(
        RejectionCode.SINK_CONFLICT,
        f"sink {sink.name} is written by query {sink.query_id}, which published epoch {sink.last.epoch}: for query "
        f"{command.query_id} to replace it for ever, set takeOver={sink.query_id}, and startingOffsets of its source "
        f"to where that query ended, because what is read again is written again; else choose {_ANOTHER}",
    )


def link(state: State, _: int, command: LinkSink) -> State:
    """Note that partitions are linked."""
    sink = find(state, command)
    published = _decided(sink, command.ordinal)
    linked = {item.incarnation: item.base_offset for item in command.partitions}

    def change(partition: TargetPartition) -> TargetPartition:
        if partition.phase != "decided" or partition.incarnation not in linked:
            return partition
        return replace(partition, phase="linked", base_offset=linked[partition.incarnation])

    return put(state, replace(sink, last=_with_partitions(published, change)))


def skip(state: State, _: int, command: SkipSink) -> State:
    """Give up the rows for one partition; the record keeps how many they were and who decided it."""
    sink = find(state, command)
    published = _decided(sink, command.ordinal)
    found = next(
        ((stream, item) for stream, item in published.waiting if item.incarnation == command.incarnation), None
    )
    if found is None:
        raise invalid(f"epoch {published.epoch} of sink {sink.name} has nothing to link to that partition")
    stream, given_up = found

    def change(partition: TargetPartition) -> TargetPartition:
        return replace(partition, phase="skipped") if partition.incarnation == command.incarnation else partition

    return put(
        state,
        replace(
            sink,
            last=_with_partitions(published, change),
            skipped_rows=sink.skipped_rows + given_up.rows,
            last_skip=Skip(published.epoch, stream.name, given_up.number, given_up.rows, command.skipped_by),
        ),
    )


def expire(state: State, _: int, command: ExpireSink) -> State:
    """Make an attempt unpublishable for ever, unless it is decided. The record of a batch write without a key goes."""
    sink = find(state, command)
    last = sink.last
    if last is not None and (last.generation, last.epoch, last.token) == (
        command.generation,
        command.epoch,
        command.token,
    ):
        raise rejected(RejectionCode.SINK_PUBLISHED, f"epoch {command.epoch} of sink {sink.name} is published")
    attempt = Attempt(command.epoch, command.token, command.generation)
    if sink.lifetime == "hour" and sink.last is None and sink.is_open(attempt):
        return _without(state, sink)  # a batch write has one attempt
    live = tuple(item for item in sink.expired if sink.is_open(item))
    if attempt in sink.expired or not sink.is_open(attempt):
        return put(state, replace(sink, expired=live))
    if len(live) >= MAX_EXPIRED:
        raise rejected(RejectionCode.NO_ROOM, f"{MAX_EXPIRED} attempts of sink {sink.name} expired in this run")
    return put(state, replace(sink, expired=(*live, attempt)))


def delete(state: State, _: int, command: DeleteSink) -> State:
    """Remove the record."""
    sink = find(state, command)
    if not sink.is_finished:
        raise rejected(
            RejectionCode.SINK_BUSY,
            f"epoch {sink.last.epoch if sink.last else 0} of sink {sink.name} is decided and not linked everywhere: "
            "wait, or skip the partitions that block it",
        )
    if command.unused_since_ms not in (-1, sink.used_ms):
        raise invalid(f"sink {sink.name} was used meanwhile")
    return _without(state, sink)


def _without(state: State, sink: Sink) -> State:
    return replace(state, sinks={key: item for key, item in state.sinks.items() if item.id != sink.id})


def set_quota(state: State, _: int, command: SetSinkQuota) -> State:
    """Bound the staged bytes."""
    if command.quota_bytes < 0:
        raise invalid(f"quota {command.quota_bytes} is below 0")
    return put(state, replace(find(state, command), quota_bytes=command.quota_bytes))


def set_owner(state: State, _: int, command: SetSinkOwner) -> State:
    """Give it to another client."""
    if command.owner:
        check_name("name of an owner", command.owner)
    return put(state, replace(find(state, command), owner=command.owner))


def advance_clock(state: State, _: int, command: AdvanceClock) -> State:
    """Add what has passed."""
    if command.elapsed_ms < 0:
        raise invalid(f"{command.elapsed_ms} ms cannot have passed")
    return replace(state, clock_ms=state.clock_ms + command.elapsed_ms)


def without_partitions(state: State, stream: Stream) -> State:
    """The partitions of the stream are purged or deleted: what was to be linked to them is finished."""
    gone = {item.incarnation for item in stream.partitions}

    def change(partition: TargetPartition) -> TargetPartition:
        is_gone = partition.phase == "decided" and partition.incarnation in gone
        return replace(partition, phase="removed") if is_gone else partition

    for key in sorted(state.sinks):
        sink = state.sinks[key]
        if sink.last is not None and not sink.is_finished:
            state = put(state, replace(sink, last=_with_partitions(sink.last, change)))
    return state


def find(state: State, command: Command) -> Sink:
    """The sink, if its record is the one that the command means."""
    sink = state.sinks.get(StreamKey(command.namespace, command.name))
    if sink is None or sink.id != command.id:
        what = f"sink {command.name} does not exist in namespace {command.namespace}, or was created again"
        message = f"{what}: see `bascule sink list`"
        raise rejected(RejectionCode.SINK_NOT_FOUND, message)
    return sink


def put(state: State, sink: Sink) -> State:
    """The state with this sink."""
    key = StreamKey(sink.namespace, sink.name)
    return state if state.sinks.get(key) == sink else replace(state, sinks={**state.sinks, key: sink})


def _decided(sink: Sink, ordinal: int) -> Published:
    if sink.last is None or sink.last.ordinal != ordinal or ordinal == 0:
        message = f"the last epoch of sink {sink.name} has ordinal {sink.ordinal}, not {ordinal}"
        raise rejected(RejectionCode.SINK_PUBLISHED, message)
    return sink.last


def _with_partitions(published: Published, change: Callable[[TargetPartition], TargetPartition]) -> Published:
    """With its partitions changed; the winners go with the last partition that was to be linked."""
    targets = tuple(_changed(stream, change) for stream in published.targets)
    changed = replace(published, targets=targets)
    return changed if changed.waiting else replace(changed, winners=())


def _changed(stream: TargetStream, change: Callable[[TargetPartition], TargetPartition]) -> TargetStream:
    return replace(stream, partitions=tuple(change(item) for item in stream.partitions))
