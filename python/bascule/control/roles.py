"""The roles of this broker's replicas, as the data plane gets them: a lane of their own beside the reconciler.

A role is small and changes often (an ISR, a leader), and nothing has to be opened for it. `role_of` is pure.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from bascule.metadata import Broker, Partition, State, Stream, StreamKey


class RolePlane(Protocol):
    """Takes roles."""

    def set_roles(self, index: int, changes: Mapping[str, Any]) -> None:
        """Take over roles as of entry `index`; never waits."""
        ...


def role_of(brokers: Mapping[str, Broker], stream: Stream, partition: Partition) -> dict[str, Any]:
    """What the replicas of a partition have to know (seam.md). Brokers are named by their Raft ids; 0 = nobody."""

    def numbers(names: tuple[str, ...]) -> list[int]:
        return [brokers[name].raft_id for name in names]

    return {
        "incarnation": partition.incarnation,
        "leader": brokers[partition.leader].raft_id if partition.leader else 0,
        "leader_epoch": partition.leader_epoch,
        "partition_epoch": partition.epoch,
        "replicas": [
            {
                "id": brokers[name].raft_id,
                "boot_epoch": brokers[name].boot_epoch,
                "confirmed": brokers[name].run == "confirmed",
                "unclean": name in partition.unclean,
                "unable": name in partition.unable,
                "cut": name in partition.cut,
                "tried": name in partition.tried,
            }
            for name in partition.replicas
        ],
        "isr": numbers(partition.isr),
        "eligible": numbers(partition.eligible),
        "min_isr": partition.min_isr,
        "memory": stream.settings.durability == "memory",
        "compacted": stream.compacted,
        "losses": [(item.leader_epoch, max(0, item.start)) for item in partition.losses],
    }


class Roles:
    """Shows the data plane the roles of partitions with several replicas, of which this broker has one.

    Belongs to the event loop's thread.
    """

    def __init__(self, plane: RolePlane, broker_id: str) -> None:
        self._plane = plane
        self._broker_id = broker_id
        self._shown: dict[int, dict[str, Any]] = {}
        self._by_stream: dict[StreamKey, tuple[Stream, dict[int, dict[str, Any]]]] = {}
        """The roles of each stream, with the value of the stream that they were made from."""
        self._seen = State()

    def follow(self, state: State) -> None:
        """Show what is different from the state before. Costs little where few streams and no brokers have changed."""
        if state.streams is self._seen.streams and state.brokers is self._seen.brokers:
            return
        known = self._by_stream if state.brokers is self._seen.brokers else {}
        changed: list[dict[str, Any]] = []
        before, self._seen, self._by_stream = self._by_stream, state, {}
        for key, stream in state.streams.items():
            if key in known and known[key][0] is stream:
                self._by_stream[key] = known[key]
                continue
            roles = self._roles(state, stream)
            if roles:
                self._by_stream[key] = (stream, roles)
            changed += [role for incarnation, role in roles.items() if self._shown.get(incarnation) != role]
        removed = self._replace(before)
        if changed or removed:
            own = state.brokers[self._broker_id].raft_id
            self._plane.set_roles(state.index, {"broker": own, "roles": changed, "removed": removed})

    def _roles(self, state: State, stream: Stream) -> dict[int, dict[str, Any]]:
        """The roles of this broker's replicas of one stream, by incarnation."""
        return {
            partition.incarnation: role_of(state.brokers, stream, partition)
            for partition in stream.partitions
            if len(partition.replicas) > 1 and self._broker_id in partition.replicas and not partition.paused
        }

    def _replace(self, before: Mapping[StreamKey, tuple[Stream, dict[int, dict[str, Any]]]]) -> list[int]:
        """Show the roles of the streams that have changed from now on; the incarnations that have none any more."""
        old: set[int] = set()
        new: dict[int, dict[str, Any]] = {}
        for key in before.keys() | self._by_stream.keys():
            was, now = before.get(key), self._by_stream.get(key)
            if was is not now:
                old |= was[1].keys() if was else set()
                new |= now[1] if now else {}
        removed = sorted(old - new.keys())
        for incarnation in removed:
            del self._shown[incarnation]
        self._shown |= new
        return removed
