"""A broker that is killed at a step of staging, deciding or linking an epoch stores it once, as a whole, in order."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from bascule import StreamOptions, testing
from bascule.errors import BrokerError

from tests.failpoints import broker_failpoints
from tests.integration.sink_run import Attempt, Run, expected, rows, stored
from tests.torture.copying_process import LIMIT_S
from tests.waiting import until

pytestmark = pytest.mark.slow

BEFORE_THE_ANSWER = ("stage.append", "stage.written", "stage.renamed", "stage.sealed")
"""A task that stages has no answer: it is tried again."""
AFTER_IT = ("stage.confirmed", "link.started", "link.group_appended", "link.appended", "link.synced")
"""The driver's call is repeated until it is answered."""
LARGE = 64 << 10
"""So that a link has more than one group of batches."""


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.TestBroker]:
    with testing.broker(durability="disk") as running:
        yield running


def write(attempt: Attempt) -> bool:
    """As Spark does: a task that fails is tried again, and then the epoch is published."""
    while len(attempt.messages) < len(attempt.tasks):
        try:
            attempt.stage()
        except BrokerError as failure:
            if failure.code != "unavailable":
                raise
            time.sleep(0.05)  # there is nothing to wait on while the broker is away
    return attempt.publish()


@pytest.mark.parametrize("point", [*BEFORE_THE_ANSWER, *AFTER_IT])
def test_an_epoch_is_stored_once_although_the_broker_is_killed(broker: testing.TestBroker, point: str) -> None:
    stream = f"{point.replace('.', '-')}-{uuid4()}"
    if not broker.is_running:
        broker.start()
    with broker.connect() as client:
        client.create_stream(stream, options=StreamOptions(partitions=2))
    run, size = Run(broker.address, stream), LARGE if point == "link.group_appended" else 0
    epochs = [rows(0), rows(1, size=size), rows(2)]
    run.write(0, epochs[0])
    broker.stop()
    with broker_failpoints(f"{point}=1*return(abort)"):
        broker.start()
    attempt = run.attempt(1, epochs[1])
    with ThreadPoolExecutor(1) as threads:
        written = threads.submit(write, attempt)
        until(lambda: not broker.is_running, LIMIT_S, what=f"the broker is killed at {point}")
        broker.start()
        assert written.result(60), "the epoch is decided and not linked"
    assert f"failpoint {point}: abort" in broker.log
    run.write(2, epochs[2])
    assert stored(broker.address, stream) == expected(*epochs)
    with broker.connect() as client:
        sink = client.sink(stream)
        assert (sink.last_epoch, sink.finished) == (2, True)
        until(lambda: client.sink(stream).staged_bytes == 0, LIMIT_S, what="nothing is staged any more")
