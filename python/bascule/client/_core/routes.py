"""Which broker a call has to go to, as the metadata said last.

A call about a partition belongs to its leader, one about a cursor to the leader of the partition of `__cursors` that
holds it, a sign of life to the coordinator of the group. Nothing is known at first: any broker is asked, and only one
that refuses for not leading makes the client look. A cluster of one broker has no routes, so that a client reaches it
by the address it was given even where the broker's own name for itself does not lead to it. No I/O.
"""

import zlib
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from bascule._liftbridge_pb import message

__all__ = ["BrokerPlace", "CursorPlace", "PartitionPlace", "Place", "Routes"]

CURSORS: Final = "__cursors"


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """Where a partition is led."""

    stream: str
    partition: int


@dataclass(frozen=True, slots=True)
class CursorPlace:
    """Where a cursor is stored."""

    cursor: str
    stream: str
    partition: int


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """A broker, by id."""

    id: str


Place: TypeAlias = PartitionPlace | CursorPlace | BrokerPlace | None
"""What a call is about; `None` = any broker will do."""


@dataclass(frozen=True, slots=True)
class Routes:
    """An immutable snapshot. Safe to share between threads."""

    addresses: dict[str, str] = field(default_factory=dict[str, str])
    """`host:port` by broker id; empty when there is only one broker."""
    leaders: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """Broker id by stream and partition."""
    cursor_partitions: int = 0

    @classmethod
    def read(cls, answer: bytes) -> "Routes":
        """What a FetchMetadataResponse for all streams says."""
        response = message("FetchMetadataResponse").FromString(answer)
        addresses = {broker.id: _address(broker.host, broker.port) for broker in response.brokers}
        if len(addresses) <= 1:
            return cls()
        leaders = {
            (stream.name, number): partition.leader
            for stream in response.streamMetadata
            for number, partition in stream.partitions.items()
        }
        return cls(addresses, leaders, sum(1 for name, _ in leaders if name == CURSORS))

    def find(self, place: Place) -> str | None:
        """The address that a call about `place` belongs to; `None` = not known, or any."""
        match place:
            case BrokerPlace(id=broker):
                return self.addresses.get(broker)
            case PartitionPlace(stream=stream, partition=partition):
                return self.addresses.get(self.leaders.get((stream, partition), ""))
            case CursorPlace() if self.cursor_partitions > 0:
                key = f"{place.cursor},{place.stream},{place.partition}".encode()
                leader = self.leaders.get((CURSORS, zlib.crc32(key) % self.cursor_partitions), "")
                return self.addresses.get(leader)
            case _:
                return None


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
