"""Streaming reads with real Spark: offsets, limits, restarts."""

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from harness import Streams

from tests.waiting import until

pytestmark = pytest.mark.spark


class Query:
    """A streaming read into memory, with a checkpoint that outlives it."""

    def __init__(self, spark: Any, streams: Streams, folder: Path, **options: Any) -> None:
        self._spark = spark
        self._options = {"stream": "s", "address": streams.address, "longPollMs": 100, **options}
        self.checkpoint = folder / "checkpoint"
        self._output = str(folder / "output")

    def start(self, **trigger: Any) -> Any:
        reader = self._spark.readStream.format("bascule")
        for name, value in self._options.items():
            reader = reader if value is None else reader.option(name, value)
        frame = reader.load().select("partition", "offset", "value")
        writer = frame.writeStream.format("parquet").option("path", self._output)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, limit_s: int = 60) -> None:
        """One run with AvailableNow."""
        assert self.start(availableNow=True).awaitTermination(limit_s), "the run did not end"

    def rows(self) -> list[tuple[int, int]]:
        """(partition, offset) of everything written, sorted."""
        frame = self._spark.read.parquet(self._output)
        return sorted((row.partition, row.offset) for row in frame.collect())

    def offsets(self, epoch: int) -> dict[str, Any]:
        """The offset document in the checkpoint for the end of an epoch."""
        lines = (self.checkpoint / "offsets" / str(epoch)).read_text().splitlines()
        return json.loads(lines[2])


def refused(query: Query) -> str:
    with pytest.raises(Exception, match="bascule") as raised:
        query.run()
    return str(raised.value)


@pytest.mark.parametrize("trigger", [{"availableNow": True}, {"processingTime": "0 seconds"}])
def test_a_streaming_read_that_is_refused_says_why(
    trigger: dict[str, Any], spark: Any, streams: Streams, tmp_path: Path
) -> None:
    streams.create("s")
    query = Query(spark, streams, tmp_path, view="table").start(**trigger)
    with pytest.raises(Exception, match=r"\[invalid_argument\] option view=table is for batch reads") as raised:
        query.awaitTermination(60)
    assert "UnboundLocalError" not in str(raised.value)


def test_the_checkpoint_holds_the_documented_offsets(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s", 2)
    streams.put("s", [b"a", b"b"])
    query = Query(spark, streams, tmp_path, maxPartitions=4)
    query.run()
    text = (query.checkpoint / "offsets" / "0").read_text().splitlines()[2]
    before = json.loads(text)["streams"]["s"]["0"]
    assert before["link"] >= 0
    assert abs(before["timestamp_ns"] / 1e9 - time.time()) < 300
    assert text == (
        '{"namespace": "default", "packing": {"maxPartitions": 4, "maxRecords": 0, "minPartitions": 0, "slots": 2}, '
        f'"streams": {{"s": {{"0": {{"first": 0, "incarnation": 1, "link": {before["link"]}, "next": 2, '
        f'"timestamp_ns": {before["timestamp_ns"]}}}, '
        '"1": {"first": 0, "incarnation": 2, "link": -1, "next": 0, "timestamp_ns": -1}}}, "version": 2}'
    )


def test_an_idle_query_runs_no_epoch(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    query = Query(spark, streams, tmp_path, longPollMs=200)
    running = query.start()
    try:
        until(lambda: len(query_epochs(query)) == 1)
        time.sleep(3)  # checks that nothing happens in this time
        assert query_epochs(query) == ["0"]
        streams.put("s", [b"b"])
        until(lambda: len(query_epochs(query)) == 2)
    finally:
        running.stop()
    assert query.rows() == [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    "options",
    [
        {"minOffsetsPerTrigger": 1000, "maxOffsetsPerTrigger": 5000, "maxTriggerDelay": "1h"},
        {"endingTimestamp": 4_000_000_000_000},
        {"stream": None, "streamPattern": ".*", "endingOffsets": '{"s": {"0": 1}}'},
    ],
)
def test_an_idle_query_calls_the_broker_at_most_three_times_a_second(
    spark: Any, streams: Streams, tmp_path: Path, options: dict[str, Any]
) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    query = Query(spark, streams, tmp_path, longPollMs=500, **options)
    running = query.start()
    try:
        until(lambda: len(query_epochs(query)) == 1)
        streams.put("s", [b"too few, or after the end"] * 3)
        if "endingTimestamp" in options:
            until(lambda: len(query_epochs(query)) == 2)
        time.sleep(1)
        before, began = sum(streams.calls().values()), time.monotonic()
        time.sleep(4)  # counts the calls of this time
        calls, seconds = sum(streams.calls().values()) - before, time.monotonic() - began
        assert 0 < calls <= 3 * seconds
        assert running.isActive
    finally:
        running.stop()


def query_epochs(query: Query) -> list[str]:
    """Epochs that were finished."""
    folder = query.checkpoint / "commits"
    return sorted(path.name for path in folder.iterdir() if path.name.isdigit()) if folder.exists() else []


def test_runs_continue_where_the_last_one_ended(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    query = Query(spark, streams, tmp_path)
    streams.put("s", [b"a", b"b"])
    query.run()
    query.run()
    streams.put("s", [b"c"])
    query.run()
    assert query.rows() == [(0, 0), (0, 1), (0, 2)]


def test_available_now_ends_while_producers_write(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    streams.put("s", [b"first"])
    stop = threading.Event()

    def produce() -> None:
        while not stop.is_set():
            streams.put("s", [b"more"] * 10)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        query = Query(spark, streams, tmp_path, maxOffsetsPerTrigger=500)
        query.run()
        written = query.rows()
        assert len(written) < streams.position("s")[1]
    finally:
        stop.set()
        producer.join()
    assert written == [(0, i) for i in range(len(written))]


def test_limits_share_out_the_backlog(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s", 2)
    streams.put("s", [b"a"] * 90)
    streams.put("s", [b"b"] * 10, 1)
    query = Query(spark, streams, tmp_path, maxOffsetsPerTrigger=50)
    query.run()
    first = query.offsets(0)["streams"]["s"]
    assert (first["0"]["next"], first["1"]["next"]) == (45, 5)
    assert query.rows() == [(0, i) for i in range(90)] + [(1, i) for i in range(10)]


def test_a_replay_has_the_same_tasks_after_options_changed(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    streams.put("s", [b"a"] * 100)
    Query(spark, streams, tmp_path, minPartitions=4).run()
    shutil.rmtree(tmp_path / "checkpoint" / "commits")
    shutil.rmtree(tmp_path / "output")
    streams.put("s", [b"b"] * 10)
    again = Query(spark, streams, tmp_path, maxPartitions=1, longPollMs=50)
    again.run()
    assert again.rows() == [(0, i) for i in range(110)]
    assert again.offsets(0)["packing"]["minPartitions"] == 4
    assert again.offsets(1)["packing"]["minPartitions"] == 0


def test_partitions_that_appear_are_read_from_their_start(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    query = Query(spark, streams, tmp_path)
    running = query.start()
    try:
        until(lambda: len(query_epochs(query)) >= 1)
        streams.create("s", 2)
        streams.put("s", [b"c"], 1)
        until(lambda: len(query_epochs(query)) >= 2)
    finally:
        running.stop()
    streams.create("s", 3)
    streams.put("s", [b"d"], 2)
    query.run()
    assert query.rows() == [(0, 0), (1, 0), (2, 0)]


def test_a_recreated_stream_is_a_clear_error(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    streams.put("s", [b"a"])
    query = Query(spark, streams, tmp_path)
    query.run()
    streams.delete("s")
    streams.create("s")
    streams.put("s", [b"other", b"another"])
    message = refused(query)
    assert "the stream was deleted and created again; start the query with a new checkpoint" in message
    assert query.rows() == [(0, 0)]


def test_a_log_that_was_replaced_is_a_clear_error(spark: Any, streams: Streams, tmp_path: Path) -> None:
    """An older copy is restored and grows past the checkpoint; test_history.py tests the reader alone."""
    streams.create("s", durability="disk")
    streams.put("s", [b"a"] * 120)
    streams.save(tmp_path / "copy")
    streams.put("s", [b"b"] * 30)
    query = Query(spark, streams, tmp_path)
    query.run()
    streams.put_back(tmp_path / "copy")
    streams.put("s", [b"c"] * 70)
    message = refused(query)
    assert "the log of s/0 was replaced, for example by an older copy: the record before offset 150 is of" in message
    assert "Traceback" not in message
    assert len(query.rows()) == 150


def test_removed_records_end_the_query_or_are_skipped(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s", segment_bytes=1 << 16)
    streams.put("s", [b"a"])
    failing = Query(spark, streams, tmp_path / "fail")
    skipping = Query(spark, streams, tmp_path / "skip", onDataLoss="skip")
    failing.run()
    skipping.run()
    for _ in range(8):
        streams.put("s", [bytes(1000)] * 100)
    streams.set("s", retention_messages=250)
    until(lambda: streams.position("s")[0] > 1)
    start, end = streams.position("s")
    assert f"offset 1 is below the log start offset {start} of s/0" in refused(failing)
    skipping.run()
    assert skipping.rows() == [(0, 0), *((0, i) for i in range(start, end))]


def test_a_small_backlog_waits_for_more_records(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    streams.put("s", [b"a"] * 5)
    query = Query(spark, streams, tmp_path, minOffsetsPerTrigger=10)
    running = query.start()
    try:
        until(lambda: len(query_epochs(query)) == 1)
        streams.put("s", [b"b"] * 9)
        time.sleep(1.5)  # checks that nothing happens in this time
        assert len(query_epochs(query)) == 1
        streams.put("s", [b"c"])
        until(lambda: len(query_epochs(query)) == 2)
    finally:
        running.stop()
    assert len(query.rows()) == 15


def test_an_end_bounds_the_query(spark: Any, streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    streams.put("s", [b"a"] * 10)
    query = Query(spark, streams, tmp_path, endingOffsets='{"s": {"0": 4}}')
    query.run()
    assert query.rows() == [(0, i) for i in range(4)]
