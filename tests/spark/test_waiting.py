"""An idle query asks the broker once per long poll, whatever its options. Tests the reader without a JVM."""

import json
import threading
import time
from typing import Any

import pytest
from bascule.errors import BrokerError
from bascule.spark import stream
from bascule.spark.batch import RangesPartition
from bascule.spark.options import Limits, parse_options
from bascule.spark.stream import BasculeStreamReader
from bascule.spark.waiting import NEVER, missing_offsets, wait_ms, wake_offsets
from harness import Streams
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

SCHEMA = StructType([StructField("offset", LongType(), False), StructField("value", BinaryType(), True)])
LONG_POLL_MS = 150
POLLS = 6
FUTURE_MS = 4_000_000_000_000


class Query:
    """A query that asks as Spark does, with one reader per run."""

    def __init__(self, streams: Streams, **options: Any) -> None:
        given = {"address": streams.address, "longPollMs": LONG_POLL_MS, **options}
        self._options = parse_options({name: str(value) for name, value in given.items()})
        self._limit = ReadMinRows(1) if "minOffsetsPerTrigger" in options else ReadAllAvailable()
        self._streams = streams
        self.restart()
        self.end = json.dumps(self.reader.initialOffset())

    def restart(self) -> None:
        self.reader = BasculeStreamReader(self._options, SCHEMA)

    def next(self) -> bool:
        """Whether there is a further micro-batch."""
        end = json.dumps(self.reader.latestOffset(json.loads(self.end), self._limit))
        is_new, self.end = end != self.end, end
        return is_new

    def catch_up(self) -> None:
        while self.next():
            pass

    def marks(self, name: str) -> dict[str, Any]:
        return json.loads(self.end)["streams"].get(name, {})

    def idle_calls(self) -> tuple[int, float]:
        """Calls of the broker in `POLLS` calls of the reader that find nothing, and how long they took, in s."""
        self.catch_up()
        assert not self.next()
        before, began = self._count(), time.monotonic()
        assert not any(self.next() for _ in range(POLLS))
        return self._count() - before, time.monotonic() - began

    def _count(self) -> int:
        return sum(self._streams.calls().values())


@pytest.fixture
def grown(streams: Streams) -> Streams:
    """Two streams; the query has read their first 10 records when others arrive."""
    for name in ("s", "t"):
        streams.create(name, 2)
        streams.put(name, [b"a"] * 10)
    return streams


@pytest.mark.parametrize(
    "options",
    [
        {"stream": "s,t"},
        {"stream": "s", "minOffsetsPerTrigger": 1000},
        {"stream": "s,t", "minOffsetsPerTrigger": 1000, "maxTriggerDelay": "1h", "maxOffsetsPerTrigger": 5000},
        {"stream": "s", "endingOffsets": '{"s": {"0": 10, "1": 0}}'},
        {"stream": "s", "endingOffsets": '{"s": {"0": 4}}'},
        {"stream": "s,t", "endingTimestamp": FUTURE_MS},
        {"stream": "s,t", "endingTimestamp": 1000},
        {"stream": "s", "endingOffsetsByTimestamp": f'{{"s": {{"0": 1000, "1": {FUTURE_MS}}}}}'},
        {"stream": "s", "endingTimestamp": FUTURE_MS, "minOffsetsPerTrigger": 1000, "maxTriggerDelay": "1h"},
        {"assign": '{"s": [1]}', "maxBytesPerTrigger": "1MiB"},
        {"streamPattern": "[st]", "startingOffsets": "latest"},
        {"streamPattern": "none", "subject": "a.*"},
    ],
)
def test_an_idle_query_calls_the_broker_once_per_long_poll(grown: Streams, options: dict[str, Any]) -> None:
    query = Query(grown, **options)
    query.catch_up()
    if "minOffsetsPerTrigger" in options:
        grown.put("s", [b"too few"] * 30)
        grown.put("s", [b"too few"] * 30, 1)
    elif any(name.startswith("ending") for name in options) and options.get("endingTimestamp") != FUTURE_MS:
        grown.put("s", [b"after the end"])
    calls, took_s = query.idle_calls()
    assert calls <= POLLS
    assert took_s >= POLLS * LONG_POLL_MS / 1000 * 0.9


def test_a_query_that_waits_for_many_offsets_is_not_woken_by_every_record(grown: Streams) -> None:
    query = Query(grown, stream="s", minOffsetsPerTrigger=400, maxTriggerDelay="1h", longPollMs=60_000)
    query.catch_up()
    reached = threading.Event()
    calls = grown.calls()["DoAction"]

    def wait() -> None:
        while not query.next():
            pass
        reached.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    for count in range(399):
        grown.put("s", [b"b"], count % 2)
    assert not reached.wait(0.3)
    grown.put("s", [b"c"])
    assert reached.wait(30), "the query missed that there are enough records"
    waiting.join()
    # Halving what is missing, in two partitions, and the two calls of the micro-batch itself.
    assert grown.calls()["DoAction"] - calls <= 2 * 9 + 2


def test_the_delay_ends_the_wait_for_more_offsets(grown: Streams) -> None:
    query = Query(grown, stream="s", minOffsetsPerTrigger=1000, maxTriggerDelay="700ms", longPollMs=60_000)
    query.catch_up()
    grown.put("s", [b"b"])
    began = time.monotonic()
    while not query.next():
        assert time.monotonic() - began < 30
    assert query.marks("s")["0"]["next"] == 11
    # The delay is over: the query has waited long enough for the next record.
    time.sleep(0.8)
    grown.put("s", [b"c"])
    assert query.next()


def test_new_partitions_without_records_do_not_end_the_wait(grown: Streams) -> None:
    query = Query(grown, stream="s")
    query.catch_up()
    grown.create("s", 4)
    calls, took_s = query.idle_calls()
    assert calls <= POLLS
    assert took_s >= POLLS * LONG_POLL_MS / 1000 * 0.9
    grown.put("s", [b"a"], 3)
    assert query.next()
    assert {number: mark["next"] for number, mark in query.marks("s").items()} == {"0": 10, "1": 0, "2": 0, "3": 1}


def test_lost_records_of_an_idle_stream_are_passed_once(streams: Streams) -> None:
    """With onDataLoss=skip, when retention has removed everything that the query has not read."""
    streams.create("s", segment_bytes=1 << 16)
    query = Query(streams, stream="s", onDataLoss="skip")
    for _ in range(8):
        streams.put("s", [bytes(1000)] * 100)
    streams.set("s", retention_age_ms=1, segment_age_ms=1)
    deadline = time.monotonic() + 30
    while streams.position("s")[0] < streams.position("s")[1]:
        assert time.monotonic() < deadline, "retention has not removed all records"
        time.sleep(0.05)
    query.catch_up()
    assert query.marks("s")["0"]["next"] == streams.position("s")[1]
    calls, _ = query.idle_calls()
    assert calls <= POLLS


def test_a_partition_wakes_the_query_when_it_has_its_share_of_what_is_missing() -> None:
    ends = {("s", 0): 10, ("s", 1): 0, ("s", 2): 7}
    assert wake_offsets(ends, {("s", 2)}, 1) == {("s", 0): 10, ("s", 1): 0, ("s", 2): NEVER}
    assert wake_offsets(ends, {("s", 2)}, 101) == {("s", 0): 60, ("s", 1): 50, ("s", 2): NEVER}
    assert wake_offsets(ends, set(ends), 101) == dict.fromkeys(ends, NEVER)


def test_what_is_missing_and_how_long_to_wait() -> None:
    limits = Limits(min_offsets=100, max_delay_ms=1000)
    assert missing_offsets(limits, 40, 999.0) == 60
    assert missing_offsets(limits, 0, 1000.0) == 1
    assert missing_offsets(Limits(), 0, 0.0) == 1
    assert (wait_ms(limits, 500, 0.0), wait_ms(limits, 500, 899.5), wait_ms(limits, 500, 5000.0)) == (500, 101, 500)
    assert wait_ms(Limits(max_delay_ms=1000), 500, 899.5) == 500


def test_streams_that_match_later_are_read_from_their_first_record(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Created while the query runs and while it is stopped; the document has where they begin."""
    monkeypatch.setattr(stream, "DISCOVERY_S", 0.0)
    streams.create("s1")
    streams.put("s1", [b"old"] * 3)
    query = Query(streams, streamPattern="s[0-9]", startingOffsets="latest")
    query.catch_up()
    streams.create("s2")
    streams.create("t3")
    streams.put("s2", [b"a", b"b"])
    query.catch_up()
    assert {key: query.marks("s2")["0"][key] for key in ("first", "next")} == {"first": 0, "next": 2}
    streams.create("s4", segment_bytes=1 << 16)
    for _ in range(8):
        streams.put("s4", [bytes(1000)] * 100)
    streams.set("s4", retention_messages=250)
    deadline = time.monotonic() + 30
    while not streams.position("s4")[0]:
        assert time.monotonic() < deadline, "retention removed nothing"
        time.sleep(0.05)
    query.restart()
    before = query.end
    query.catch_up()
    log_start = streams.position("s4")[0]
    assert query.marks("s4")["0"]["first"] == log_start
    assert json.loads(query.end)["streams"].keys() == {"s1", "s2", "s4"}
    # A micro-batch that is run again has the same range, whatever retention did since.
    streams.set("s4", retention_messages=120)
    while streams.position("s4")[0] == log_start:
        assert time.monotonic() < deadline, "retention removed nothing"
        time.sleep(0.05)
    query.restart()
    (task,) = query.reader.partitions(json.loads(before), json.loads(query.end))
    assert isinstance(task, RangesPartition)
    assert [(each.stream, each.start, each.end) for each in task.ranges] == [("s4", log_start, 800)]


def test_records_of_a_new_stream_that_retention_removes_first_are_noticed(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "DISCOVERY_S", 0.0)
    query = Query(streams, streamPattern="s")
    streams.create("s", segment_bytes=1 << 16)
    query.catch_up()
    for _ in range(8):
        streams.put("s", [bytes(1000)] * 100)
    streams.set("s", retention_messages=250)
    deadline = time.monotonic() + 30
    while not streams.position("s")[0]:
        assert time.monotonic() < deadline, "retention removed nothing"
        time.sleep(0.05)
    with pytest.raises(BrokerError, match="offset 0 is below the log start offset"):
        query.catch_up()
