"""One step of the state machine.

Total: every well-formed command gives a state and a result, whatever the state is; a rejected command changes nothing
but the index, and what is kept of its answer. Deterministic: the result depends on the arguments alone. An exception
out of `apply` is a bug, and stops the node: going on would let its state differ from the others'.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from bascule.metadata import (
    apply_archives,
    apply_brokers,
    apply_groups,
    apply_namespaces,
    apply_publish,
    apply_replicas,
    apply_reports,
    apply_sinks,
    apply_streams,
    apply_topic_groups,
    apply_topics,
    cluster_streams,
)
from bascule.metadata.answers import known_answer, with_answer
from bascule.metadata.apply_users import USER_CHANGES
from bascule.metadata.commands import (
    AddDataKey,
    Command,
    CreateNamespace,
    CreateStream,
    CreateTopicGroup,
    DeleteNamespace,
    DeleteStream,
    DeleteTopicGroup,
    EditStream,
    JoinGroup,
    LeaveGroup,
    PauseStream,
    Proposed,
    PurgeStream,
    RegisterBroker,
    ReportArchived,
    ResumeStream,
    SetActivity,
    SetGroupCoordinator,
    SetStreamReadonly,
    SettleActivity,
    TrimPartition,
    VoidArchived,
)
from bascule.metadata.model import Broker, State
from bascule.metadata.rejection import RejectedError, Rejection, RejectionCode, check_name, check_port, rejected
from bascule.metadata.replica_commands import (
    AcceptLoss,
    ChangeIsr,
    ChooseLeader,
    ConfirmBroker,
    EndLeader,
    FenceBroker,
    Finalize,
    JoinBroker,
    Register,
    ReportLeader,
    ReportReplicas,
    Resign,
    StoppedLeading,
)
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
from bascule.metadata.topic_commands import (
    AddPartitions,
    ChangeTopic,
    JoinTopicGroup,
    LeaveTopicGroup,
    RemovePartitions,
    RenameNamespace,
)


def apply(state: State, index: int, command: Command) -> tuple[State, Result]:
    """Apply one entry. Returns the new state and the result.

    Args:
        state: the state after the entry before.
        index: position of the entry in the log, > `state.index`.
        command: what the entry says.
    """
    if isinstance(command, Proposed):
        return _apply_once(state, index, command)
    try:
        changed = _change_of(state, command)(state, index, command)
    except RejectedError as error:
        return state.at(index), error.rejection
    return changed.at(index), Applied(index)


def _apply_once(state: State, index: int, proposed: Proposed) -> tuple[State, Result]:
    """Apply the command unless the proposal was answered already; then repeat the answer."""
    if state.level < 2:
        return state.at(index), Rejection(RejectionCode.CLUSTER_VERSION, _too_low(state))
    known = known_answer(state, proposed.proposal)
    if known is not None:
        return state.at(index), known
    changed, result = apply(state, index, proposed.command)
    return with_answer(changed, proposed.proposal, result), result


def _change_of(state: State, command: Command) -> Callable[[State, int, Any], State]:
    """What the entry does at the level of the state.

    Raises:
        RejectedError: it is of a higher level.
    """
    kind = type(command)
    if state.level >= 2:
        return _LEVEL_2.get(kind) or _CHANGES[kind]
    is_newer = isinstance(command, PurgeStream) and command.partition_incarnations
    is_newer = is_newer or (isinstance(command, EditStream) and command.seen is not None)
    if is_newer or kind not in _CHANGES:
        raise rejected(RejectionCode.CLUSTER_VERSION, _too_low(state))
    return _CHANGES[kind]


def _too_low(state: State) -> str:
    return f"the cluster has feature level {state.level}, and the entry is of a higher one"


def _register_broker(state: State, index: int, command: RegisterBroker) -> State:
    check_name("broker id", command.broker_id)
    check_name("host", command.host)
    check_port(command.port)
    known = state.brokers.get(command.broker_id)
    first_ns = known.registered_ns if known else command.registered_ns
    broker = Broker(command.broker_id, command.host, command.port, index, first_ns)
    return replace(state, brokers={**state.brokers, command.broker_id: broker})


def _set_activity(state: State, _: int, command: SetActivity) -> State:
    return replace(state, activity_on=command.on, activity=state.activity if command.on else ())


def _settle_activity(state: State, _: int, command: SettleActivity) -> State:
    return replace(state, activity=tuple(item for item in state.activity if item.id > command.id))


_CHANGES: Final[dict[type[Command], Callable[[State, int, Any], State]]] = {
    Finalize: apply_brokers.finalize,
    RegisterBroker: _register_broker,
    CreateStream: apply_streams.create,
    AddDataKey: apply_streams.add_data_key,
    DeleteStream: apply_streams.delete,
    PauseStream: apply_streams.pause,
    ResumeStream: apply_streams.resume,
    SetStreamReadonly: apply_streams.set_readonly,
    EditStream: apply_streams.edit,
    TrimPartition: apply_streams.trim,
    ReportArchived: apply_archives.report,
    VoidArchived: apply_archives.void,
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
    CreateNamespace: apply_namespaces.create,
    DeleteNamespace: apply_namespaces.delete,
    CreateTopicGroup: apply_topic_groups.create,
    DeleteTopicGroup: apply_topic_groups.delete,
    **USER_CHANGES,
    AddPartitions: apply_topics.add_partitions,
    RemovePartitions: apply_topics.remove_partitions,
    ChangeTopic: apply_topics.change_topic,
    RenameNamespace: apply_topics.rename_namespace,
}
"""By the kind of the entry; what level 2 changes or adds is below."""

_LEVEL_2: Final[dict[type[Command], Callable[[State, int, Any], State]]] = {
    RegisterBroker: cluster_streams.register_broker,
    CreateStream: cluster_streams.create,
    PauseStream: cluster_streams.pause,
    ResumeStream: cluster_streams.resume,
    EditStream: cluster_streams.edit,
    PurgeStream: cluster_streams.purge,
    AddPartitions: cluster_streams.add_partitions,
    JoinGroup: cluster_streams.join,
    JoinTopicGroup: apply_topic_groups.join,
    LeaveTopicGroup: apply_topic_groups.leave,
    SetGroupCoordinator: cluster_streams.set_coordinator,
    JoinBroker: apply_brokers.join,
    Register: apply_brokers.register,
    ConfirmBroker: apply_brokers.confirm,
    FenceBroker: apply_brokers.fence,
    ReportReplicas: apply_reports.report_replicas,
    ChangeIsr: apply_replicas.change_isr,
    Resign: apply_replicas.resign,
    ReportLeader: apply_replicas.report_leader,
    EndLeader: apply_replicas.end_leader,
    StoppedLeading: apply_replicas.stopped_leading,
    ChooseLeader: apply_replicas.choose_leader,
    AcceptLoss: apply_replicas.accept_loss,
}
