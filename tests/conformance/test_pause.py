"""PauseStream and auto-pause (liftbridge §3.3), SetStreamReadonly (liftbridge §3.4)."""

import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from bascule.testing import TestBroker, broker

from tests.conformance.api import EARLIEST, NONE, OFFSET, READONLY, STOP_LATEST, Api, Failed, failed, values
from tests.waiting import until


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


def paused(api: Api, stream: str) -> list[bool]:
    partitions = api.stream(stream).partitions
    return [partitions[index].paused for index in range(len(partitions))]


def test_metadata_shows_paused_partitions_and_a_publish_resumes_one(api: Api, stream: str) -> None:
    api.create(stream, partitions=3)
    api.publish(stream, b"before", partition=1)
    api.call("PauseStream", name=stream, partitions=[1, 2])
    assert paused(api, stream) == [False, True, True]
    assert api.publish(stream, b"after", partition=1) == 1
    assert paused(api, stream) == [False, False, True]
    assert values(api.read(stream, partition=1)) == [b"before", b"after"]


def test_flight_counts_no_records_of_a_stream_that_is_paused(api: Api, running: TestBroker, stream: str) -> None:
    api.create(stream, partitions=2)
    for partition in (0, 1):
        api.fill(stream, 5, partition=partition)
    with fl.FlightClient(f"grpc://{running.address}") as client:

        def listed() -> tuple[int, int]:
            (info,) = client.list_flights(stream.encode())
            return info.total_records, len(info.endpoints)

        assert listed() == (10, 2)
        api.call("PauseStream", name=stream, partitions=[1])
        assert listed() == (-1, 1), "reported as unknown"
        with pytest.raises(pa.ArrowInvalid, match=r"1 is paused: publish to it, or resume it with"):
            client.get_flight_info(fl.FlightDescriptor.for_path(stream))


def test_resume_all_resumes_the_whole_stream_once(api: Api, stream: str) -> None:
    api.create(stream, partitions=3)
    api.call("PauseStream", name=stream, resumeAll=True)
    assert paused(api, stream) == [True, True, True]
    (answer,) = api.publish_async([{"stream": stream, "value": b"x", "partition": 2, "correlationId": "c"}])
    assert (answer.correlationId, answer.ack.offset) == ("c", 0)
    assert paused(api, stream) == [False, False, False]
    api.call("PauseStream", name=stream, resumeAll=False)
    api.publish(stream, partition=0)
    assert paused(api, stream) == [False, True, True]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_resume_all_is_triggered_by_a_publish_to_an_open_partition(api: Api, stream: str, asynchronous: bool) -> None:
    api.create(stream, partitions=3)
    api.call("PauseStream", name=stream, partitions=[0, 2], resumeAll=True)
    assert paused(api, stream) == [True, False, True]
    if asynchronous:
        (answer,) = api.publish_async([{"stream": stream, "value": b"x", "partition": 1, "correlationId": "c"}])
        assert answer.ack.offset == 0
    else:
        assert api.publish(stream, b"x", partition=1) == 0
    assert paused(api, stream) == [False, False, False]
    api.call("PauseStream", name=stream, partitions=[0], resumeAll=False)
    assert api.publish(stream, b"y", partition=1) == 1
    assert paused(api, stream) == [True, False, False], "the flag was cleared by the first publish"


def test_publishing_with_policy_none_resumes_too(api: Api, stream: str) -> None:
    api.create(stream)
    api.call("PauseStream", name=stream)
    api.publish(stream, b"x", ackPolicy=NONE)
    assert paused(api, stream) == [False]
    until(lambda: api.partition(stream).newestOffset == 0)


def test_a_live_subscription_ends_and_the_paused_partition_is_not_led(api: Api, stream: str) -> None:
    api.create(stream)
    api.fill(stream, 3)
    reading = api.subscribe(stream)
    assert len(reading.take(3)) == 3
    api.call("PauseStream", name=stream)
    found, end = reading.rest()
    assert not found
    assert str(end) == "FAILED_PRECONDITION commit log was closed"
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", "commit log was closed")):
        api.subscribe(stream)
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", "The request should be sent to partition leader")):
        api.partition(stream)
    (here,) = api.call("FetchMetadata").brokers
    api.call("PauseStream", name=stream)
    assert api.call("FetchMetadata").brokers[0].leaderCount == here.leaderCount


def test_subscribing_with_resume_resumes_the_partition(api: Api, stream: str) -> None:
    api.create(stream)
    api.fill(stream, 3)
    api.call("PauseStream", name=stream)
    assert values(api.read(stream, resume=True)) == [b"0", b"1", b"2"]
    assert paused(api, stream) == [False]


def test_pausing_moves_the_timestamps_and_pausing_again_too(api: Api, stream: str) -> None:
    api.create(stream)
    api.publish(stream)
    before = api.partition(stream)
    assert (before.pauseTimestamps.firstTimestamp, before.pauseTimestamps.latestTimestamp) == (0, 0)
    api.call("PauseStream", name=stream)
    once = api.stream(stream).partitions[0].pauseTimestamps
    api.call("PauseStream", name=stream)
    twice = api.stream(stream).partitions[0].pauseTimestamps
    api.publish(stream)
    resumed = api.partition(stream)
    assert 0 < once.firstTimestamp == once.latestTimestamp == twice.firstTimestamp
    assert once.latestTimestamp < twice.latestTimestamp < resumed.pauseTimestamps.latestTimestamp
    first = before.messagesReceivedTimestamps.firstTimestamp
    assert resumed.messagesReceivedTimestamps.firstTimestamp == first, "pausing keeps the receive times"


@pytest.mark.parametrize("method", ["PauseStream", "SetStreamReadonly"])
def test_unknown_streams_and_partitions_are_refused_with_exact_texts(api: Api, stream: str, method: str) -> None:
    with pytest.raises(Failed, check=failed("NOT_FOUND", "stream not found")):
        api.call(method, name="nothing")
    with pytest.raises(Failed, check=failed("NOT_FOUND", "stream does not exist")):
        api.call(method, name="nothing", partitions=[0])
    api.create(stream, partitions=2)
    for number in (2, -1):
        with pytest.raises(Failed, check=failed("NOT_FOUND", "partition does not exist")):
            api.call(method, name=stream, partitions=[0, number])
    assert paused(api, stream) == [False, False]


def test_readonly_refuses_publishes_and_ends_reading_at_the_end(api: Api, stream: str) -> None:
    api.create(stream, partitions=2)
    api.fill(stream, 3)
    waiting = api.subscribe(stream)
    assert values(waiting.take(3)) == [b"0", b"1", b"2"]
    api.call("SetStreamReadonly", name=stream, partitions=[0], readonly=True)
    found, end = waiting.rest()
    assert (found, str(end)) == ([], "RESOURCE_EXHAUSTED End of readonly partition")
    with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", "readonly partition: 0")):
        api.publish(stream)
    (answer,) = api.publish_async([{"stream": stream, "ackPolicy": NONE, "correlationId": "c"}])
    refusal = (answer.asyncError.code, answer.asyncError.message, answer.correlationId)
    assert refusal == (READONLY, "readonly partition: 0", "c")
    assert api.publish(stream, partition=1) == 0
    found, end = api.subscribe(stream).rest()
    assert values(found) == [b"0", b"1", b"2"]
    assert str(end) == "RESOURCE_EXHAUSTED Stop offset reached"
    api.call("SetStreamReadonly", name=stream, readonly=False)
    assert api.publish(stream) == 3


def test_an_empty_readonly_partition_gives_the_handshake_and_ends(api: Api, stream: str) -> None:
    api.create(stream)
    api.call("SetStreamReadonly", name=stream, readonly=True)
    found, end = api.subscribe(stream).rest()
    assert (found, str(end)) == ([], "RESOURCE_EXHAUSTED End of readonly partition")
    with pytest.raises(Failed, check=failed("RESOURCE_EXHAUSTED", "Stream is empty")):
        api.subscribe(stream, stopPosition=STOP_LATEST)


def test_readonly_shows_and_its_timestamps_move(api: Api, stream: str) -> None:
    api.create(stream)
    assert api.partition(stream).readonlyTimestamps.firstTimestamp == 0
    api.call("SetStreamReadonly", name=stream, readonly=True)
    on = api.partition(stream)
    api.call("SetStreamReadonly", name=stream, readonly=False)
    off = api.partition(stream)
    assert (on.readonly, off.readonly) == (True, False)
    assert 0 < on.readonlyTimestamps.firstTimestamp == off.readonlyTimestamps.firstTimestamp
    assert on.readonlyTimestamps.latestTimestamp < off.readonlyTimestamps.latestTimestamp


def test_readonly_and_paused_survive_restarts_kills_and_each_other() -> None:
    with broker(durability="disk") as running:
        with Api(running.address) as api:
            api.create("s", partitions=2)
            api.fill("s", 2)
            api.call("SetStreamReadonly", name="s", partitions=[0], readonly=True)
            api.call("PauseStream", name="s", resumeAll=True)
            before = api.stream("s")
        running.kill()
        running.start()
        with Api(running.address) as api:
            after = api.stream("s")
            assert [after.partitions[index].paused for index in (0, 1)] == [True, True]
            assert after.partitions[0].pauseTimestamps == before.partitions[0].pauseTimestamps
            with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", "readonly partition: 0")):
                api.publish("s")
            api.publish("s", partition=1)
            assert [api.stream("s").partitions[index].paused for index in (0, 1)] == [False, False], "resume-all holds"
            with pytest.raises(Failed, check=failed("FAILED_PRECONDITION", "readonly partition: 0")):
                api.publish("s")
            assert len(api.subscribe("s", startPosition=OFFSET).rest()[0]) == 2


def test_deleting_a_paused_stream_removes_it(api: Api, stream: str) -> None:
    api.create(stream)
    api.fill(stream, 2)
    api.call("PauseStream", name=stream)
    api.call("DeleteStream", name=stream)
    api.create(stream)
    assert api.publish(stream) == 0
    assert len(api.read(stream, startPosition=EARLIEST)) == 1


def test_an_idle_partition_is_paused_automatically_and_a_used_one_is_not(api: Api, stream: str) -> None:
    idle_s = 2.0
    api.create(stream, partitions=2, autoPauseTime={"value": int(idle_s * 1000)})
    longest_s = 0.0
    last = time.monotonic()
    while not (shown := paused(api, stream))[0]:
        api.publish(stream, partition=1)
        longest_s, last = max(longest_s, time.monotonic() - last), time.monotonic()
        time.sleep(0.02)
    assert not shown[1] or longest_s > idle_s / 2, "a partition in use was paused"
    until(lambda: paused(api, stream) == [True, True])
    api.publish(stream, partition=0)
    assert paused(api, stream)[1], "resume-all is off"
    until(lambda: paused(api, stream) == [True, True])


def test_subscribers_prevent_auto_pause_if_configured(api: Api, stream: str) -> None:
    api.create(stream, autoPauseTime={"value": 1_000}, autoPauseDisableIfSubscribers={"value": True})
    reading = api.subscribe(stream, resume=True)
    time.sleep(2.5)  # longer than the pause time
    assert paused(api, stream) == [False]
    api.publish(stream)
    reading.next()
    reading.cancel()
    until(lambda: paused(api, stream) == [True])
    other = f"{stream}-2"
    api.create(other, autoPauseTime={"value": 1_000}, autoPauseDisableIfSubscribers={"value": False})
    found, end = api.subscribe(other, resume=True).rest()
    assert (found, str(end)) == ([], "FAILED_PRECONDITION commit log was closed")


AGAIN = "failed to resume stream: partition 0 is paused again and again"
"""Errors of a publish that met three pauses; it stores nothing."""


class Publishing:
    """Publishers that continue until `done`, and their acknowledged records: offset and value."""

    def __init__(self, api: Api, stream: str) -> None:
        self.api, self.stream = api, stream
        self.done = threading.Event()
        self.acked: list[tuple[int, bytes]] = []

    def values(self, name: str) -> Iterator[bytes]:
        for number in itertools.takewhile(lambda _: not self.done.is_set(), itertools.count()):
            yield b"%s:%d" % (name.encode(), number)

    def unary(self, name: str) -> None:
        for value in self.values(name):
            try:
                self.acked.append((self.api.publish(self.stream, value), value))
            except Failed as refusal:
                assert refusal.text == AGAIN  # noqa: PT017 - the other outcome is also valid

    def streamed(self, name: str) -> None:
        def requests() -> Iterator[dict[str, Any]]:
            for value in self.values(name):
                yield {"stream": self.stream, "value": value, "correlationId": value.decode()}
                time.sleep(0.001)

        for answer in self.api.publishing(requests(), None):
            assert not answer.HasField("asyncError") or answer.asyncError.message == AGAIN
            if answer.ack.correlationId:
                self.acked.append((answer.ack.offset, answer.ack.correlationId.encode()))


def test_publishing_continues_beside_pauses_and_nothing_is_lost_doubled_or_moved(api: Api, stream: str) -> None:
    api.create(stream)
    publishing = Publishing(api, stream)
    with ThreadPoolExecutor(3) as pool:
        ways = ((publishing.unary, "a"), (publishing.unary, "b"), (publishing.streamed, "c"))
        working = [pool.submit(way, name) for way, name in ways]
        try:
            for _ in range(40):
                api.call("PauseStream", name=stream)
                time.sleep(0.01)
        finally:
            publishing.done.set()
        for work in working:
            work.result()
    api.publish(stream, b"end")
    stored = {item.offset: item.value for item in api.read(stream)}
    assert sorted(stored) == list(range(len(stored)))
    assert len(set(stored.values())) == len(stored)
    assert {value[:1] for _, value in publishing.acked} == {b"a", b"b", b"c"}, "each publisher received acks"
    assert [(offset, stored.get(offset)) for offset, _ in publishing.acked] == publishing.acked


def test_nothing_is_stored_after_the_stream_became_read_only(api: Api, stream: str) -> None:
    api.create(stream)
    acked: list[int] = []

    def publish() -> str:
        for _ in range(100_000):
            try:
                acked.append(api.publish(stream, b"x"))
            except Failed as refusal:
                return str(refusal)
        return "never refused"

    last = -1
    for _ in range(10):
        with ThreadPoolExecutor(4) as pool:
            working = [pool.submit(publish) for _ in range(4)]
            begun = len(acked)
            until(lambda begun=begun: len(acked) > begun + 20)
            api.call("SetStreamReadonly", name=stream, readonly=True)
            last = api.partition(stream).newestOffset
        assert {work.result() for work in working} == {"FAILED_PRECONDITION readonly partition: 0"}
        assert api.partition(stream).newestOffset == last
        api.call("SetStreamReadonly", name=stream, readonly=False)
    assert sorted(acked) == list(range(last + 1))
