"""Subscribe at the edges of a log (liftbridge §3.5): trimmed, compacted, empty, paused; stops at every edge."""

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest
from bascule.testing import TestBroker, broker

from tests.conformance.api import (
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
)
from tests.waiting import until

STOPPED = "RESOURCE_EXHAUSTED Stop offset reached"
DOWN_TO_THE_OLDEST = "RESOURCE_EXHAUSTED EOF"
COUNT = 20
TRIMMED = 7


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


def in_one_batch(api: Api, stream: str, count: int = COUNT) -> None:
    """Publish so that the records are in few batches, and an edge may be inside a batch."""
    requests = ({"stream": stream, "value": b"%d" % index, "correlationId": str(index)} for index in range(count))
    assert len(api.publish_async(requests)) == count


@pytest.fixture
def trimmed(running: TestBroker, api: Api, stream: str) -> Api:
    """A stream with the records 7 to 19, after a trim."""
    api.create(stream)
    in_one_batch(api, stream)
    with running.connect() as client:
        assert client.trim_partition(stream, 0, TRIMMED) == (0, TRIMMED)
    until(lambda: api.subscribe(stream).next().offset == TRIMMED)
    return api


def down(api: Api, stream: str, **fields: Any) -> tuple[list[int], str]:
    """Offsets read in reverse, and the final status."""
    found, end = api.subscribe(stream, reverse=True, **{"startPosition": LATEST, **fields}).rest()
    return [item.offset for item in found], str(end)


def up(api: Api, stream: str, **fields: Any) -> tuple[list[int], str]:
    """Offsets read forward, and the final status."""
    found, end = api.subscribe(stream, **fields).rest()
    return [item.offset for item in found], str(end)


def test_reverse_ends_where_the_log_was_trimmed(trimmed: Api, stream: str) -> None:
    kept = list(range(COUNT - 1, TRIMMED - 1, -1))
    assert down(trimmed, stream) == (kept, DOWN_TO_THE_OLDEST)
    assert down(trimmed, stream, startPosition=OFFSET, startOffset=9) == ([9, 8, 7], DOWN_TO_THE_OLDEST)
    assert down(trimmed, stream, startPosition=OFFSET, startOffset=TRIMMED) == ([7], DOWN_TO_THE_OLDEST)
    for below in (0, 3, TRIMMED - 1, -5):
        fields = {"startPosition": OFFSET, "startOffset": below}
        assert down(trimmed, stream, **fields) == ([7], DOWN_TO_THE_OLDEST), "it begins at the oldest"
    for stop in (0, 3, TRIMMED):
        assert down(trimmed, stream, stopPosition=STOP_OFFSET, stopOffset=stop) == (kept, STOPPED)
    assert down(trimmed, stream, stopPosition=STOP_OFFSET, stopOffset=COUNT - 1) == ([COUNT - 1], STOPPED)
    assert down(trimmed, stream, stopPosition=STOP_LATEST) == ([COUNT - 1], STOPPED)


def test_records_trimmed_during_a_reverse_read_are_not_delivered(running: TestBroker, api: Api, stream: str) -> None:
    api.create(stream, segmentMaxBytes={"value": 64_000})
    requests = ({"stream": stream, "value": b"x" * 500, "correlationId": str(index)} for index in range(4_000))
    assert len(api.publish_async(requests)) == 4_000
    reading = api.subscribe(stream, startPosition=LATEST, reverse=True)
    first = [item.offset for item in reading.take(10)]
    with running.connect() as client:
        client.trim_partition(stream, 0, 3_995)
    rest, end = reading.rest()
    found = [*first, *(item.offset for item in rest)]
    assert found == list(range(3_999, 3_999 - len(found), -1)), "in order and without gaps"
    assert str(end) == DOWN_TO_THE_OLDEST
    assert down(api, stream)[0] == [3_999, 3_998, 3_997, 3_996, 3_995]


def test_a_completely_trimmed_log_has_no_records_in_reverse(running: TestBroker, api: Api, stream: str) -> None:
    api.create(stream)
    in_one_batch(api, stream, 5)
    with running.connect() as client:
        client.trim_partition(stream, 0, 5)
    nothing = failed("INTERNAL", "Failed to create stream reader: segment not found")
    with pytest.raises(Failed, check=nothing):
        api.subscribe(stream, startPosition=LATEST, reverse=True)
    with pytest.raises(Failed, check=failed("RESOURCE_EXHAUSTED", "Stream is empty")):
        api.subscribe(stream, stopPosition=STOP_LATEST)
    reading = api.subscribe(stream, startPosition=EARLIEST)
    assert api.publish(stream) == 5, "offsets are not used again"
    assert reading.next().offset == 5


def test_forward_begins_and_stops_at_the_edges_of_a_trimmed_log(trimmed: Api, stream: str) -> None:
    for start in (-3, 0, TRIMMED - 1, TRIMMED):
        fields = {"startPosition": OFFSET, "startOffset": start, "stopPosition": STOP_OFFSET}
        assert up(trimmed, stream, **fields, stopOffset=TRIMMED) == ([TRIMMED], STOPPED)
    for stop in (0, 3, TRIMMED - 1):
        fields = {"startPosition": OFFSET, "stopPosition": STOP_OFFSET, "stopOffset": stop}
        assert up(trimmed, stream, **fields) == ([], STOPPED), "the whole range was removed"
    newest = {"startPosition": LATEST, "stopPosition": STOP_OFFSET, "stopOffset": COUNT - 1}
    assert up(trimmed, stream, **newest) == ([COUNT - 1], STOPPED)
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "Stop offset is before start offset: 18 < 19")):
        trimmed.subscribe(stream, startPosition=LATEST, stopPosition=STOP_OFFSET, stopOffset=COUNT - 2)
    early = failed("INVALID_ARGUMENT", f"Stop offset is before start offset: {TRIMMED - 1} < {TRIMMED}")
    with pytest.raises(Failed, check=early):
        trimmed.subscribe(stream, startPosition=EARLIEST, stopPosition=STOP_OFFSET, stopOffset=TRIMMED - 1)


def test_times_stop_at_the_last_record_at_or_before_them(api: Api, stream: str) -> None:
    api.create(stream)
    for index in range(5):
        api.publish(stream, b"%d" % index)
        time.sleep(0.002)
    times = [item.timestamp for item in api.read(stream)]
    assert all(before < after for before, after in itertools.pairwise(times))
    for index, stop in itertools.product(range(5), (0, 1)):
        found = up(api, stream, stopPosition=STOP_TIMESTAMP, stopTimestamp=times[index] + stop)
        assert found == (list(range(index + 1)), STOPPED)
    everything = up(api, stream, stopPosition=STOP_TIMESTAMP, stopTimestamp=(1 << 63) - 1)
    assert everything == ([0, 1, 2, 3, 4], STOPPED)
    same = {"startPosition": TIMESTAMP, "startTimestamp": times[2]}
    assert up(api, stream, **same, stopPosition=STOP_TIMESTAMP, stopTimestamp=times[2]) == ([2], STOPPED)
    down_to = {"startPosition": TIMESTAMP, "startTimestamp": times[3]}
    assert down(api, stream, **down_to, stopPosition=STOP_TIMESTAMP, stopTimestamp=times[1]) == ([3, 2, 1], STOPPED)
    with pytest.raises(Failed) as refusal:
        api.subscribe(stream, stopPosition=STOP_TIMESTAMP, stopTimestamp=times[0] - 1)
    assert refusal.value.text.endswith("timestamp is before the beginning of the log")
    unset = {"startTimestamp": -(1 << 63), "stopTimestamp": -(1 << 63), "startOffset": -9, "stopOffset": -9}
    assert up(api, stream, **unset, stopPosition=STOP_LATEST) == ([0, 1, 2, 3, 4], STOPPED), "the flag is not set"


def test_a_stop_in_a_hole_of_a_compacted_log_ends_the_reading() -> None:
    settings = {"streams.cleaner_interval_ms": 50, "streams.retention_min_age_ms": 0}
    with broker(settings=settings) as running, Api(running.address) as api:
        api.create("s", compactEnabled={"value": True}, segmentMaxBytes={"value": 1})
        for key in (b"z", b"a", b"b", b"b", b"a", b"c", b"d"):
            api.publish("s", key=key)
        until(lambda: [item.offset for item in api.read("s")] == [0, 3, 4, 5, 6])
        for stop, offsets in ((0, [0]), (1, [0]), (2, [0]), (3, [0, 3])):
            fields = {"startPosition": OFFSET, "stopPosition": STOP_OFFSET, "stopOffset": stop}
            assert up(api, "s", **fields) == (offsets, STOPPED)
        hole = {"startPosition": OFFSET, "startOffset": 1}
        assert up(api, "s", **hole, stopPosition=STOP_OFFSET, stopOffset=2) == ([], STOPPED), (
            "the whole range was removed"
        )
        assert up(api, "s", **hole, stopPosition=STOP_OFFSET, stopOffset=3) == ([3], STOPPED)
        assert down(api, "s") == ([6, 5, 4, 3, 0], DOWN_TO_THE_OLDEST)
        for start, offsets in ((3, [3, 0]), (2, [0]), (1, [0]), (0, [0])):
            assert down(api, "s", startPosition=OFFSET, startOffset=start) == (offsets, DOWN_TO_THE_OLDEST)
        for stop in (1, 2):
            assert down(api, "s", stopPosition=STOP_OFFSET, stopOffset=stop) == ([6, 5, 4, 3], STOPPED)


def test_a_read_only_partition_ends_at_its_newest_record(trimmed: Api, stream: str) -> None:
    trimmed.call("SetStreamReadonly", name=stream, readonly=True)
    assert up(trimmed, stream) == (list(range(TRIMMED, COUNT)), STOPPED)
    assert up(trimmed, stream, startPosition=LATEST) == ([COUNT - 1], STOPPED)
    assert down(trimmed, stream)[0][:2] == [COUNT - 1, COUNT - 2]
    for start, offset in ((NEW_ONLY, 0), (OFFSET, COUNT)):
        beyond = failed("INVALID_ARGUMENT", f"Stop offset is before start offset: {COUNT - 1} < {COUNT}")
        with pytest.raises(Failed, check=beyond):
            trimmed.subscribe(stream, startPosition=start, startOffset=offset)


def test_a_completely_trimmed_read_only_partition_ends_at_once(running: TestBroker, api: Api, stream: str) -> None:
    api.create(stream)
    in_one_batch(api, stream, 5)
    with running.connect() as client:
        client.trim_partition(stream, 0, 5)
    api.call("SetStreamReadonly", name=stream, readonly=True)
    for position in (EARLIEST, NEW_ONLY):
        assert up(api, stream, startPosition=position) == ([], "RESOURCE_EXHAUSTED End of readonly partition")


def test_resume_opens_one_partition_or_all_and_does_not_affect_open_ones(api: Api, stream: str) -> None:
    api.create(stream, partitions=3)
    api.publish(stream, b"x")

    def paused() -> list[bool]:
        shown = api.stream(stream).partitions
        return [shown[number].paused for number in range(3)]

    live = api.subscribe(stream)
    assert live.next().value == b"x"
    api.subscribe(stream, resume=True).cancel()
    api.publish(stream, b"y")
    assert live.next().value == b"y", "it was not paused"
    closed = failed("FAILED_PRECONDITION", "commit log was closed")
    api.call("PauseStream", name=stream)
    for position in (EARLIEST, LATEST, NEW_ONLY, OFFSET, TIMESTAMP):
        with pytest.raises(Failed, check=closed):
            api.subscribe(stream, startPosition=position)
    with pytest.raises(Failed, check=closed):
        api.subscribe(stream, startPosition=LATEST, reverse=True)
    reading = api.subscribe(stream, startPosition=LATEST, reverse=True, resume=True)
    assert reading.next().value == b"y"
    assert paused() == [False, True, True]
    api.call("PauseStream", name=stream, resumeAll=True)
    assert api.subscribe(stream, resume=True).next().value == b"x"
    assert paused() == [False, False, False]
    for number in (-1, 3):
        with pytest.raises(Failed, check=failed("NOT_FOUND", "No such partition")):
            api.subscribe(stream, partition=number, resume=True)


def test_a_replica_flag_on_the_leader_changes_nothing(api: Api, stream: str) -> None:
    api.create(stream)
    in_one_batch(api, stream, 5)
    assert up(api, stream, readISRReplica=True, stopPosition=STOP_LATEST) == ([0, 1, 2, 3, 4], STOPPED)
    assert down(api, stream, readISRReplica=True) == ([4, 3, 2, 1, 0], DOWN_TO_THE_OLDEST)
    member = {"groupId": "g", "consumerId": "a", "groupEpoch": 1}
    assert api.subscribe(stream, readISRReplica=True, consumer=member).next().offset == 0


def test_the_three_times_of_a_partition_over_a_kill() -> None:
    with broker(durability="disk") as running:
        with Api(running.address) as api:
            api.create("s")
            began = time.time_ns()
            api.publish("s")
            api.call("SetStreamReadonly", name="s", readonly=True)
            api.call("SetStreamReadonly", name="s", readonly=False)
            api.call("PauseStream", name="s")
            api.publish("s")
            before = api.partition("s")
        running.kill()
        running.start()
        with Api(running.address) as api:
            after = api.partition("s")
            assert (after.messagesReceivedTimestamps.firstTimestamp, after.highWatermark) == (0, 1), "times of this run"
            api.publish("s")
            last = api.partition("s").messagesReceivedTimestamps
    for times in (before.messagesReceivedTimestamps, before.pauseTimestamps, before.readonlyTimestamps):
        assert began <= times.firstTimestamp < times.latestTimestamp <= time.time_ns()
    assert (after.pauseTimestamps, after.readonlyTimestamps) == (before.pauseTimestamps, before.readonlyTimestamps)
    assert last.firstTimestamp == last.latestTimestamp > before.messagesReceivedTimestamps.latestTimestamp
