"""Queries that hold what they have not processed, on real Spark and a real broker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from bascule.client import Client, StreamOptions
from bascule.testing import TestBroker, broker

from tests.integration.server.test_archived import fill, log_start, rounds
from tests.names import fresh
from tests.waiting import until

pytestmark = [pytest.mark.spark]

SETTINGS: Final = {"streams.cleaner_interval_ms": 100, "streams.retention_min_age_ms": 0}
RECORDS: Final = 50


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(settings=SETTINGS) as started:
        yield started


class Slow:
    """A query whose micro-batches wait for a file."""

    def __init__(self, folder: Path) -> None:
        self.seen: list[int] = []
        self._folder = folder
        self._may_end = folder / "may-end"

    def start(self, spark: Any, running: TestBroker, stream: str, **options: Any) -> Any:
        reader = spark.readStream.format("bascule").option("address", running.address).option("stream", stream)
        for name, value in {"longPollMs": 100, "consumerGroup": f"{stream}-query", **options}.items():
            reader = reader.option(name, value)
        writer = reader.load().select("offset").writeStream.foreachBatch(self._take)
        return writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def _take(self, rows: Any, _: int) -> None:
        taken = [row.offset for row in rows.collect()]
        self.seen += taken
        until(self._may_end.exists, 120)

    def let_end(self) -> None:
        self._may_end.touch()


def options(cap: int | None) -> StreamOptions:
    return StreamOptions(
        codec="none", retention_max_messages=5, segment_max_bytes=4000, retention_hold_max_bytes=cap
    )  # fmt: skip


def fallen_behind(spark: Any, running: TestBroker, client: Client, name: str, folder: Path, **more: Any) -> Any:
    """A query in its first micro-batch, of one record, while others are published."""
    client.create_stream(name, options=options(1 << 20))
    fill(client, name, 1)
    slow = Slow(folder)
    query = slow.start(spark, running, name, **more)
    until(lambda: slow.seen == [0], 120)
    fill(client, name, RECORDS - 1)
    return slow, query


def test_a_query_that_holds_gets_what_retention_would_have_removed(
    spark: Any, running: TestBroker, tmp_path: Path
) -> None:
    name = fresh("held")
    with running.connect() as client:
        slow, query = fallen_behind(spark, running, client, name, tmp_path, retentionHold="true")
        try:
            rounds(client)
            assert log_start(client, name) == 0
            (found,) = client.lags(stream=name)
            assert found.hold_left is not None
            slow.let_end()
            until(lambda: slow.seen == list(range(RECORDS)), 120)
            until(lambda: log_start(client, name) > RECORDS - 10, 60)
        finally:
            query.stop()


def test_without_the_option_retention_passes_the_query(spark: Any, running: TestBroker, tmp_path: Path) -> None:
    name = fresh("passed")
    with running.connect() as client:
        slow, query = fallen_behind(spark, running, client, name, tmp_path)
        try:
            until(lambda: log_start(client, name) > RECORDS - 10, 60)
            slow.let_end()
            with pytest.raises(Exception, match="offset 1 is below the log start"):
                query.awaitTermination(120)
        finally:
            query.stop()


def test_a_stream_that_lets_no_query_hold_ends_it_by_name(spark: Any, running: TestBroker, tmp_path: Path) -> None:
    name = fresh("free")
    with running.connect() as client:
        client.create_stream(name, options=options(None))
        query = Slow(tmp_path).start(spark, running, name, retentionHold="true")
        with pytest.raises(Exception, match=f"cannot hold records of {name}: set retention_hold_max_bytes"):
            query.awaitTermination(120)


def test_a_hold_needs_the_name_of_the_query(spark: Any, running: TestBroker, tmp_path: Path) -> None:
    name = fresh("nameless")
    with running.connect() as client:
        client.create_stream(name)
    reader = spark.readStream.format("bascule").option("address", running.address).option("stream", name)
    reader = reader.option("retentionHold", "true")
    with pytest.raises(Exception, match="option retentionHold needs consumerGroup"):
        reader.load()
    query = (
        reader.schema("offset BIGINT")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    with pytest.raises(Exception, match="option retentionHold needs consumerGroup"):
        query.awaitTermination(120)
