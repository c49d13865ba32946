"""Kill -9 under publish load: no acked record is lost, none is reordered, offsets have no gaps.

`KILLS=200 SEED=7 pytest -s tests/chaos` runs more cycles at other moments.
"""

import json
import os
import random
import threading
import time
from dataclasses import dataclass, field

import pytest
from bascule import testing
from bascule.engine import Client, native_errors
from bascule.errors import BrokerError
from pyarrow import flight

STREAM = "ledger"
PUBLISHERS = 3
BATCH = 50
LEADER = 0


@dataclass
class Publisher:
    """Publishes `<name>:<sequence>` until the broker dies, and remembers what was acked where."""

    name: str
    next_sequence: int = 0
    acked: dict[int, int] = field(default_factory=dict[int, int])
    """Sequence to offset."""
    acked_in_cycle: int = 0

    def run(self, address: str) -> None:
        """Publish batches until one fails."""
        self.acked_in_cycle = 0
        try:
            with native_errors():
                client = Client(address, b"{}")
                while True:
                    first = self.next_sequence
                    self.next_sequence += BATCH
                    values = [f"{self.name}:{first + i}".encode() for i in range(BATCH)]
                    acks = client.publish(STREAM, 0, None, values, None, LEADER, 10_000)
                    self.acked.update({first + i: offset for i, (offset, _) in enumerate(acks)})
                    self.acked_in_cycle += BATCH
        except BrokerError:
            return  # the broker is gone: what was not acked may or may not be there


def read_all(address: str) -> list[bytes]:
    """Every value; checks that offsets begin at 0 and have no gaps."""
    ticket = json.dumps({"stream": STREAM, "partition": 0, "start": "earliest", "columns": ["offset", "value"]})
    with flight.FlightClient(f"grpc://{address}") as client:
        table = client.do_get(flight.Ticket(ticket.encode())).read_all()
    assert table["offset"].to_pylist() == list(range(table.num_rows))
    return table["value"].to_pylist()


def check(values: list[bytes], publishers: list[Publisher]) -> None:
    """Acked records are where their ack said; no publisher's records are reordered or doubled."""
    for publisher in publishers:
        for sequence, offset in publisher.acked.items():
            assert offset < len(values), f"acked offset {offset} is lost: the log ends at {len(values)}"
            assert values[offset] == f"{publisher.name}:{sequence}".encode()
    last: dict[bytes, int] = {}
    for offset, value in enumerate(values):
        name, _, sequence = value.partition(b":")
        assert int(sequence) > last.get(name, -1), f"record {value!r} at offset {offset} is out of order"
        last[name] = int(sequence)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_acked_record_is_lost_or_reordered_when_the_broker_is_killed() -> None:
    kills, seed = int(os.environ.get("KILLS", "20")), int(os.environ.get("SEED", "1"))
    chance = random.Random(seed)
    publishers = [Publisher(f"p{number}") for number in range(PUBLISHERS)]
    with testing.broker() as broker:
        with broker.connect() as client:
            client.create_stream(STREAM)
        for cycle in range(kills):
            threads = [threading.Thread(target=one.run, args=(broker.address,), daemon=True) for one in publishers]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0.02, 0.4))  # the random moment of the kill
            broker.kill()
            for thread in threads:
                thread.join(20)
                assert not thread.is_alive()
            broker.start()
            values = read_all(broker.address)
            check(values, publishers)
            print(f"kill {cycle + 1}/{kills} (seed {seed}): {len(values)} records")
    assert sum(len(one.acked) for one in publishers) > kills * BATCH, "too little was acked to prove anything"
