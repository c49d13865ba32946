"""What must be done to bring the data plane from one state to another. Pure.

Cheap where nothing changed: states share the streams that are the same, and those are passed over by identity.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bascule.metadata import Broker, Group, Namespace, Partition, State, Stream, StreamKey, User


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in the order of the attributes; each step is idempotent, so a plan may be carried out again.

    Attributes:
        close: incarnations to close, their files stay.
        open: partitions to open or to give new settings.
        lead: (incarnation, leader epoch) of partitions this broker leads.
        streams: streams whose picture in the view changes.
        removed: streams that leave the view.
        groups: consumer groups that are new or have changed.
        removed_groups: ids of groups that are gone; their subscriptions end.
        delete: incarnations to delete with their files.
        keep: incarnations to close, whose files are renamed and kept.
        namespaces: namespaces that are new, or have another number than before.
        removed_namespaces: numbers of those that are gone.
        users: users that may log in and are new, or have changed.
        removed_users: numbers of those that are gone, or may not log in any more; their sessions end.
        brokers: brokers that are new or whose address for clients has changed.
    """

    close: tuple[int, ...] = ()
    open: tuple[tuple[Stream, Partition], ...] = ()
    lead: tuple[tuple[int, int], ...] = ()
    streams: tuple[Stream, ...] = ()
    removed: tuple[StreamKey, ...] = ()
    groups: tuple[Group, ...] = ()
    removed_groups: tuple[str, ...] = ()
    delete: tuple[int, ...] = ()
    keep: tuple[int, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    removed_namespaces: tuple[int, ...] = ()
    users: tuple[User, ...] = ()
    removed_users: tuple[int, ...] = ()
    brokers: tuple[Broker, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return any((self.close, self.open, self.lead, self.delete, self.keep)) or self.changes_view

    @property
    def changes_view(self) -> bool:
        """Whether requests are to be checked against something else from now on."""
        changed = (self.streams, self.removed, self.groups, self.removed_groups)
        names = (self.namespaces, self.removed_namespaces, self.users, self.removed_users, self.brokers)
        return any((*changed, *names))


def keeping(steps: Plan) -> Plan:
    """`steps` to a state from another broker's snapshot: what is gone may be missing from it, so nothing is deleted."""
    return replace(steps, delete=(), keep=steps.delete)


def plan(before: State, after: State, broker_id: str) -> Plan:
    """What broker `broker_id` has to do when `before` is carried out and `after` is wanted."""
    changed = [stream for key, stream in sorted(after.streams.items()) if before.streams.get(key) is not stream]
    gone = [stream for key, stream in sorted(before.streams.items()) if after.streams.get(key) is not stream]
    exists = {item.incarnation for stream in changed for item in stream.partitions}
    was_open = {item.incarnation: stream.key for stream, item in _local(gone, broker_id)}
    local = _local(changed, broker_id)
    # A partition has the name that it was opened with: it is opened again under another one.
    is_open = {item.incarnation for stream, item in local if was_open.get(item.incarnation, stream.key) == stream.key}
    return Plan(
        close=tuple(item for item in was_open if item in exists and item not in is_open),
        open=tuple((stream, item) for stream, item in local if not _is_role_only(before, stream, item, broker_id)),
        lead=_led_alone(local, broker_id),
        streams=tuple(changed),
        removed=tuple(stream.key for stream in gone if stream.key not in after.streams),
        groups=tuple(group for key, group in sorted(after.groups.items()) if before.groups.get(key) is not group),
        removed_groups=tuple(sorted(before.groups.keys() - after.groups.keys())),
        delete=tuple(
            item.incarnation for stream in gone for item in stream.partitions if item.incarnation not in exists
        ),
        namespaces=_with_numbers(before, after),
        removed_namespaces=tuple(item.id for item in _with_numbers(after, before)),
        users=_changed_users(before, after),
        removed_users=tuple(item.id for item in _changed_users(after, before)),
        brokers=_moved_brokers(before, after, broker_id),
    )


def _moved_brokers(before: State, after: State, broker_id: str) -> tuple[Broker, ...]:
    """The other brokers of `after` whose address for clients differs from that in `before`, in order of id."""
    if before.brokers is after.brokers:
        return ()
    known = {key: (item.host, item.port) for key, item in before.brokers.items()}
    others = (item for key, item in sorted(after.brokers.items()) if key != broker_id)
    return tuple(item for item in others if known.get(item.id) != (item.host, item.port))


def _with_numbers(before: State, after: State) -> tuple[Namespace, ...]:
    """Namespaces of `after` whose name has another number in `before`, or none, in order of name."""
    if before.namespaces is after.namespaces:
        return ()
    known = {name: item.id for name, item in before.namespaces.items()}
    return tuple(item for name, item in sorted(after.namespaces.items()) if known.get(name) != item.id)


def _changed_users(before: State, after: State) -> tuple[User, ...]:
    """Active users of `after` that are not the same in `before`, in order of number."""
    if before.users is after.users:
        return ()
    known = {item.id: item for item in before.users.values() if item.is_active}
    active = sorted((item for item in after.users.values() if item.is_active), key=lambda item: item.id)
    return tuple(item for item in active if known.get(item.id) != item)


def reopen(state: State, incarnations: frozenset[int], broker_id: str) -> Plan:
    """What has to be done to try again to open those of `incarnations` that `state` still wants open here."""
    everything = [stream for _, stream in sorted(state.streams.items())]
    local = [(stream, item) for stream, item in _local(everything, broker_id) if item.incarnation in incarnations]
    return Plan(
        open=tuple(local),
        lead=_led_alone(local, broker_id),
        streams=tuple({stream.key: stream for stream, _ in local}.values()),
    )


def _led_alone(local: Iterable[tuple[Stream, Partition]], broker_id: str) -> tuple[tuple[int, int], ...]:
    """Those that this broker leads as their only replica; the others get a role (`bascule.control.roles`)."""
    return tuple(
        (item.incarnation, item.leader_epoch)
        for _, item in local
        if item.leader == broker_id and len(item.replicas) == 1
    )


def _is_role_only(before: State, stream: Stream, partition: Partition, broker_id: str) -> bool:
    """Whether a partition with several replicas is open, and at most its roles have changed: it is not opened again."""
    known = before.streams.get(stream.key)
    if known is None or len(partition.replicas) == 1:
        return False
    same = next((item for item in known.partitions if item.incarnation == partition.incarnation), None)
    if same is None or same.paused or broker_id not in same.replicas:
        return False
    if replace(known, partitions=()) != replace(stream, partitions=()):
        return False
    return _without_roles(same) == _without_roles(partition)


def _without_roles(partition: Partition) -> Partition:
    return replace(
        partition,
        leader="",
        leader_epoch=0,
        epoch=0,
        isr=(),
        eligible=(),
        unclean=(),
        unable=(),
        cut=(),
        ending=None,
        volatile=(),
        volatile_since=0,
        reports=(),
        losses=(),
        tried=(),
    )


def _local(streams: Iterable[Stream], broker_id: str) -> list[tuple[Stream, Partition]]:
    """The partitions that are open on this broker."""
    return [
        (stream, item)
        for stream in streams
        for item in stream.partitions
        if broker_id in item.replicas and not item.paused
    ]
