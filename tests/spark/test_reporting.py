"""Positions that streaming reads report, on real Spark and a real broker."""

import time
from pathlib import Path
from statistics import median
from typing import Any

import bascule
import bascule.pipeline
import pytest
from bascule.client import ReaderLag, StreamOptions
from bascule.testing import TestBroker as Broker

from tests.waiting import until

pytestmark = [pytest.mark.spark]

VISIBLE_S = 2.0
"""A position is to be seen so long after the end of its micro-batch."""


def start(spark: Any, broker: Broker, folder: Path, **options: Any) -> Any:
    reader = spark.readStream.format("bascule").option("address", broker.address)
    for name, value in {"longPollMs": 100, **options}.items():
        reader = reader.option(name, value)
    writer = reader.load().select("partition", "offset").writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).option("path", str(folder / "out"))
    return writer.start()


def nexts(found: list[ReaderLag]) -> dict[int, int]:
    return {item.partition: item.next_offset for item in found}


def ended(folder: Path, epoch: int) -> float:
    """When the checkpoint had the end of an epoch, seconds since 1970."""
    return (folder / "checkpoint" / "commits" / str(epoch)).stat().st_mtime


@pytest.mark.alone
def test_the_position_is_seen_two_seconds_after_the_micro_batch(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("seen", options=StreamOptions(partitions=2))
    for number in range(10):
        client.publish("seen", b"%d" % number, partition=number % 2)
    query = start(spark, broker, tmp_path, stream="seen", consumerGroup="seen-query", maxOffsetsPerTrigger=5)
    try:
        until(lambda: nexts(client.lags(reader="seen-query")) == {0: 5, 1: 5}, 180)
        delays: list[float] = []
        for number in range(5):
            client.publish("seen", b"more", partition=0)
            until((tmp_path / "checkpoint" / "commits" / str(number + 2)).exists, 60)
            until(lambda number=number: nexts(client.lags(reader="seen-query"))[0] == 6 + number, 60)
            delays.append(time.time() - ended(tmp_path, number + 2))
        assert median(delays) <= VISIBLE_S, delays
        found = client.lags(reader="seen-query")
        assert [(item.records, item.state) for item in found] == [(0, "reporting")] * 2
    finally:
        query.stop()
    client.publish("seen", b"after", partition=1)
    assert [item.records for item in client.lags(reader="seen-query")] == [0, 1]


def test_a_query_without_a_name_reports_nothing(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("quiet")
    client.publish("quiet", b"a")
    query = start(spark, broker, tmp_path, stream="quiet")
    try:
        until((tmp_path / "checkpoint" / "commits" / "0").exists, 60)
        assert client.lags(stream="quiet") == []
    finally:
        query.stop()


def test_positions_are_back_after_the_broker_was_killed(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("back")
    client.publish("back", b"a")
    query = start(spark, broker, tmp_path, stream="back", consumerGroup="back-query")
    try:
        until(lambda: nexts(client.lags(reader="back-query")) == {0: 1}, 60)
        broker.kill()
        broker.start()
        with broker.connect() as again:
            until(lambda: nexts(again.lags(reader="back-query")) == {0: 1}, 30)
            assert query.isActive
    finally:
        query.stop()


def test_a_job_that_finds_nothing_new_has_ended(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("still")
    client.publish_many("still", [b"a", b"b"])
    job: dict[str, Any] = {
        "name": "still-job",
        "source": {"stream": "still", "address": broker.address, "longPollMs": 100},
        "targets": [{"format": "parquet", "path": str(tmp_path / "table")}],
        "checkpoint": str(tmp_path / "checkpoint"),
        "mode": "availableNow",
    }
    assert bascule.pipeline.run(job, spark=spark).rows == 2
    broker.kill()
    broker.start()  # which knows no report: the next ones are of the second run
    assert bascule.pipeline.run(job, spark=spark).rows == 0
    with broker.connect() as again:
        until(lambda: [(item.next_offset, item.state) for item in again.lags(stream="still")] == [(2, "ended")], 20)


def test_a_job_reports_under_its_name_unless_report_is_false(
    spark: Any, broker: Broker, client: bascule.Client, tmp_path: Path
) -> None:
    client.create_stream("job-in")
    client.publish_many("job-in", [b"a", b"b"])
    document: dict[str, Any] = {
        "source": {"stream": "job-in", "address": broker.address, "longPollMs": 100},
        "mode": "availableNow",
    }
    for name, more in (("shown-job", {}), ("hidden-job", {"report": False})):
        target = {"format": "parquet", "path": str(tmp_path / name / "table")}
        checkpoint = str(tmp_path / name / "checkpoint")
        job = {"name": name, "targets": [target], "checkpoint": checkpoint, **document, **more}
        assert bascule.pipeline.run(job, spark=spark).rows == 2
    until(lambda: [item.state for item in client.lags(stream="job-in")] == ["ended"], 20)
    assert [(item.reader, item.next_offset) for item in client.lags(stream="job-in")] == [("shown-job", 2)]
