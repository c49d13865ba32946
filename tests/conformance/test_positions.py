"""Subscribe: every start and stop position, reverse reading, replicas (liftbridge §3.5)."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from bascule.testing import TestBroker, broker

from tests.conformance.api import (
    ALL,
    EARLIEST,
    LATEST,
    NEW_ONLY,
    OFFSET,
    STOP_LATEST,
    STOP_OFFSET,
    STOP_TIMESTAMP,
    TIMESTAMP,
    Api,
    Failed,
    failed,
    values,
)

STOPPED = "RESOURCE_EXHAUSTED Stop offset reached"


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


@pytest.fixture
def filled(api: Api, stream: str) -> Api:
    """Five records, `0` to `4`, with different times."""
    api.create(stream)
    for index in range(5):
        api.publish(stream, b"%d" % index)
        time.sleep(0.002)
    return api


def offsets(found: list[Any]) -> list[int]:
    return [item.offset for item in found]


def test_earliest_latest_and_new_only(filled: Api, stream: str) -> None:
    assert offsets(filled.read(stream, startPosition=EARLIEST)) == [0, 1, 2, 3, 4]
    assert offsets(filled.read(stream, startPosition=LATEST)) == [4]
    new = filled.subscribe(stream, startPosition=NEW_ONLY)
    filled.publish(stream, b"new")
    assert (new.next().value, filled.partition(stream).newestOffset) == (b"new", 5)


def test_an_offset_beyond_the_end_means_the_next_record(filled: Api, stream: str) -> None:
    reading = filled.subscribe(stream, startPosition=OFFSET, startOffset=100)
    filled.publish(stream)
    assert reading.next().offset == 5


def test_an_offset_beyond_the_end_of_an_empty_stream_means_the_first_record(api: Api, stream: str) -> None:
    api.create(stream)
    reading = api.subscribe(stream, startPosition=OFFSET, startOffset=100)
    api.publish(stream)
    assert reading.next().offset == 0


def test_a_negative_offset_is_the_beginning(filled: Api, stream: str) -> None:
    assert offsets(filled.read(stream, startPosition=OFFSET, startOffset=-7)) == [0, 1, 2, 3, 4]


def test_a_time_means_the_first_record_at_or_after_it(filled: Api, stream: str) -> None:
    times = [item.timestamp for item in filled.read(stream)]
    for index in range(5):
        for start in (times[index], times[index] - 1):
            found = filled.read(stream, startPosition=TIMESTAMP, startTimestamp=start)
            assert offsets(found) == list(range(index, 5))
    late = filled.subscribe(stream, startPosition=TIMESTAMP, startTimestamp=times[4] + 1)
    filled.publish(stream)
    assert late.next().offset == 5


def test_two_times_enclose_exactly_the_records_between_them(api: Api, stream: str) -> None:
    api.create(stream)
    times = [api.call("Publish", stream=stream, ackPolicy=ALL).ack.receptionTimestamp for _ in range(10)]
    reading = api.subscribe(
        stream,
        startPosition=TIMESTAMP,
        startTimestamp=times[3],
        stopPosition=STOP_TIMESTAMP,
        stopTimestamp=times[6],
    )
    found, end = reading.rest()
    assert offsets(found) == [index for index in range(10) if times[3] <= times[index] <= times[6]]
    assert str(end) == STOPPED


def test_stop_positions(filled: Api, stream: str) -> None:
    found, end = filled.subscribe(stream, stopPosition=STOP_OFFSET, stopOffset=2).rest()
    assert (offsets(found), str(end)) == ([0, 1, 2], STOPPED)
    waiting = filled.subscribe(stream, stopPosition=STOP_OFFSET, stopOffset=6)
    assert offsets(waiting.take(5)) == [0, 1, 2, 3, 4]
    filled.fill(stream, 3)
    found, end = waiting.rest()
    assert (offsets(found), str(end)) == ([5, 6], STOPPED)
    never = filled.subscribe(stream, stopPosition=STOP_OFFSET, stopOffset=-1)
    assert offsets(never.take(8)) == list(range(8))


def test_invalid_stops_are_rejected(api: Api, stream: str) -> None:
    api.create(stream)
    with pytest.raises(Failed, check=failed("RESOURCE_EXHAUSTED", "Stream is empty")):
        api.subscribe(stream, stopPosition=STOP_LATEST)
    with pytest.raises(Failed) as refusal:
        api.subscribe(stream, stopPosition=STOP_TIMESTAMP, stopTimestamp=5)
    assert str(refusal.value).startswith("INTERNAL Failed to lookup offset for timestamp: ")
    api.fill(stream, 3)
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "Stop offset is before start offset: 2 < 3")):
        api.subscribe(stream, startPosition=NEW_ONLY, stopPosition=STOP_LATEST)
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "Stop offset is before start offset: 0 < 2")):
        api.subscribe(stream, startPosition=OFFSET, startOffset=2, stopPosition=STOP_OFFSET)
    with pytest.raises(Failed) as refusal:
        api.subscribe(stream, stopPosition=STOP_TIMESTAMP, stopTimestamp=5)
    assert str(refusal.value).startswith("INTERNAL Failed to lookup offset for timestamp: ")
    assert refusal.value.text.endswith("timestamp is before the beginning of the log")
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "Unknown StartPosition 17")):
        api.subscribe(stream, startPosition=17)
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "Unknown StopPosition 17")):
        api.subscribe(stream, stopPosition=17)


def test_unknown_streams_and_partitions_have_no_subscription(api: Api, stream: str) -> None:
    api.create(stream)
    for name, partition in ((stream, 1), (stream, -1), ("nothing", 0), ("", 0)):
        with pytest.raises(Failed, check=failed("NOT_FOUND", "No such partition")):
            api.subscribe(name, partition=partition)


def test_deleting_a_stream_ends_its_subscriptions(filled: Api, stream: str) -> None:
    reading = filled.subscribe(stream)
    assert len(reading.take(5)) == 5
    filled.call("DeleteStream", name=stream)
    found, end = reading.rest()
    assert (found, str(end)) == ([], "NOT_FOUND commit log was deleted")


def test_a_member_of_the_isr_serves_readers_of_replicas(filled: Api, stream: str) -> None:
    assert offsets(filled.read(stream, readISRReplica=True)) == [0, 1, 2, 3, 4]


def test_reverse_reads_down_to_the_oldest(filled: Api, stream: str) -> None:
    found, end = filled.subscribe(stream, startPosition=LATEST, reverse=True).rest()
    assert values(found) == [b"4", b"3", b"2", b"1", b"0"]
    assert end is not None
    assert end.code.name == "RESOURCE_EXHAUSTED"
    for start in (NEW_ONLY, LATEST):
        assert offsets(filled.subscribe(stream, startPosition=start, reverse=True).take(2)) == [4, 3]
    found, _ = filled.subscribe(stream, startPosition=OFFSET, startOffset=2, reverse=True).rest()
    assert offsets(found) == [2, 1, 0]
    found, _ = filled.subscribe(stream, startPosition=OFFSET, startOffset=99, reverse=True).rest()
    assert offsets(found) == [4, 3, 2, 1, 0]


def test_reverse_takes_a_stop_as_the_lower_bound(filled: Api, stream: str) -> None:
    reading = filled.subscribe(
        stream, startPosition=OFFSET, startOffset=3, stopPosition=STOP_OFFSET, stopOffset=1, reverse=True
    )
    found, end = reading.rest()
    assert (offsets(found), str(end)) == ([3, 2, 1], STOPPED)
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "Stop offset is after start offset: 4 > 1")):
        filled.subscribe(stream, startPosition=OFFSET, startOffset=1, stopPosition=STOP_LATEST, reverse=True)


def test_reverse_on_an_empty_log_fails(api: Api, stream: str) -> None:
    api.create(stream)
    nothing = failed("INTERNAL", "Failed to create stream reader: segment not found")
    with pytest.raises(Failed, check=nothing):
        api.subscribe(stream, startPosition=LATEST, reverse=True)


def test_reverse_is_the_exact_mirror_over_many_batches_and_segments(api: Api, stream: str) -> None:
    api.create(stream, segmentMaxBytes={"value": 64_000})
    requests = (
        {"stream": stream, "value": b"%d" % index + b"x" * (index % 900), "correlationId": str(index)}
        for index in range(5_000)
    )
    assert len(api.publish_async(requests)) == 5_000
    forward = api.read(stream)
    assert len(forward) == 5_000
    backward, _ = api.subscribe(stream, startPosition=LATEST, reverse=True).rest()
    assert backward == forward[::-1]


@pytest.mark.parametrize("start", [OFFSET, LATEST, NEW_ONLY])
def test_records_published_without_ack_count_for_the_start(start: int) -> None:
    with broker(durability="disk") as running, Api(running.address) as api:
        api.create("s")
        for index in range(60):
            api.call("Publish", timeout=None, stream="s", value=b"first")
            api.call("Publish", timeout=None, stream="s", value=b"second")
            reading = api.subscribe("s", startPosition=start, startOffset=3 * index + 1)
            api.call("Publish", timeout=None, stream="s", value=b"third")
            expected = b"third" if start == NEW_ONLY else b"second"
            assert (reading.next().value, index) == (expected, index)
            reading.cancel()


def test_records_published_without_ack_are_read_in_reverse_and_by_time() -> None:
    with broker(durability="disk") as running, Api(running.address) as api:
        api.create("s")
        for index in range(60):
            began = time.time_ns()
            api.call("Publish", timeout=None, stream="s", value=b"%d" % index)
            reading = api.subscribe("s", startPosition=LATEST, reverse=True)
            assert reading.next().value == b"%d" % index
            reading.cancel()
            api.call("Publish", timeout=None, stream="s", value=b"later")
            by_time = api.subscribe("s", startPosition=TIMESTAMP, startTimestamp=began)
            assert by_time.next().value == b"%d" % index
            by_time.cancel()
