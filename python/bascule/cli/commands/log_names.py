"""Names of the partitions in the data directory of a stopped broker, from its metadata."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bascule import engine
from bascule.errors import BrokerError, StateError
from bascule.metadata import (
    CommandError,
    SnapshotError,
    State,
    Stream,
    StreamKey,
    apply,
    decode_command,
    decode_snapshot,
    initial_state,
)

__all__ = ["PartitionName", "PartitionNames", "read_names"]

METADATA_LOG = 1
"""The incarnation of the metadata log, which belongs to no stream."""


class PartitionName(NamedTuple):
    """The name of a partition."""

    namespace: str
    stream: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionNames:
    """Partitions by incarnation.

    Attributes:
        problem: why the metadata could not be read completely; `None` = it was.
    """

    names: Mapping[int, PartitionName]
    problem: str | None = None

    def why_unnamed(self, incarnation: int) -> str | None:
        """Why the log has no name; `None` if it has one, or needs none."""
        if incarnation in self.names or incarnation == METADATA_LOG:
            return None
        return self.problem or "the metadata does not name this partition"

    def select(self, stream: str, partition: int | None) -> Sequence[int]:
        """The incarnations of a stream, or of one partition of it, ordered by partition.

        Raises:
            StateError: `not_found`.
        """
        of_stream = {name: number for number, name in sorted(self.names.items()) if name.stream == stream}
        found = [number for name, number in sorted(of_stream.items()) if partition in (None, name.partition)]
        if found:
            return found
        reason = "" if self.problem is None else f"; names may be missing: {self.problem}"
        if of_stream:
            last = max(name.partition for name in of_stream)
            text = f"stream {stream} has no partition {partition} here: its highest is {last}{reason}"
        else:
            text = f"the metadata has no stream {stream}{reason}: leave out --stream to see all logs"
        raise StateError("not_found", text)


def read_names(path: str) -> PartitionNames:
    """The names in the data directory `path`, or the one that contains it. From damaged metadata, as many as possible.

    Raises:
        StateError: `data_directory_locked`, `not_found`.
    """
    index, snapshot, entries, problem = engine.read_metadata(path)
    state = initial_state()
    try:
        state = decode_snapshot(snapshot) if index else state
    except SnapshotError as damage:
        return PartitionNames({}, str(damage))
    state, stopped = _replay(state, entries)
    return PartitionNames(_names(state.streams), stopped or problem or None)


def _replay(state: State, entries: Sequence[bytes]) -> tuple[State, str | None]:
    """The state after the entries that can be applied, and why the others cannot; `None` = all were."""
    for entry in entries:
        index = state.index + 1
        try:
            state, _ = apply(state, index, decode_command(entry))
        except (CommandError, BrokerError, ValueError, LookupError) as damage:
            return state, f"entry {index} of the metadata cannot be applied: {damage}"
    return state, None


def _names(streams: Mapping[StreamKey, Stream]) -> dict[int, PartitionName]:
    return {
        partition.incarnation: PartitionName(key.namespace, key.name, partition.number)
        for key, stream in streams.items()
        for partition in stream.partitions
    }
