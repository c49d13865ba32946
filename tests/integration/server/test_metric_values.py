"""Exact values of a running broker's metrics: calls, errors, waits, deliveries, lag, retention, compaction."""

import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import nats
import pytest
from bascule import Client, StreamOptions, group_cursor
from bascule.errors import BrokerError
from bascule.testing import TestBroker, broker
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.conformance.api import LATEST, NONE, Api, Failed
from tests.integration.server.test_http import FREE, LIMIT_S, get
from tests.names import fresh
from tests.waiting import until

fl: Any = import_module("pyarrow.flight")

SETTINGS: Final = {
    "http.listen": FREE,
    "cursors.partitions": 3,
    "streams.cleaner_interval_ms": 100,
    "streams.retention_min_age_ms": 0,
    "streams.nats_copy": "none",
}
RECORD_BYTES: Final = 4096

Values = dict[tuple[str, frozenset[str]], float]


def values(running: TestBroker) -> Values:
    """All samples by name and label values."""
    status, text = get(running.http_address, "/metrics")
    assert status == 200
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Watch:
    """The growth of samples since it was created."""

    def __init__(self, running: TestBroker) -> None:
        self._running = running
        self._before = values(running)

    def grown(self, name: str, *labels: str) -> float:
        """The growth of one series; a missing one counts as 0."""
        place = (name, frozenset(labels))
        return values(self._running).get(place, 0) - self._before.get(place, 0)

    def all_grown(self, name: str) -> dict[frozenset[str], float]:
        """The series of a name that have changed."""
        now = values(self._running)
        grown = {place[1]: now[place] - self._before.get(place, 0) for place in now if place[0] == name}
        return {labels: value for labels, value in grown.items() if value}


def settle(found: Callable[[], object], expected: object) -> None:
    """Wait until the found value equals the expected one; reports the difference at the time limit."""
    limit = time.monotonic() + LIMIT_S
    while found() != expected and time.monotonic() < limit:
        time.sleep(0.02)
    assert found() == expected


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    with broker(settings=SETTINGS) as started:
        yield started


@pytest.fixture
def client(running: TestBroker) -> Iterator[Client]:
    with running.connect() as connected:
        yield connected


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as connected:
        yield connected


@pytest.fixture
def stream(request: pytest.FixtureRequest) -> str:
    """A name for the test's stream."""
    return fresh(request.node.name)


def test_calls_are_counted_by_service_method_and_status(running: TestBroker, api: Api, stream: str) -> None:
    api.create(stream)
    watch = Watch(running)
    api.fill(stream, 3)
    for _ in range(2):
        with pytest.raises(Failed, match="NOT_FOUND"):
            api.publish("not-there")
    api.publish_async([{"stream": stream, "ackPolicy": 1}] * 4)
    for path in ("/proto.API/Nothing", '/any"}/thing', "/proto.API/Nothing2"):
        with pytest.raises(Failed, match="UNIMPLEMENTED"):
            api.raw(path, b"")
    assert len(api.read(stream)) == 7
    cancelled = api.subscribe(stream)
    cancelled.cancel()
    waiting = api.subscribe(stream, timeout=1)
    assert str(waiting.rest()[1]).startswith("DEADLINE_EXCEEDED")
    assert list(fl.FlightClient(f"grpc://{running.address}").list_flights())
    liftbridge = "proto.API"
    expected = {
        frozenset({liftbridge, "Publish", "OK"}): 3,
        frozenset({liftbridge, "Publish", "NOT_FOUND"}): 2,
        frozenset({liftbridge, "PublishAsync", "OK"}): 1,
        frozenset({"other", "UNIMPLEMENTED"}): 3,
        frozenset({liftbridge, "Subscribe", "RESOURCE_EXHAUSTED"}): 1,
        frozenset({liftbridge, "Subscribe", "CANCELLED"}): 1,
        frozenset({liftbridge, "Subscribe", "DEADLINE_EXCEEDED"}): 1,
        frozenset({"arrow.flight.protocol.FlightService", "ListFlights", "OK"}): 1,
    }
    settle(lambda: watch.all_grown("bascule_calls_total"), expected)


def test_records_that_are_not_stored_are_counted_by_error(
    running: TestBroker, api: Api, client: Client, stream: str
) -> None:
    client.create_stream(stream, options=StreamOptions(max_record_bytes=100))
    client.create_stream(f"{stream}-checked", options=StreamOptions(concurrency_control=True))
    watch = Watch(running)
    for _ in range(2):
        with pytest.raises(Failed):
            api.publish("not-there")
    with pytest.raises(Failed):
        api.publish(stream, partition=7)
    # One is stored, two are too large: by PublishAsync, and one more by the unary call.
    requests = [{"stream": stream, "value": b"x" * size, "ackPolicy": 1} for size in (10, 200, 300)]
    assert [answer.HasField("asyncError") for answer in api.publish_async(requests)] == [False, True, True]
    with pytest.raises(Failed):
        api.publish(stream, b"x" * 400)
    # No ack is requested.
    api.publish(stream, b"x" * 500, ackPolicy=NONE)
    with pytest.raises(BrokerError):
        client.publish(f"{stream}-checked", b"", partition=0, expected_offset=5)
    client.set_readonly(stream)
    assert len(api.publish_async([{"stream": stream, "ackPolicy": 1}] * 4)) == 4
    expected = {
        frozenset({"stream_not_found"}): 2,
        frozenset({"partition_not_found"}): 1,
        frozenset({"too_large"}): 4,
        frozenset({"incorrect_offset"}): 1,
        frozenset({"readonly"}): 4,
    }
    settle(lambda: watch.all_grown("bascule_publish_errors_total"), expected)
    assert ("bascule_publish_errors_total", frozenset({"disk_full"})) in values(running), "shown before it occurs"


async def test_messages_from_nats_that_are_stored_or_refused_are_counted(
    running: TestBroker, client: Client, stream: str
) -> None:
    client.create_stream(stream, stream, options=StreamOptions(max_record_bytes=100))
    watch = Watch(running)
    connection = await nats.connect(running.nats_url)
    for size in (10, 20, 200, 30):
        await connection.publish(stream, b"x" * size)
    await connection.flush()
    until(lambda: watch.grown("bascule_nats_stored_total") == 3, LIMIT_S)
    assert watch.grown("bascule_publish_errors_total", "too_large") == 1
    assert watch.grown("bascule_nats_dropped_total") == 1
    await connection.close()


def test_every_append_that_reaches_its_writer_has_waited_once(running: TestBroker, api: Api, stream: str) -> None:
    api.create(stream)
    watch = Watch(running)
    api.fill(stream, 5)
    assert watch.grown("bascule_queue_wait_seconds_count") == 5
    waited, whole = (watch.grown(f"bascule_{name}_seconds_sum") for name in ("queue_wait", "append_duration"))
    assert 0 < waited < whole < LIMIT_S


def test_delivered_bytes_are_those_of_the_messages(running: TestBroker, api: Api, stream: str) -> None:
    api.create(stream)
    for size in (1, 1000, 100_000):
        api.publish(stream, b"x" * size, key=b"key")
    watch = Watch(running)
    forwards = api.read(stream)
    sent = sum(len(item.SerializeToString()) + 5 for item in forwards)
    assert watch.grown("bascule_records_delivered_total") == 3
    assert watch.grown("bascule_delivered_bytes_total") == sent > 101_001
    backwards = api.subscribe(stream, startPosition=LATEST, reverse=True)
    taken = backwards.take(3)
    assert [len(item.value) for item in taken] == [100_000, 1000, 1]
    backwards.cancel()
    until(lambda: watch.grown("bascule_delivered_bytes_total") == 2 * sent, LIMIT_S)
    rows = fl.FlightClient(f"grpc://{running.address}").do_get(
        fl.Ticket(json.dumps({"stream": stream, "partition": 0, "start": "earliest"}).encode())
    )
    table = rows.read_all()
    assert watch.grown("bascule_flight_rows_read_total") == table.num_rows == 3
    assert 101_001 < watch.grown("bascule_flight_read_bytes_total") < 110_000


def lag(running: TestBroker, group: str, stream: str) -> tuple[float | None, float | None]:
    """Records and seconds."""
    found = values(running)
    records, seconds = (
        found.get((f"bascule_group_lag_{unit}", frozenset({group, stream}))) for unit in ("records", "seconds")
    )
    return records, seconds


def test_groups_have_the_lag_of_their_stored_positions(tmp_path: Path) -> None:
    odd = 'bill"ing\\ €, all'
    with broker(directory=tmp_path, settings=SETTINGS) as running:
        with running.connect() as client:
            client.create_stream("orders", options=StreamOptions(partitions=3))
            client.publish_many("orders", [b"x"] * 10, partition=0)
            published = time.time()
            client.publish_many("orders", [b"x"] * 5, partition=1)
            assert lag(running, "billing", "orders") == (None, None)
            client.set_cursor(group_cursor("billing"), "orders", 3, partition=0)
            records, seconds = lag(running, "billing", "orders")
            assert records == 6
            assert seconds is not None
            assert 0 < seconds < time.time() - published + LIMIT_S
            client.set_cursor(group_cursor("billing"), "orders", 1, partition=1)
            client.set_cursor(group_cursor(odd), "orders", 4, partition=1)
            # Not of a group.
            client.set_cursor("reader", "orders", 0, partition=1)
            assert lag(running, "billing", "orders")[0] == 9
            assert lag(running, odd, "orders") == (0, 0)
            with client.consumer("billing", "orders", commit_interval=None) as consumer:
                given = 0
                while given < 9:
                    batch = consumer.next_batch()
                    given += 0 if batch is None else len(batch)
                assert given == 9
                consumer.commit()
            assert lag(running, "billing", "orders") == (0, 0)
            client.publish("orders", b"x", partition=0)
            assert lag(running, "billing", "orders")[0] == 1, "also without members"
        running.restart()
        with running.connect() as client:
            until(lambda: lag(running, "billing", "orders")[0] == 1, LIMIT_S)
            # Retention may remove records that a group has not read: they no longer count.
            client.publish_many("orders", [b"x"] * 4, partition=0)
            client.trim_partition("orders", 0, 13)
            until(lambda: lag(running, "billing", "orders")[0] == 2, LIMIT_S)
            client.set_cursor(group_cursor(odd), "orders", None, partition=1)
            assert lag(running, odd, "orders") == (None, None)
            client.purge_stream("orders")
            assert lag(running, "billing", "orders") == (None, None), "positions of purged records do not count"


def test_the_lag_stays_when_positions_are_at_rest_and_can_be_switched_off(tmp_path: Path) -> None:
    settings = {**SETTINGS, "cursors.auto_pause_time_ms": 1}
    with broker(directory=tmp_path, settings=settings) as running:
        with running.connect() as client:
            client.create_stream("orders")
            client.publish("orders", b"x")
            client.publish("orders", b"y")
            client.set_cursor(group_cursor("billing"), "orders", 0)
            client.pause_stream("__cursors")
        # Paused explicitly, because they are not paused automatically while metrics show groups: a scrape resumes them.
        assert lag(running, "billing", "orders") == (None, None)
        until(lambda: lag(running, "billing", "orders")[0] == 1, LIMIT_S)
        began = time.monotonic()
        while time.monotonic() < began + 3:
            assert lag(running, "billing", "orders")[0] == 1
    with broker(directory=tmp_path, settings={**settings, "metrics.groups": False}) as running:
        with running.connect() as client:
            assert client.fetch_cursor(group_cursor("billing"), "orders") == 0
        assert not [name for name, _ in values(running) if "group_lag" in name]


def test_records_removed_by_retention_and_trims_are_counted(running: TestBroker, client: Client, stream: str) -> None:
    options = StreamOptions(segment_max_bytes=4 * RECORD_BYTES, retention_max_messages=20)
    watch = Watch(running)
    client.create_stream(stream, options=options)
    for _ in range(100):
        client.publish(stream, b"x" * RECORD_BYTES)

    def start() -> int:
        first = client.get_partition(stream).log_start
        assert first is not None
        return first

    def counted(unit: str) -> float:
        return watch.grown(f"bascule_retention_removed_{unit}_total")

    def agree() -> bool:
        first = start()
        return first >= 70 and counted("records") == first == start()

    until(agree, LIMIT_S)
    appended, left = watch.grown("bascule_bytes_appended_total"), watch.grown("bascule_storage_bytes")
    assert counted("bytes") == appended - left > 70 * RECORD_BYTES
    assert counted("segments") == counted("records") / (counted("records") // counted("segments"))
    client.trim_partition(stream, 0, 100)
    until(lambda: counted("records") == 100, LIMIT_S)
    assert counted("bytes") == appended


def test_records_removed_by_compaction_are_counted(running: TestBroker, client: Client, stream: str) -> None:
    watch = Watch(running)
    options = StreamOptions(
        segment_max_bytes=4 * RECORD_BYTES, compact_enabled=True, cleaner_interval=timedelta(seconds=1)
    )
    client.create_stream(stream, options=options)
    for _ in range(60):
        client.publish(stream, b"x" * RECORD_BYTES, key=b"same")

    def counted(name: str) -> float:
        return watch.grown(f"bascule_compaction_{name}_total")

    def left() -> int:
        with client.subscribe(stream, start="earliest", stop="latest") as records:
            return sum(1 for _ in records.records())

    until(lambda: counted("removed_records") >= 50 and counted("removed_records") == 60 - left(), LIMIT_S)
    assert counted("runs") >= 1
    assert counted("errors") == 0
    assert counted("removed_bytes") > 50 * RECORD_BYTES
    assert watch.grown("bascule_retention_removed_records_total") == 0
    until(lambda: values(running)["bascule_compactions_open", frozenset()] == 0, LIMIT_S)
