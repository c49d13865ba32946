"""One step of the state machine.

Total: every well-formed command gives a state and a result, whatever the state is; a rejected command changes
nothing but the index. Deterministic: the result depends on the arguments alone. An exception out of `apply` is
a bug, and stops the node: going on would let its state differ from the others'.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from bascule.metadata import apply_groups, apply_publish, apply_sinks, apply_streams
from bascule.metadata.commands import (
    AddDataKey,
    Command,
    CreateStream,
    DeleteStream,
    EditStream,
    JoinGroup,
    LeaveGroup,
    PauseStream,
    PurgeStream,
    RegisterBroker,
    ResumeStream,
    SetActivity,
    SetGroupCoordinator,
    SetStreamReadonly,
    SettleActivity,
    TrimPartition,
)
from bascule.metadata.model import Broker, State
from bascule.metadata.rejection import RejectedError, check_name, invalid
from bascule.metadata.results import Applied, Result
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

MAX_PORT = 65535


def apply(state: State, index: int, command: Command) -> tuple[State, Result]:
    """Apply one entry. Returns the new state and the result.

    Args:
        state: the state after the entry before.
        index: position of the entry in the log, > `state.index`.
        command: what the entry says.
    """
    try:
        changed = _CHANGES[type(command)](state, index, command)
    except RejectedError as error:
        return state.at(index), error.rejection
    return changed.at(index), Applied(index)


def _register_broker(state: State, index: int, command: RegisterBroker) -> State:
    check_name("broker id", command.broker_id)
    check_name("host", command.host)
    if not 0 <= command.port <= MAX_PORT:
        raise invalid(f"port {command.port} is not between 0 and {MAX_PORT}")
    known = state.brokers.get(command.broker_id)
    first_ns = known.registered_ns if known else command.registered_ns
    broker = Broker(command.broker_id, command.host, command.port, index, first_ns)
    return replace(state, brokers={**state.brokers, command.broker_id: broker})


def _set_activity(state: State, _: int, command: SetActivity) -> State:
    return replace(state, activity_on=command.on, activity=state.activity if command.on else ())


def _settle_activity(state: State, _: int, command: SettleActivity) -> State:
    return replace(state, activity=tuple(item for item in state.activity if item.id > command.id))


_CHANGES: Final[dict[type[Command], Callable[[State, int, Any], State]]] = {
    RegisterBroker: _register_broker,
    CreateStream: apply_streams.create,
    AddDataKey: apply_streams.add_data_key,
    DeleteStream: apply_streams.delete,
    PauseStream: apply_streams.pause,
    ResumeStream: apply_streams.resume,
    SetStreamReadonly: apply_streams.set_readonly,
    EditStream: apply_streams.edit,
    TrimPartition: apply_streams.trim,
    PurgeStream: apply_streams.purge,
    JoinGroup: apply_groups.join,
    LeaveGroup: apply_groups.leave,
    SetGroupCoordinator: apply_groups.set_coordinator,
    SetActivity: _set_activity,
    SettleActivity: _settle_activity,
    OpenSink: apply_sinks.open_sink,
    PublishSink: apply_publish.publish,
    LinkSink: apply_sinks.link,
    ExpireSink: apply_sinks.expire,
    SkipSink: apply_sinks.skip,
    DeleteSink: apply_sinks.delete,
    SetSinkQuota: apply_sinks.set_quota,
    SetSinkOwner: apply_sinks.set_owner,
    AdvanceClock: apply_sinks.advance_clock,
}
