"""One step of the state machine.

Total: every well-formed command gives a state and a result, whatever the state is; what cannot be done is refused and
changes nothing but the index. Deterministic: the result depends on the arguments alone. An exception out of `apply` is
a bug, and stops the node: going on would let its state differ from the others'.
"""

from collections.abc import Mapping
from dataclasses import replace

from bascule.metadata.commands import Command, CreateStream, DeleteStream, Placement, RegisterBroker
from bascule.metadata.model import (
    MAX_PARTITIONS,
    Broker,
    Namespace,
    Partition,
    State,
    Stream,
    StreamKey,
    StreamSettings,
    incarnation_of,
)
from bascule.metadata.results import Applied, Refused, RefusedCode, Result

MAX_NAME_BYTES = 255
MAX_SUBJECT_BYTES = 1024
"""A nats-server drops whoever sends it a control line of more than 4096 bytes; subject and queue group share one."""
MAX_PORT = 65535


class _RefusalError(Exception):
    """Carries a refusal to `apply`; never leaves this module."""

    def __init__(self, code: RefusedCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def apply(state: State, index: int, command: Command) -> tuple[State, Result]:
    """The state after entry `index`, and what it did.

    Args:
        state: the state after the entry before.
        index: position of the entry in the log, > `state.index`.
        command: what the entry says.
    """
    try:
        match command:
            case RegisterBroker():
                changed = _register_broker(state, index, command)
            case CreateStream():
                changed = _create_stream(state, index, command)
            case DeleteStream():
                changed = _delete_stream(state, command)
    except _RefusalError as refusal:
        return state.at(index), Refused(index, refusal.code, refusal.message)
    return changed.at(index), Applied(index)


def _register_broker(state: State, index: int, command: RegisterBroker) -> State:
    _check_name("broker id", command.broker_id)
    _check_name("host", command.host)
    if not 0 <= command.port <= MAX_PORT:
        raise _invalid(f"port {command.port} is not between 0 and {MAX_PORT}")
    known = state.brokers.get(command.broker_id)
    first_ns = known.registered_ns if known else command.registered_ns
    broker = Broker(command.broker_id, command.host, command.port, index, first_ns)
    return replace(state, brokers={**state.brokers, command.broker_id: broker})


def _create_stream(state: State, index: int, command: CreateStream) -> State:
    _check_name("namespace", command.namespace)
    _check_name("stream name", command.name)
    if len(command.subject.encode()) > MAX_SUBJECT_BYTES or len(command.queue_group.encode()) > MAX_NAME_BYTES:
        raise _invalid(f"subject or queue group of stream {command.name} is too long")
    _check_settings(command.settings)
    if len(command.placements) > MAX_PARTITIONS:
        raise _invalid(f"{len(command.placements)} partitions are more than {MAX_PARTITIONS}")
    for number, placement in enumerate(command.placements):
        _check_placement(state.brokers, number, placement)
    key = StreamKey(command.namespace, command.name)
    if key in state.streams:
        raise _RefusalError(RefusedCode.STREAM_EXISTS, f"stream {_shown(key)} exists")

    known = state.namespaces.get(command.namespace)
    namespace = known or Namespace(command.namespace, state.next_namespace_id, 0, command.created_ns)
    stream = Stream(
        namespace=command.namespace,
        name=command.name,
        id=namespace.next_stream_id,
        incarnation=index,
        subject=command.subject,
        queue_group=command.queue_group,
        created_ns=command.created_ns,
        settings=command.settings,
        partitions=tuple(_partition(index, number, item) for number, item in enumerate(command.placements)),
    )
    namespace = replace(namespace, next_stream_id=namespace.next_stream_id + 1)
    return replace(
        state,
        namespaces={**state.namespaces, namespace.name: namespace},
        streams={**state.streams, key: stream},
        next_namespace_id=state.next_namespace_id + (0 if known else 1),
    )


def _delete_stream(state: State, command: DeleteStream) -> State:
    key = StreamKey(command.namespace, command.name)
    stream = state.streams.get(key)
    if stream is None or stream.incarnation != command.incarnation:
        raise _RefusalError(RefusedCode.STREAM_NOT_FOUND, f"stream {_shown(key)} does not exist")
    return replace(state, streams={other: item for other, item in state.streams.items() if other != key})


def _partition(index: int, number: int, placement: Placement) -> Partition:
    return Partition(
        number=number,
        incarnation=incarnation_of(index, number),
        leader=placement.leader,
        leader_epoch=index,
        epoch=index,
        replicas=placement.replicas,
        isr=placement.replicas,
    )


def _check_name(what: str, name: str) -> None:
    if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
        raise _invalid(f"{what} is not between 1 and {MAX_NAME_BYTES} bytes long")


def _check_placement(brokers: Mapping[str, Broker], number: int, placement: Placement) -> None:
    for broker_id in placement.replicas:
        if broker_id not in brokers:
            raise _RefusalError(RefusedCode.BROKER_UNKNOWN, f"broker {broker_id} of partition {number} is not known")
    if len(set(placement.replicas)) != len(placement.replicas) or placement.leader not in placement.replicas:
        raise _invalid(f"replicas of partition {number} repeat, or its leader is not one of them")


def _check_settings(settings: StreamSettings) -> None:
    for name in (
        "max_record_bytes",
        "retention_bytes",
        "retention_messages",
        "retention_age_ms",
        "cleaner_interval_ms",
        "segment_bytes",
        "segment_age_ms",
        "compact_parallelism",
        "auto_pause_ms",
        "min_isr",
    ):
        value: int | None = getattr(settings, name)
        if value is not None and value < 0:
            raise _invalid(f"{name} is {value}, below 0")


def _invalid(message: str) -> _RefusalError:
    return _RefusalError(RefusedCode.INVALID_COMMAND, message)


def _shown(key: StreamKey) -> str:
    return f"{key.namespace}/{key.name}"
