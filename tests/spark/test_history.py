"""Queries on logs that were replaced, shortened, deleted or created again. Tests the reader without a JVM."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import BrokerError, StateError, UsageError
from bascule.spark.options import parse_options
from bascule.spark.stream import BasculeStreamReader
from harness import Streams
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from tests.waiting import until

SCHEMA = StructType(
    [
        StructField("stream", StringType(), False),
        StructField("offset", LongType(), False),
        StructField("value", BinaryType(), True),
    ]
)


class Query:
    """A streaming query like in Spark: documents are passed as JSON text, and each run has a new reader."""

    def __init__(self, streams: Streams, **options: str) -> None:
        self._options = {"address": streams.address, "longPollMs": "50", **options}
        self._end: str | None = None

    def run(self) -> list[tuple[str, int, bytes]]:
        """Run all micro-batches until there are no new records. Returns the records."""
        reader = self.reader()
        rows: list[tuple[str, int, bytes]] = []
        if self._end is None:
            self._end = json.dumps(reader.initialOffset())
        for _ in range(20):
            end = json.dumps(reader.latestOffset(json.loads(self._end), ReadAllAvailable()))
            if end == self._end:
                return rows
            rows += self.read(reader, self._end, end)
            self._end = end
        raise AssertionError(f"the query does not become idle: {self._end}")

    def reader(self) -> BasculeStreamReader:
        return BasculeStreamReader(parse_options(self._options), SCHEMA)

    def read(self, reader: BasculeStreamReader, start: str, end: str) -> list[tuple[str, int, bytes]]:
        rows: list[tuple[str, int, bytes]] = []
        for partition in reader.partitions(json.loads(start), json.loads(end)):
            for batch in reader.read(partition):
                rows += [(row["stream"], row["offset"], row["value"]) for row in batch.to_pylist()]
        return sorted(rows)

    @property
    def document(self) -> dict[str, Any]:
        """The offsets of the last micro-batch."""
        assert self._end is not None
        return json.loads(self._end)

    @document.setter
    def document(self, document: dict[str, Any]) -> None:
        self._end = json.dumps(document)

    def next(self, stream: str = "s") -> int:
        return self.document["streams"][stream]["0"]["next"]


def values(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}{i}".encode() for i in range(count)]


def offsets(rows: list[tuple[str, int, bytes]]) -> list[int]:
    return [offset for _, offset, _ in rows]


@pytest.fixture
def restored(streams: Streams, tmp_path: Path) -> tuple[Streams, Query, Query]:
    """A log of 120 records was copied, grew to 150, was read by two queries, and the copy was restored."""
    streams.create("s", durability="disk")
    streams.put("s", values("a", 120))
    streams.save(tmp_path / "copy")
    streams.put("s", values("b", 30))
    failing, skipping = Query(streams, stream="s"), Query(streams, stream="s", onDataLoss="skip")
    assert offsets(failing.run()) == offsets(skipping.run()) == list(range(150))
    streams.put_back(tmp_path / "copy")
    return streams, failing, skipping


def test_a_log_that_ends_before_the_mark_is_detected(restored: tuple[Streams, Query, Query]) -> None:
    streams, failing, skipping = restored
    with pytest.raises(StateError, match="up to offset 150, which is beyond its high watermark 120") as refusal:
        failing.run()
    assert refusal.value.code == "offset_out_of_range"
    assert skipping.run() == []
    assert skipping.next() == 120
    streams.put("s", values("c", 70))
    assert skipping.run() == [("s", 120 + i, f"c{i}".encode()) for i in range(70)]


def test_a_replaced_log_that_grew_past_the_mark_is_detected(
    restored: tuple[Streams, Query, Query], caplog: pytest.LogCaptureFixture
) -> None:
    streams, failing, skipping = restored
    streams.put("s", values("c", 70))
    with pytest.raises(StateError, match="the log of s/0 was replaced, for example by an older copy") as refusal:
        failing.run()
    assert refusal.value.code == "history_changed"
    with caplog.at_level(logging.WARNING, "bascule.spark"):
        assert offsets(skipping.run()) == list(range(150, 190))
    assert "onDataLoss is skip: continue at offset 150" in caplog.text
    caplog.clear()
    streams.put("s", values("d", 1))
    assert offsets(skipping.run()) == [190]
    assert caplog.text == ""


def test_a_repeated_micro_batch_detects_it_too(restored: tuple[Streams, Query, Query]) -> None:
    streams, failing, _ = restored
    start, end = '{"namespace": "default", "packing": %s, "streams": {}, "version": 2}', failing.document
    start %= json.dumps(end["packing"])
    with pytest.raises(BrokerError, match="beyond the high watermark 120"):
        failing.read(failing.reader(), start, json.dumps(end))
    streams.put("s", values("c", 70))
    with pytest.raises(BrokerError, match="the log of s/0 was replaced") as refusal:
        failing.read(failing.reader(), start, json.dumps(end))
    assert refusal.value.code == "history_changed"


def test_a_checkpoint_of_version_1_is_continued(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", values("a", 3))
    query = Query(streams, stream="s")
    query.run()
    document = query.document
    document["version"] = 1
    for entry in document["streams"]["s"].values():
        del entry["link"], entry["timestamp_ns"]
    query.document = document
    assert query.run() == []
    assert query.document == document, "no new records: the document of version 1 is unchanged"
    streams.put("s", values("b", 2))
    assert offsets(query.run()) == [3, 4]
    assert query.document["version"] == 2
    assert query.document["streams"]["s"]["0"]["link"] >= 0


def test_a_predecessor_that_was_removed_is_unknown_and_logged(
    streams: Streams, caplog: pytest.LogCaptureFixture
) -> None:
    streams.create("s", segment_bytes=1 << 16)
    for _ in range(8):
        streams.put("s", [bytes(1000)] * 100)
    query = Query(streams, stream="s")
    query.run()
    streams.put("s", [bytes(1000)] * 100)
    streams.set("s", retention_messages=100)
    until(lambda: streams.position("s")[0] == 800)
    with caplog.at_level(logging.WARNING, "bascule.spark"):
        assert offsets(query.run()) == list(range(800, 900))
    assert "s/0: the record before offset 800 was removed by retention or compaction" in caplog.text


def test_a_recreated_stream_is_an_error_or_read_from_its_start(streams: Streams) -> None:
    streams.create("s")
    streams.put("s", values("a", 5))
    failing, skipping = Query(streams, stream="s"), Query(streams, stream="s", onDataLoss="skip")
    failing.run()
    skipping.run()
    streams.delete("s")
    streams.create("s")
    streams.put("s", values("b", 2))
    with pytest.raises(StateError, match="s/0 has incarnation 2, the checkpoint was made for 1") as refusal:
        failing.run()
    assert refusal.value.code == "incarnation_changed"
    assert skipping.run() == [("s", 0, b"b0"), ("s", 1, b"b1")]


def test_a_pattern_query_survives_the_deletion_of_a_stream(streams: Streams, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("order-a", "order-b"):
        streams.create(name)
        streams.put(name, values(name, 2))
    failing = Query(streams, streamPattern="order-.*")
    skipping = Query(streams, streamPattern="order-.*", onDataLoss="skip")
    reader = skipping.reader()
    start = json.dumps(reader.initialOffset())
    end = json.dumps(reader.latestOffset(json.loads(start), ReadAllAvailable()))
    assert len(failing.run()) == 4
    streams.delete("order-b")
    # The task of a micro-batch that was planned before.
    assert skipping.read(reader, start, end) == [("order-a", 0, b"order-a0"), ("order-a", 1, b"order-a1")]
    with pytest.raises(StateError, match="stream order-b, which the query has read, was deleted") as refusal:
        failing.run()
    assert refusal.value.code == "stream_not_found"
    # The running reader has just matched the pattern.
    with caplog.at_level(logging.WARNING, "bascule.spark"):
        assert json.dumps(reader.latestOffset(json.loads(end), ReadAllAvailable())) == end
    assert "stream order-b, which the query has read, was deleted; onDataLoss is skip" in caplog.text
    streams.put("order-a", [b"more"])
    last = json.dumps(reader.latestOffset(json.loads(end), ReadAllAvailable()))
    assert skipping.read(reader, end, last) == [("order-a", 2, b"more")]
    streams.create("order-b")
    streams.put("order-b", [b"of another stream"])
    skipping.document = json.loads(last)
    assert skipping.run() == [("order-b", 0, b"of another stream")]


def test_a_named_stream_that_is_deleted_ends_the_query(streams: Streams) -> None:
    streams.create("s")
    query = Query(streams, stream="s", onDataLoss="skip")
    query.run()
    streams.delete("s")
    with pytest.raises(StateError, match="stream default/s does not exist"):
        query.run()


@pytest.mark.parametrize(
    ("option", "position"),
    [
        ("startingOffsets", 0),
        ("endingOffsets", 1),
        ("startingTimestamp", 1_000),
        ("startingOffsetsByTimestamp", 1_000),
        ("endingTimestamp", 1_000),
        ("endingOffsetsByTimestamp", 1_000),
    ],
)
def test_positions_of_unread_streams_are_rejected_by_name(streams: Streams, option: str, position: int) -> None:
    streams.create("orders", 2)
    streams.create("Orders")
    streams.put("orders", values("a", 2))
    chosen: list[tuple[dict[str, str], dict[str, Any], str]] = [
        (
            {"stream": "orders"},
            {"order": {"0": position}},
            r"the stream 'order', which is not read \(did you mean orders",
        ),
        ({"stream": "orders"}, {"Orders": {"0": position}}, "the stream 'Orders', which is not read"),
        ({"stream": "orders"}, {"order": position if "imestamp" in option else "latest"}, "the stream 'order'"),
        (
            {"stream": "orders"},
            {"orders": {"2": position}},
            "partition 2 of orders, which is not read: those read are 0-1",
        ),
        ({"streamPattern": "o.*"}, {"Orders": {"0": position}}, "the stream 'Orders', which is not read"),
        ({"assign": '{"orders": [1]}'}, {"orders": {"0": position}}, "partition 0 of orders, which is not read"),
    ]
    for selection, document, sentence in chosen:
        with pytest.raises(UsageError, match=f"option {option} names {sentence}"):
            Query(streams, **selection, **{option: json.dumps(document)}).run()
    Query(
        streams, stream="orders", **{option: json.dumps({"orders": {"1": position if "imestamp" in option else 0}})}
    ).run()
