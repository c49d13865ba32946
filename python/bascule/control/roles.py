"""The roles of this broker's replicas, as the data plane gets them: a lane of their own beside the reconciler.

A role is small and changes often (an ISR, a leader), and nothing has to be opened for it. `role_of` is pure.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from bascule.metadata import Broker, Partition, State, Stream


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
        self._seen = State()

    def follow(self, state: State) -> None:
        """Show what is different from the state before."""
        if state.streams is self._seen.streams and state.brokers is self._seen.brokers:
            return
        self._seen = state
        wanted = {
            partition.incarnation: role_of(state.brokers, stream, partition)
            for stream in state.streams.values()
            for partition in stream.partitions
            if len(partition.replicas) > 1 and self._broker_id in partition.replicas and not partition.paused
        }
        changed = [role for incarnation, role in wanted.items() if self._shown.get(incarnation) != role]
        removed = sorted(self._shown.keys() - wanted.keys())
        if not changed and not removed:
            return
        own = state.brokers[self._broker_id].raft_id
        self._plane.set_roles(state.index, {"broker": own, "roles": changed, "removed": removed})
        self._shown = wanted
