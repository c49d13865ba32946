"""Configurations of Liftbridge for logs: segments roll, old records and old values are removed."""

from pathlib import Path

import bascule
import pytest

from tests.conformance.api import Api, values
from tests.conformance.samples import ALONE, LIMIT_S, imported, liftbridge, ours
from tests.waiting import until

VALUE = b"x" * 1000


def log_start(address: str) -> int:
    """The first offset of the stream `s`."""
    with bascule.connect(f"liftbridge://{address}") as client:
        (partition,) = client.describe_stream("s").partitions
    assert partition.log_start is not None
    return partition.log_start


def segments(directory: Path) -> int:
    """Segment files of the only partition."""
    return len(list((directory / "data" / "partitions").glob("*/*.seg")))


@pytest.mark.parametrize(
    "text",
    [
        "streams: {retention.max: {messages: 5}, segment.max: {bytes: 1}, cleaner.interval: 1s}",
        "streams.retention.max.messages: 5\nstreams.segment.max.bytes: 1\nstreams.cleaner.interval: 1000000000",
        'streams:\n  retention:\n    max:\n      messages: "5"\n  segment.max.bytes: 1\n  cleaner.interval: 1000ms',
        "STREAMS: {Retention: {Max.Messages: 5}, Segment.Max.Bytes: 1, Cleaner.Interval: '1s'}",
    ],
    ids=["mixed", "dots", "nested", "case"],
)
def test_every_spelling_of_retention_makes_streams_that_keep_the_last_five(tmp_path: Path, text: str) -> None:
    # 1. as the liftbridge command
    with liftbridge(tmp_path, f"{ALONE}{text}\n") as broker, Api(broker.address) as api:
        api.create("s")
        api.fill("s", 10)
        until(lambda: log_start(broker.address) == 5, LIMIT_S)
        assert values(api.read("s")) == [b"5", b"6", b"7", b"8", b"9"]
    # 2. imported
    shown = imported(tmp_path)
    assert shown["streams"]["cleaner_interval_ms"] == 1000
    with ours(tmp_path, {}) as broker, Api(broker.address) as api:
        api.publish("s", b"10")
        until(lambda: log_start(broker.address) == 6, LIMIT_S)
        assert values(api.read("s")) == [b"6", b"7", b"8", b"9", b"10"]


def test_retention_by_bytes_leaves_what_fits(tmp_path: Path) -> None:
    text = f"{ALONE}streams: {{retention.max.bytes: 1900, segment.max.bytes: 1, cleaner.interval: 1s}}\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("s")
        for _ in range(10):
            api.publish("s", VALUE)
        until(lambda: log_start(broker.address) == 9, LIMIT_S)


def test_retention_by_age_removes_what_is_old(tmp_path: Path) -> None:
    text = f"{ALONE}streams: {{retention.max.age: 1s, segment.max.bytes: 1, cleaner.interval: 1s}}\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("s")
        api.fill("s", 10)
        until(lambda: log_start(broker.address) >= 9, LIMIT_S)


def test_segments_roll_at_the_size_that_the_file_says(tmp_path: Path) -> None:
    with liftbridge(tmp_path, f"{ALONE}streams.segment.max.bytes: 4096\n") as broker, Api(broker.address) as api:
        api.create("s")
        for _ in range(20):
            api.publish("s", VALUE)
        assert 5 <= segments(tmp_path) <= 10


def test_segments_of_a_file_that_says_nothing_are_large(tmp_path: Path) -> None:
    with liftbridge(tmp_path, ALONE) as broker, Api(broker.address) as api:
        api.create("s")
        for _ in range(20):
            api.publish("s", VALUE)
        assert segments(tmp_path) == 1


def test_segments_roll_at_the_age_that_the_file_says(tmp_path: Path) -> None:
    text = f"{ALONE}streams: {{segment.max.age: 1s, cleaner.interval: 1s}}\n"
    with liftbridge(tmp_path, text) as broker, Api(broker.address) as api:
        api.create("s")
        until(lambda: api.publish("s", VALUE) >= 0 and segments(tmp_path) > 1, LIMIT_S)


def test_compaction_leaves_the_latest_value_of_each_key(tmp_path: Path) -> None:
    text = f"{ALONE}streams: {{compact: {{enabled: true, max.goroutines: 3}}, segment.max.bytes: 1, "
    with liftbridge(tmp_path, f"{text}cleaner.interval: 1s}}\n") as broker, Api(broker.address) as api:
        api.create("s")
        for number in range(20):
            api.publish("s", b"%d" % number, key=b"even" if number % 2 == 0 else b"odd")
        # The active segment is not compacted.
        until(lambda: len(api.read("s")) <= 3, LIMIT_S)
        found = api.read("s")
        assert {record.key: record.value for record in found} == {b"even": b"18", b"odd": b"19"}
        assert [record.offset for record in found][-2:] == [18, 19]
