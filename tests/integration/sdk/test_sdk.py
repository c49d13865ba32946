"""The SDK against a real broker; every test runs with the synchronous and the asynchronous client."""

import threading
import time
from datetime import UTC, datetime, timedelta

import bascule
import pyarrow as pa
import pytest
from bascule import Client, StreamOptions
from bascule.errors import BrokerError, StateError, UnavailableError, UsageError
from bascule.testing import TestBroker


def test_streams_are_created_and_deleted(client: Client, stream: str) -> None:
    client.create_stream(stream, f"{stream}.>")
    found = client.get_stream(stream)
    assert (found.name, found.subject, len(found.partitions)) == (stream, f"{stream}.>", 1)
    assert abs(found.created - datetime.now(UTC)) < timedelta(minutes=1)
    assert stream in [listed.name for listed in client.list_streams()]
    with pytest.raises(StateError) as raised:
        client.create_stream(stream)
    assert raised.value.code == "stream_exists"
    client.create_stream(stream, exist_ok=True)
    client.delete_stream(stream)
    client.delete_stream(stream, missing_ok=True)
    for ask in (client.delete_stream, client.get_stream):
        with pytest.raises(StateError) as raised:
            ask(stream)
        assert raised.value.code == "stream_not_found"


@pytest.mark.parametrize("name", ["", "a/b", "a b", "..", "a*", "a>", "x" * 256])
def test_invalid_names_are_rejected(client: Client, name: str) -> None:
    with pytest.raises(UsageError) as raised:
        client.create_stream(name, "subject.of.it")
    assert raised.value.code == "invalid_argument"


@pytest.mark.parametrize("subject", ["", "a b", "a..b", ".a", "a."])
def test_invalid_subjects_are_rejected(client: Client, stream: str, subject: str) -> None:
    with pytest.raises(UsageError) as raised:
        client.create_stream(stream, subject)
    assert raised.value.code == "invalid_argument"


def test_one_record_comes_back_as_it_was(client: Client, stream: str) -> None:
    client.create_stream(stream)
    before = time.time_ns()
    receipt = client.publish(stream, b"value", key=b"key", headers={"a": b"1", "b": b""})
    (record,) = client.subscribe(stream, stop="latest").records()
    assert (record.offset, record.key, record.value) == (receipt.offset, b"key", b"value") == (0, b"key", b"value")
    assert record.headers == [("a", b"1"), ("b", b"")]
    assert record.subject == stream
    assert before - 10**9 < record.timestamp_ns == receipt.timestamp_ns < time.time_ns() + 10**9


def test_many_records_keep_their_order(client: Client, stream: str) -> None:
    client.create_stream(stream)
    values = [b"%d" % number for number in range(60_000)]
    receipts = client.publish_many(stream, values)
    assert [receipt.offset for receipt in receipts] == list(range(60_000))
    batches = list(client.subscribe(stream, stop="latest", batch_records=1000))
    assert max(len(batch) for batch in batches) <= 1000
    assert [value for batch in batches for value in batch.values] == values


def test_a_list_with_an_invalid_value_is_not_sent(client: Client, stream: str) -> None:
    client.create_stream(stream)
    with pytest.raises(TypeError):
        client.publish_many(stream, [*[b""] * 30_000, 7])  # pyright: ignore[reportArgumentType]
    assert client.publish(stream, b"first").offset == 0


def test_every_ack_policy(client: Client, stream: str) -> None:
    client.create_stream(stream)
    assert client.publish(stream, b"0", ack="leader").offset == 0
    assert client.publish(stream, b"1", ack="all").offset == 1
    assert client.publish(stream, b"2", ack="none").offset == -1
    assert client.publish_many(stream, [b"3", b"4"], ack="none") == []
    found = [record.value for record in client.subscribe(stream, stop=5).records()]
    assert found == [b"0", b"1", b"2", b"3", b"4"]
    with pytest.raises(UsageError):
        client.publish(stream, b"", ack="maybe")  # pyright: ignore[reportArgumentType]


def test_every_start_and_stop(client: Client, stream: str) -> None:
    client.create_stream(stream)
    receipts = [client.publish(stream, b"%d" % number) for number in range(10)]

    def offsets(start: object, stop: object) -> list[int]:
        found = client.subscribe(stream, start=start, stop=stop)  # pyright: ignore[reportArgumentType]
        return [record.offset for record in found.records()]

    def when(offset: int) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=-(-receipts[offset].timestamp_ns // 1000))

    assert offsets("earliest", "latest") == list(range(10))
    assert offsets("latest", "latest") == [9]
    assert offsets("new", "latest") == []
    assert offsets(4, 7) == [4, 5, 6]
    assert offsets(7, 7) == []
    assert offsets(100, "latest") == []
    assert offsets(when(3) - timedelta(seconds=60), "latest") == list(range(10))
    assert offsets(when(9) + timedelta(seconds=60), "latest") == []
    assert offsets("earliest", when(0) - timedelta(seconds=60)) == []
    middle = offsets(when(3), when(7))
    assert middle == list(range(middle[0], middle[0] + len(middle)))
    assert {4, 5, 6} <= set(middle) <= {3, 4, 5, 6, 7}


def test_an_empty_stream_ends_at_once(client: Client, stream: str) -> None:
    client.create_stream(stream)
    assert list(client.subscribe(stream, stop="latest")) == []
    assert list(client.subscribe(stream, stop=datetime.now(UTC))) == []


def test_partitions_are_separate(client: Client, stream: str) -> None:
    client.create_stream(stream, options=StreamOptions(partitions=3))
    for partition in (0, 1, 2):
        client.publish_many(stream, [b"%d" % partition] * (partition + 1), partition=partition)
    assert [client.get_partition(stream, partition).high_watermark for partition in range(3)] == [1, 2, 3]
    assert {record.value for record in client.subscribe(stream, partition=2, stop="latest").records()} == {b"2"}
    with pytest.raises(StateError):
        client.publish(stream, b"", partition=3)
    with pytest.raises(StateError):
        client.get_partition(stream, 3)


def test_a_subscription_reports_its_start(client: Client, stream: str) -> None:
    client.create_stream(stream)
    client.publish_many(stream, [b"%d" % number for number in range(5)])
    client.trim_partition(stream, 0, 2)
    future = datetime.now(UTC) + timedelta(days=1)
    for start, position in ((100, 5), (0, 2), (3, 3), ("new", 5), ("latest", 4), (future, 5)):
        with client.subscribe(stream, start=start) as subscription:  # pyright: ignore[reportArgumentType]
            assert subscription.position == position, start
    with client.subscribe(stream, start=100, reverse=True) as subscription:
        assert subscription.position == 4
    with client.subscribe(stream, start=100) as subscription:
        client.publish(stream, b"next")
        assert [record.offset for record in subscription.next_batch(30) or ()] == [5]


def test_unknown_streams_are_named(client: Client) -> None:
    with pytest.raises(StateError) as raised:
        client.publish("no-such-stream", b"")
    assert raised.value.code == "stream_not_found"
    with pytest.raises(StateError):
        list(client.subscribe("no-such-stream", stop="latest"))
    with pytest.raises(StateError):
        client.subscribe("no-such-stream").open()


def test_a_record_over_the_limit_is_rejected_and_the_stream_stays_usable(client: Client, stream: str) -> None:
    client.create_stream(stream)
    with pytest.raises(BrokerError) as raised:
        client.publish(stream, bytes(2 << 20))
    assert raised.value.code == "too_large"
    assert client.publish(stream, bytes(900_000)).offset == 0


@pytest.mark.parametrize("records", [1, 2])
def test_a_stream_with_too_few_replicas_reports_it(client: Client, stream: str, records: int) -> None:
    client.create_stream(stream, options=StreamOptions(min_isr=2))
    with pytest.raises(StateError, match=f"there are 1, min ISR is 2: bascule stream edit {stream}") as raised:
        client.publish_many(stream, [b"v"] * records)
    assert raised.value.code == "not_enough_replicas"


def test_a_wrong_expected_offset_is_rejected_with_the_next_one(client: Client, stream: str) -> None:
    client.create_stream(stream, options=StreamOptions(concurrency_control=True))
    client.publish(stream, b"v", partition=0, expected_offset=0)
    with pytest.raises(StateError, match=r"expected_offset 0 is not the next offset .* which is 1") as raised:
        client.publish(stream, b"v", partition=0, expected_offset=0)
    assert (raised.value.code, raised.value.details["next_offset"]) == ("incorrect_offset", 1)


def test_values_that_are_not_bytes_are_a_type_error(client: Client, stream: str) -> None:
    client.create_stream(stream)
    with pytest.raises(TypeError, match="bytes"):
        client.publish(stream, 7)  # pyright: ignore[reportArgumentType]


def test_a_producer_flushes_when_it_is_left(client: Client, stream: str) -> None:
    client.create_stream(stream)
    with client.producer(stream, batch_records=100) as producer:
        for number in range(250):
            producer.send(b"%d" % number, key=b"k" if number % 2 else None)
    assert producer.published == 250
    records = list(client.subscribe(stream, stop="latest").records())
    assert [record.value for record in records] == [b"%d" % number for number in range(250)]
    assert [record.key for record in records[:2]] == [None, b"k"]


def test_batches_go_to_arrow(client: Client, stream: str) -> None:
    client.create_stream(stream)
    client.publish_many(stream, [b"a", b"bc"], keys=[None, b"k"], headers=[{"h": b"1"}, None])
    (batch,) = client.subscribe(stream, stop="latest")
    table = batch.to_arrow()
    assert table.schema.names == ["offset", "timestamp", "key", "value", "subject", "headers", "reply", "origin_time"]
    assert table.schema.field("timestamp").type == pa.timestamp("ns", tz="UTC")
    assert table["offset"].to_pylist() == [0, 1]
    assert table["value"].to_pylist() == [b"a", b"bc"]
    assert table["key"].to_pylist() == [None, b"k"]
    assert {"key": "h", "value": b"1"} in table["headers"].to_pylist()[0]
    table.validate(full=True)
    assert [row["value"] for row in batch.to_pylist()] == [b"a", b"bc"]


def test_a_subscription_waits_for_new_records(running: TestBroker, client: Client, stream: str) -> None:
    client.create_stream(stream)
    with client.subscribe(stream, start="new") as subscription:
        assert subscription.next_batch(timeout=0.05) is None
        with running.connect() as other:
            publishing = threading.Timer(0.1, other.publish, (stream, b"late"))
            publishing.start()
            batch = None
            while batch is None:
                batch = subscription.next_batch(timeout=5)
            publishing.join()
    assert batch.values == [b"late"]


def test_an_absent_broker_is_reported_within_the_timeout(client: Client) -> None:
    assert client.reconnects == 0
    begin = time.monotonic()
    with pytest.raises(UnavailableError):
        bascule.connect("liftbridge://127.0.0.1:1", timeout=0.3)
    assert time.monotonic() - begin < 3
