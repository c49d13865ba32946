"""Kills at each step of sink and archive, with real Spark and a real broker; every row is compared afterwards.

Points of Spark's Python processes act by `bascule.failpoints`, points of the broker in a build that has them. Where the
driver is killed, it is a process of its own, which ends together with its JVM and its workers.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bascule.client import StreamOptions
from bascule.failpoints import Name
from bascule.testing import TestBroker as Broker
from pyspark.errors import StreamingQueryException

from tests.failpoints import Points, broker_failpoints
from tests.torture.copying import SOURCE_PARTITIONS, TARGET_PARTITIONS, Copy, Ledger
from tests.torture.copying_process import LIMIT_S, Application
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 300
"""Records to each source partition before a kill: more than one epoch."""
LARGE = 32 << 10
"""Bytes of a value, so that a link has more than one group of batches in each partition."""
RUN_S = 120


@pytest.fixture
def ledger(broker: Broker, tmp_path: Path) -> Iterator[Ledger]:
    """New streams for the test; afterwards the broker runs."""
    name = str(uuid4())
    copy = Copy(broker.address, str(tmp_path), f"{name}-in", f"{name}-out", "delta")
    with broker.connect() as client:
        client.create_stream(copy.source, options=StreamOptions(partitions=SOURCE_PARTITIONS))
        client.create_stream(copy.target, options=StreamOptions(partitions=TARGET_PARTITIONS))
    ledger = Ledger(copy)
    yield ledger
    if not broker.is_running:
        broker.start()


def run(spark: Any, ledger: Ledger) -> None:
    """Copy all that is there."""
    query = ledger.copy.start_sink(spark, available_now=True)
    assert query.awaitTermination(RUN_S), "the run did not end"


@pytest.mark.parametrize("point", ["sink.staging", "sink.staged", "sink.before_publish", "sink.published"])
def test_after_the_kill_of_a_worker_the_next_run_stores_each_row_once(
    spark: Any, ledger: Ledger, points: Points, point: Name
) -> None:
    ledger.publish(20)
    run(spark, ledger)
    ledger.publish(ROWS)
    points.arm(point, "kill")
    with pytest.raises(Exception, match="STREAM_FAILED"):
        run(spark, ledger)
    assert not points.is_armed(point), "the point was not reached"
    run(spark, ledger)
    assert ledger.stream_fault() is None


@pytest.mark.parametrize(
    ("point", "size"),
    [
        ("stage.append", 0),
        ("stage.sealed", 0),
        ("stage.confirmed", 0),
        ("link.started", 0),
        ("link.group_appended", LARGE),
        ("link.synced", 0),
    ],
)
def test_a_query_survives_the_kill_of_the_broker_and_stores_each_row_once(
    spark: Any, broker: Broker, ledger: Ledger, point: str, size: int
) -> None:
    """Before the decision, between decision and link, in the middle of a link, and before it is reported."""
    ledger.publish(20)
    run(spark, ledger)
    broker.stop()
    with broker_failpoints(f"{point}=1*return(abort)"):
        broker.start()
    ledger.publish(ROWS, size)
    query = ledger.copy.start_sink(spark, available_now=True)
    until(lambda: not broker.is_running, LIMIT_S, what=f"the broker is killed at {point}")
    broker.start()
    with suppress(StreamingQueryException):  # a query that ends by the loss of its broker is started again
        assert query.awaitTermination(RUN_S), "the run did not end"
    run(spark, ledger)
    assert f"failpoint {point}: abort" in broker.log
    assert ledger.stream_fault() is None


@pytest.mark.parametrize(
    ("sink", "archive"),
    [
        pytest.param("sink.before_publish", "archive.before_commit", marks=pytest.mark.long),
        ("sink.published", "archive.after_commit"),
    ],
)
def test_after_the_kill_of_the_driver_both_queries_continue_exactly(
    spark: Any, ledger: Ledger, tmp_path: Path, sink: Name, archive: Name
) -> None:
    """Before the decision, and between it and Spark's own log of commits."""
    application = started(ledger, tmp_path)
    try:
        ledger.publish(ROWS)
        for point in (sink, archive):
            application.points.arm(point, "hold")
        ledger.publish(ROWS)
        for point in (sink, archive):
            until(lambda name=point: application.points.is_held(name), LIMIT_S, what=f"a commit waits at {point}")
    finally:
        application.kill()
    finish(spark, ledger)


def test_a_driver_that_is_killed_while_its_epoch_is_decided_but_not_linked_continues(
    spark: Any, broker: Broker, ledger: Ledger, tmp_path: Path
) -> None:
    """The answer to a publish is lost: it is asked for again by another run."""
    broker.stop()
    with broker_failpoints("link.started=6*sleep(5000)"):
        broker.start()
    application = started(ledger, tmp_path)
    try:
        ledger.publish(ROWS)
        with broker.connect() as client:

            def is_decided_and_not_linked() -> bool:
                found = [sink for sink in client.sinks() if sink.name == ledger.copy.target]
                return bool(found) and found[0].last_epoch is not None and not found[0].finished

            until(is_decided_and_not_linked, LIMIT_S, what="an epoch is decided and not linked")
    finally:
        application.kill()
    finish(spark, ledger)


def started(ledger: Ledger, folder: Path) -> Application:
    ledger.copy.save(folder / "copy.json")
    application = Application(folder, "tests.torture.copying_app")
    application.start()
    return application


def finish(spark: Any, ledger: Ledger) -> None:
    """Continue both queries in the session of the tests, and compare."""
    queries = [start(spark, available_now=True) for start in (ledger.copy.start_sink, ledger.copy.start_archive)]
    for query in queries:
        assert query.awaitTermination(RUN_S), "a run did not end"
    assert ledger.stream_fault() is None
    assert ledger.table_fault() is None
