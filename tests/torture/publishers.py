"""Publishers and readers that record histories for the checker while their broker is killed."""

from __future__ import annotations

import json
from dataclasses import dataclass

from bascule.engine import Client, Outgoing, native_errors
from bascule.errors import BrokerError
from pyarrow import flight

from tests.checker import Operation, Recorder

LEADER = 0
"""Ack policy of the calls. The broker runs alone, so the leader's ack equals that of all replicas."""


def publish(client: Client, place: tuple[str, int], values: list[bytes], timeout_ms: int) -> list[tuple[int, int]]:
    """Publish to (stream, partition) in one call and wait for the acks: (offset, timestamp ns) of each value.

    Raises:
        BrokerError: the broker has ended, or rejected it.
    """
    batch = Outgoing(*place, LEADER, len(values))
    batch.fill(None, values, None)
    client.publish(batch, None, timeout_ms)
    return [(offset, timestamp) for offset, timestamp, _ in batch.places()]


@dataclass
class Publisher:
    """Publishes `<name>:<sequence>` until the broker is killed, and records the acked offsets."""

    name: str
    recorder: Recorder
    stream: str
    partition: int = 0
    batch: int = 50
    """Records of one call."""
    durability: str = "disk"
    """The stream's durability class, for the history."""
    next_sequence: int = 0
    acked: int = 0

    def run(self, address: str) -> None:
        """Publish batches until one fails."""
        try:
            with native_errors():
                client = Client(address, b"{}")
                while True:
                    self._publish(client)
        except BrokerError:
            return  # the broker has ended: unacked records may be stored or not

    def _publish(self, client: Client) -> None:
        first = self.next_sequence
        self.next_sequence += self.batch
        values = tuple(f"{self.name}:{first + i}" for i in range(self.batch))
        sent = self.recorder.invoke(
            self.name,
            Operation.PUBLISH,
            partition=self.partition,
            values=values,
            policy="all",
            durability=self.durability,
        )
        raw = [value.encode() for value in values]
        acks = publish(client, (self.stream, self.partition), raw, 10_000)
        self.recorder.ok(sent, offsets=tuple(offset for offset, _ in acks))
        self.acked += self.batch


def read(  # noqa: PLR0917 -- what to read, and where to record it
    address: str, recorder: Recorder, operation: Operation, stream: str, partition: int, start: int
) -> int:
    """Read and record all records from offset `start`; checks that there are no gaps. Returns the end."""
    begun = recorder.invoke("reader", operation, partition=partition, start=start)
    columns = ["offset", "value"]
    ticket = json.dumps({"stream": stream, "partition": partition, "start": start, "columns": columns})
    with flight.FlightClient(f"grpc://{address}") as client:
        table = client.do_get(flight.Ticket(ticket.encode())).read_all()
    end = start + table.num_rows
    offsets = tuple(table["offset"].to_pylist())
    assert offsets == tuple(range(start, end))
    values = tuple(value.decode() for value in table["value"].to_pylist())
    recorder.ok(begun, offsets=offsets, values=values, high_watermark=end)
    return end
