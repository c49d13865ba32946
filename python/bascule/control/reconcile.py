"""What must be done to bring the data plane from one state to another. Pure.

Cheap where nothing changed: states share the streams that are the same, and those are passed over by identity.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bascule.metadata import Group, Partition, State, Stream, StreamKey


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
    """

    close: tuple[int, ...] = ()
    open: tuple[tuple[Stream, Partition], ...] = ()
    lead: tuple[tuple[int, int], ...] = ()
    streams: tuple[Stream, ...] = ()
    removed: tuple[StreamKey, ...] = ()
    groups: tuple[Group, ...] = ()
    removed_groups: tuple[str, ...] = ()
    delete: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return any((self.close, self.open, self.lead, self.delete)) or self.changes_view

    @property
    def changes_view(self) -> bool:
        """Whether requests are to be checked against something else from now on."""
        return any((self.streams, self.removed, self.groups, self.removed_groups))


def plan(before: State, after: State, broker_id: str) -> Plan:
    """What broker `broker_id` has to do when `before` is carried out and `after` is wanted."""
    changed = [stream for key, stream in sorted(after.streams.items()) if before.streams.get(key) is not stream]
    gone = [stream for key, stream in sorted(before.streams.items()) if after.streams.get(key) is not stream]
    exists = {item.incarnation for stream in changed for item in stream.partitions}
    was_open = [item.incarnation for _, item in _local(gone, broker_id)]
    local = _local(changed, broker_id)
    is_open = {item.incarnation for _, item in local}
    return Plan(
        close=tuple(item for item in was_open if item in exists and item not in is_open),
        open=tuple(local),
        lead=tuple((item.incarnation, item.leader_epoch) for _, item in local if item.leader == broker_id),
        streams=tuple(changed),
        removed=tuple(stream.key for stream in gone if stream.key not in after.streams),
        groups=tuple(group for key, group in sorted(after.groups.items()) if before.groups.get(key) is not group),
        removed_groups=tuple(sorted(before.groups.keys() - after.groups.keys())),
        delete=tuple(
            item.incarnation for stream in gone for item in stream.partitions if item.incarnation not in exists
        ),
    )


def reopen(state: State, incarnations: frozenset[int], broker_id: str) -> Plan:
    """What has to be done to try again to open those of `incarnations` that `state` still wants open here."""
    everything = [stream for _, stream in sorted(state.streams.items())]
    local = [(stream, item) for stream, item in _local(everything, broker_id) if item.incarnation in incarnations]
    return Plan(
        open=tuple(local),
        lead=tuple((item.incarnation, item.leader_epoch) for _, item in local if item.leader == broker_id),
        streams=tuple({stream.key: stream for stream, _ in local}.values()),
    )


def _local(streams: Iterable[Stream], broker_id: str) -> list[tuple[Stream, Partition]]:
    """The partitions that are open on this broker."""
    return [
        (stream, item)
        for stream in streams
        for item in stream.partitions
        if broker_id in item.replicas and not item.paused
    ]
