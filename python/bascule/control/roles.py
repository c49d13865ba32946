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


def role_changes(before: State, after: State) -> list[tuple[int, bool]]:
    """The brokers, by number, some of whose roles differ, ascending; True: one was ended, which its broker may not
    know.
    """
    touched: dict[str, bool] = {}
    for key, stream in after.streams.items():
        known = before.streams.get(key)
        if known is stream:
            continue
        old = {item.incarnation: item for item in known.partitions} if known else {}
        for partition in stream.partitions:
            was = old.get(partition.incarnation)
            if was == partition:
                continue
            if len(partition.replicas) > 1:
                touched |= {name: touched.get(name, False) for name in partition.replicas}
            if partition.ending and partition.ending != (was.ending if was else None):
                touched[partition.ending.broker] = True
    return sorted((after.brokers[name].raft_id, ends) for name, ends in touched.items())


class Roles:
    """Shows the data plane the roles of partitions with several replicas, of which this broker has one.

    A leader without other replicas has no role: it is ended when its partition is closed, which the reconciler does.
    Before that is done, no entry that ended one counts as applied. Belongs to the event loop's thread.
    """

    def __init__(self, plane: RolePlane, broker_id: str, carried_out: int = 0) -> None:
        """Begin.

        Args:
            plane: takes the roles.
            broker_id: this broker.
            carried_out: index of the entry that the reconciler has carried out last.
        """
        self._plane = plane
        self._broker_id = broker_id
        self._shown: dict[int, dict[str, Any]] = {}
        self._by_stream: dict[StreamKey, tuple[Stream, dict[int, dict[str, Any]]]] = {}
        """The roles of each stream, with the value of the stream that they were made from."""
        self._seen = State()
        self._carried_out = carried_out
        self._ended_alone: set[int] = set()
        """Entries that ended leaders here without other replicas, and are not carried out."""

    def follow(self, state: State) -> None:
        """Show what is different from the state before. Costs little where few streams and no brokers have changed."""
        before, self._seen = self._seen, state
        is_same = state.streams is before.streams and state.brokers is before.brokers
        changed, removed = ([], []) if is_same else self._changes(before, state)
        self._show(changed, removed, [] if is_same else role_changes(before, state))

    def on_carried_out(self, state: State) -> None:
        """The reconciler has carried out this state."""
        self._carried_out = state.index
        if any(index <= state.index for index in self._ended_alone):
            self._ended_alone = {index for index in self._ended_alone if index > state.index}
            self._show([], [], [])

    def _show(self, roles: list[dict[str, Any]], removed: list[int], changed: list[tuple[int, bool]]) -> None:
        state = self._seen
        self._plane.set_roles(
            state.index,
            {
                "broker": state.brokers[self._broker_id].raft_id,
                "roles": roles,
                "removed": removed,
                "applied": min((index - 1 for index in self._ended_alone), default=state.index),
                "changed": changed,
            },
        )

    def _changes(self, before: State, state: State) -> tuple[list[dict[str, Any]], list[int]]:
        """The roles that are new or differ, and the incarnations that have none any more."""
        known = self._by_stream if state.brokers is before.brokers else {}
        changed: list[dict[str, Any]] = []
        shown, self._by_stream = self._by_stream, {}
        for key, stream in state.streams.items():
            if key in known and known[key][0] is stream:
                self._by_stream[key] = known[key]
                continue
            roles = self._roles(state, stream)
            if roles:
                self._by_stream[key] = (stream, roles)
            changed += [role for incarnation, role in roles.items() if self._shown.get(incarnation) != role]
            if before.streams.get(key) is not stream:
                self._note_ended_alone(stream)
        return changed, self._replace(shown)

    def _note_ended_alone(self, stream: Stream) -> None:
        for partition in stream.partitions:
            ending = partition.ending
            if ending and ending.broker == self._broker_id and len(partition.replicas) == 1:
                self._ended_alone |= {ending.index} if ending.index > self._carried_out else set()

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
