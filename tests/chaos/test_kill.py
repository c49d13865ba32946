"""Kill -9 under publish load: no acked record is lost, none is reordered, offsets have no gaps.

`KILLS=200 SEED=7 pytest -s tests/chaos` runs more cycles at other moments.
"""

import os
import random
import threading
import time
from pathlib import Path

import pytest
from bascule import testing

from tests.checker import Operation, Recorder, check
from tests.torture.publishers import Publisher, read

STREAM = "ledger"
PUBLISHERS = 3
BATCH = 50


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_acked_record_is_lost_or_reordered_when_the_broker_is_killed(tmp_path: Path) -> None:
    kills, seed = int(os.environ.get("KILLS", "20")), int(os.environ.get("SEED", "1"))
    chance = random.Random(seed)
    recorder = Recorder()
    publishers = [Publisher(f"p{number}", recorder, STREAM, batch=BATCH) for number in range(PUBLISHERS)]
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
            end = read(broker.address, recorder, Operation.POLL, STREAM, 0, end)
            print(f"kill {cycle + 1}/{kills} (seed {seed}): {end} records")
        read(broker.address, recorder, Operation.FINAL, STREAM, 0, 0)
    recorder.save(tmp_path / "history.jsonl")
    verdict = check(recorder.history())
    print(verdict)
    assert verdict.passed, f"{tmp_path}/history.jsonl: {verdict}"
    assert not verdict.vacuous, verdict.vacuous
    assert sum(one.acked for one in publishers) > kills * BATCH, "too few records were acked for a meaningful test"
