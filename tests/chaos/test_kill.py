"""Kill -9 under publish load: no acked record is lost, none is reordered, offsets have no gaps.

`KILLS=200 SEED=7 pytest -s tests/chaos` runs more cycles at other moments.
"""

import json
import os
import random
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from bascule import testing
from bascule.engine import Client, native_errors
from bascule.errors import BrokerError
from pyarrow import flight

from tests.checker import Operation, Recorder, check

STREAM = "ledger"
PUBLISHERS = 3
BATCH = 50
LEADER = 0
"""Ack policy of the calls. The broker is alone, so the leader's ack is that of all: the history says so."""


@dataclass
class Publisher:
    """Publishes `<name>:<sequence>` until the broker dies, and takes down what was acked where."""

    name: str
    recorder: Recorder
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
            return  # the broker is gone: what was not acked may or may not be there

    def _publish(self, client: Client) -> None:
        first = self.next_sequence
        self.next_sequence += BATCH
        values = tuple(f"{self.name}:{first + i}" for i in range(BATCH))
        sent = self.recorder.invoke(self.name, Operation.PUBLISH, values=values, policy="all", durability="disk")
        acks = client.publish(STREAM, 0, None, [value.encode() for value in values], None, LEADER, 10_000)
        self.recorder.ok(sent, offsets=tuple(offset for offset, _ in acks))
        self.acked += BATCH


def read(address: str, recorder: Recorder, operation: Operation, start: int) -> int:
    """Read every record from offset `start` on and take it down; checks that there are no gaps. Returns the end."""
    begun = recorder.invoke("reader", operation, start=start)
    ticket = json.dumps({"stream": STREAM, "partition": 0, "start": start, "columns": ["offset", "value"]})
    with flight.FlightClient(f"grpc://{address}") as client:
        table = client.do_get(flight.Ticket(ticket.encode())).read_all()
    end = start + table.num_rows
    offsets = tuple(table["offset"].to_pylist())
    assert offsets == tuple(range(start, end))
    values = tuple(value.decode() for value in table["value"].to_pylist())
    recorder.ok(begun, offsets=offsets, values=values, high_watermark=end)
    return end


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_acked_record_is_lost_or_reordered_when_the_broker_is_killed(tmp_path: Path) -> None:
    kills, seed = int(os.environ.get("KILLS", "20")), int(os.environ.get("SEED", "1"))
    chance = random.Random(seed)
    recorder = Recorder()
    publishers = [Publisher(f"p{number}", recorder) for number in range(PUBLISHERS)]
    end = 0
    with testing.broker() as broker:
        with broker.connect() as client:
            client.create_stream(STREAM)
        for cycle in range(kills):
            threads = [threading.Thread(target=one.run, args=(broker.address,), daemon=True) for one in publishers]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(0.02, 0.4))  # the random moment of the kill
            healed = recorder.fault("kill")
            broker.kill()
            for thread in threads:
                thread.join(20)
                assert not thread.is_alive()
            broker.start()
            healed()
            end = read(broker.address, recorder, Operation.POLL, end)
            print(f"kill {cycle + 1}/{kills} (seed {seed}): {end} records")
        read(broker.address, recorder, Operation.FINAL, 0)
    recorder.save(tmp_path / "history.jsonl")
    verdict = check(recorder.history())
    print(verdict)
    assert verdict.sound, f"{tmp_path}/history.jsonl: {verdict}"
    assert not verdict.vacuous, verdict.vacuous
    assert sum(one.acked for one in publishers) > kills * BATCH, "too little was acked to prove anything"
