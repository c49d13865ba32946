"""The part of `apply` that concerns brokers: levels, joining, registration, confirmation, fencing. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import sha256

from bascule.metadata import apply_topic_groups
from bascule.metadata.apply_reports import check_reports, with_report
from bascule.metadata.choose import Occasion, settle, without
from bascule.metadata.model import Broker, Group, Partition, State, Stream
from bascule.metadata.partition_changes import as_unclean, change_partitions, check_distinct, run_of, stale
from bascule.metadata.rejection import (
    MAX_NAME_BYTES,
    RejectedError,
    RejectionCode,
    check_name,
    check_port,
    invalid,
    rejected,
)
from bascule.metadata.replica_commands import (
    Addresses,
    ConfirmBroker,
    FenceBroker,
    Finalize,
    JoinBroker,
    Register,
    ReplicaReport,
)
from bascule.metadata.replicas import MAX_LEVEL, Versions


def finalize(state: State, index: int, command: Finalize) -> State:
    """Raise the level; level 2 makes the only broker the first voter and gives its partitions what level 1 lacks."""
    if command.level != state.level + 1 or command.level > MAX_LEVEL:
        raise version(f"level {command.level} does not follow level {state.level}, or is above {MAX_LEVEL}")
    check_name("cluster id", command.cluster_id)
    if len(state.brokers) != 1:
        raise version(f"{len(state.brokers)} brokers are known; level 2 begins with one, and others join it")
    (broker,) = state.brokers.values()
    raft_id = _raft_id(state, command.raft_id, index)
    changed = replace(
        state,
        level=command.level,
        cluster_id=command.cluster_id,
        brokers={broker.id: replace(broker, raft_id=raft_id, versions=Versions(1, command.level))},
        voters=(raft_id,),
    )
    return replace(changed, streams={key: _raised(item) for key, item in state.streams.items()})


def join(state: State, index: int, command: JoinBroker) -> State:
    """Make the broker known; its first run has yet to register."""
    check_name("broker id", command.broker_id)
    check_name("directory id", command.directory_id)
    if command.broker_id in state.brokers:
        message = f"broker id {command.broker_id} was given away; ids are never used again"
        raise rejected(RejectionCode.BROKER_ID_IN_USE, message)
    _check(state, command.addresses, command.versions)
    if len(command.rack.encode()) > MAX_NAME_BYTES:
        raise invalid(f"rack of broker {command.broker_id} is longer than {MAX_NAME_BYTES} bytes")
    raft_id = _raft_id(state, command.raft_id, index)
    broker = Broker(
        command.broker_id,
        command.addresses.host,
        command.addresses.port,
        0,
        command.joined_ns,
        directory_id=command.directory_id,
        run="fenced",
        peer_host=command.addresses.peer_host,
        peer_port=command.addresses.peer_port,
        rack=command.rack,
        versions=command.versions,
        raft_id=raft_id,
    )
    voters = tuple(sorted((*state.voters, raft_id))) if command.raft_id else state.voters
    return replace(state, brokers={**state.brokers, broker.id: broker}, voters=voters)


def register(state: State, index: int, command: Register) -> State:
    """Begin a run: nothing that an earlier run led or was asked to end is left, and lost data makes unclean."""
    known = state.brokers.get(command.broker_id)
    if known is None or known.removed:
        raise rejected(RejectionCode.BROKER_UNKNOWN, f"broker {command.broker_id} is not known, or was removed")
    _check_run(state, command, known)
    is_other = known.directory_id not in {"", command.directory_id} or command.stored < known.confirmed
    reported = (known.kernel_boot_id, known.mount_id)
    is_moved = reported not in {("", ""), (command.kernel_boot_id, command.mount_id)}
    broker = replace(
        known,
        host=command.addresses.host,
        port=command.addresses.port,
        boot_epoch=index,
        nonce=command.nonce,
        directory_id=command.directory_id,
        run="registered",
        peer_host=command.addresses.peer_host,
        peer_port=command.addresses.peer_port,
        versions=command.versions,
        kernel_boot_id=command.kernel_boot_id,
        mount_id=command.mount_id,
        fenced_ns=0,
    )
    brokers = {**state.brokers, broker.id: broker}

    def change(_: Stream, partition: Partition) -> Partition:
        changed = _without_ending(partition, broker.id)
        changed = replace(changed, unable=without(changed.unable, (broker.id,)))
        if broker.id in partition.replicas and (is_other or (is_moved and broker.id in partition.volatile)):
            changed = as_unclean(changed, broker.id)
        if changed == partition and broker.id not in {partition.leader, *partition.replicas}:
            return partition
        return settle(brokers, partition, changed, index, Occasion(replaced=partition.leader == broker.id))

    ended = apply_topic_groups.without_members(state, index, broker.id)
    return change_partitions(replace(ended, brokers=brokers), change)


def confirm(state: State, index: int, command: ConfirmBroker) -> State:
    """The run may lead and join ISRs from now on, with what its recovery found; choices run."""
    known = run_of(state, command.broker_id, command.boot_epoch, {"registered"})
    check_reports(command.reports, is_confirmation=True)
    broker = replace(known, run="confirmed", confirmed=command.boot_epoch)
    brokers = {**state.brokers, broker.id: broker}
    reports: dict[int, list[ReplicaReport]] = {}
    for report in command.reports:
        reports.setdefault(report.incarnation, []).append(report)

    def change(stream: Stream, partition: Partition) -> Partition:
        if broker.id not in partition.replicas:
            return partition
        changed = partition
        for report in reports.get(partition.incarnation, ()):
            changed = with_report(stream, changed, broker, report, keeps_position=True)
        return settle(brokers, partition, changed, index)

    changed = change_partitions(replace(state, brokers=brokers), change)
    return _with_coordinators(changed, index, frozenset(brokers))


def fence(state: State, index: int, command: FenceBroker) -> State:
    """End the run: it leaves every ISR, and what it led or coordinated goes to another broker among `live`."""
    known = run_of(state, command.broker_id, command.boot_epoch, {"registered", "confirmed"})
    check_distinct("live brokers", command.live)
    if command.broker_id in command.live:
        raise invalid(f"broker {command.broker_id} is fenced and named as live")
    if command.fenced_ns < 0:
        raise invalid(f"broker {command.broker_id} is fenced at {command.fenced_ns} ns, before 1970")
    brokers = {**state.brokers, known.id: replace(known, run="fenced", fenced_ns=command.fenced_ns)}
    live = frozenset(command.live)

    def change(_: Stream, partition: Partition) -> Partition:
        if known.id not in partition.replicas and (partition.ending is None or partition.ending.broker != known.id):
            return partition
        changed = _without_ending(partition, known.id)
        changed = replace(changed, isr=without(changed.isr, (known.id,)))
        return settle(brokers, partition, changed, index, Occasion(live, replaced=partition.leader == known.id))

    ended = apply_topic_groups.without_members(state, index, known.id)
    return _with_coordinators(change_partitions(replace(ended, brokers=brokers), change), index, live)


def coordinator_of(state: State, group_id: str, live: Iterable[str]) -> str:
    """The broker that coordinates the group among the confirmed ones of `live`; empty = none. The order of brokers is
    fixed for each group, and differs between groups, so that a dead broker's groups spread over the others.
    """
    confirmed = [item for item in live if item in state.brokers and state.brokers[item].run == "confirmed"]
    return min(confirmed, key=lambda item: (sha256(f"{group_id}\0{item}".encode()).digest(), item), default="")


def version(message: str) -> RejectedError:
    """The error for what the feature level does not allow."""
    return rejected(RejectionCode.CLUSTER_VERSION, message)


def default_min_isr(factor: int) -> int:
    """In-sync replicas that a partition of this factor needs when nobody asked for a number."""
    return 2 if factor >= 3 else 1


def _raft_id(state: State, asked: int, index: int) -> int:
    """The number that the broker founded the cluster with, or else one that nobody has."""
    if not 0 <= asked <= index or asked in {item.raft_id for item in state.brokers.values() if item.raft_id}:
        raise invalid(f"Raft id {asked} is given away, or is not in 0…{index}")
    return asked or index


def _raised(stream: Stream) -> Stream:
    asked = stream.settings.min_isr or 0
    return replace(
        stream,
        compacted=stream.settings.compact_enabled is not False,
        partitions=tuple(
            replace(
                item,
                eligible=item.isr,
                volatile=item.replicas if stream.settings.durability == "memory" else (),
                min_isr=asked or default_min_isr(len(item.replicas)),
                explicit_min_isr=asked > 0,
            )
            for item in stream.partitions
        ),
    )


def _with_coordinators(state: State, index: int, live: frozenset[str]) -> State:
    """Groups whose coordinator is fenced get the next one, if there is one."""

    def change(group: Group) -> Group:
        known = state.brokers.get(group.coordinator)
        successor = coordinator_of(state, group.id, live)
        if (known is not None and known.run != "fenced") or not successor:
            return group
        return replace(group, coordinator=successor, epoch=index)

    groups = {key: change(item) for key, item in state.groups.items()}
    return state if groups == state.groups else replace(state, groups=groups)


def _without_ending(partition: Partition, broker_id: str) -> Partition:
    if partition.ending is None or partition.ending.broker != broker_id:
        return partition
    return replace(partition, ending=None)


def _check_run(state: State, command: Register, known: Broker) -> None:
    check_name("directory id", command.directory_id)
    check_name("kernel boot id", command.kernel_boot_id)
    check_name("mount id", command.mount_id)
    if command.nonce < 1 or command.stored < 0:
        raise invalid(f"nonce {command.nonce} is below 1, or stored boot epoch {command.stored} below 0")
    if command.nonce == known.nonce:
        raise stale(f"that run of broker {known.id} is registered, with the boot epoch {known.boot_epoch}")
    _check(state, command.addresses, command.versions)


def _check(state: State, addresses: Addresses, versions: Versions) -> None:
    check_name("host", addresses.host)
    if len(addresses.peer_host.encode()) > MAX_NAME_BYTES:
        raise invalid(f"peer host is longer than {MAX_NAME_BYTES} bytes")
    for port in (addresses.port, addresses.peer_port):
        check_port(port)
    if not versions.speak(state.level):
        raise version(f"levels {versions.low} to {versions.high} do not include level {state.level} of the cluster")
