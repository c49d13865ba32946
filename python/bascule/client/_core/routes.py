"""Which broker a call goes to, by the metadata that was fetched last.

A call about a partition goes to its leader, one about a cursor to the leader of the partition of `__cursors` that holds
it, a heartbeat to the coordinator of the group. Initially no routes are known: a call goes to any broker, and the
client fetches the metadata only when a broker answers that it does not lead. A cluster of one broker has no routes, so
that the client uses the address it was given even if the broker's advertised address cannot be reached. No I/O.
"""

import zlib
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from bascule._liftbridge_pb import message

__all__ = ["BrokerPlace", "CursorPlace", "PartitionPlace", "Place", "Routes"]

CURSORS: Final = "__cursors"


@dataclass(frozen=True, slots=True)
class PartitionPlace:
    """A partition: the call goes to its leader."""

    stream: str
    partition: int


@dataclass(frozen=True, slots=True)
class CursorPlace:
    """A cursor: the call goes to the leader of the partition of `__cursors` that holds it."""

    cursor: str
    stream: str
    partition: int


@dataclass(frozen=True, slots=True)
class BrokerPlace:
    """A broker by id: the call goes to it."""

    id: str


Place: TypeAlias = PartitionPlace | CursorPlace | BrokerPlace | None
"""The target of a call; `None` = any broker."""


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
        """The routes of a FetchMetadataResponse for all streams."""
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
        """The address of the broker for `place`; `None` = not known, or any broker."""
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
