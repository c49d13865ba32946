"""Administration and cursors against a real broker; every test runs with both clients."""

from datetime import UTC, datetime, timedelta

import pytest
from bascule import Client, StreamOptions
from bascule.errors import OutcomeUnknownError, StateError, UsageError
from bascule.testing import TestBroker, broker_in_process

HOUR = timedelta(hours=1)


def test_a_stream_with_every_setting(client: Client, stream: str) -> None:
    options = StreamOptions(
        group="workers",
        partitions=2,
        replication_factor=-1,
        retention_max_bytes=1 << 30,
        retention_max_messages=1_000_000,
        retention_max_age=24 * HOUR,
        cleaner_interval=HOUR,
        segment_max_bytes=1 << 20,
        segment_max_age=HOUR,
        compact_enabled=True,
        compact_parallelism=2,
        auto_pause_time=24 * HOUR,
        auto_pause_disable_if_subscribers=True,
        min_isr=1,
        concurrency_control=False,
        partition_by_subject=True,
    )
    client.create_stream(stream, f"{stream}.*", options=options)
    client.publish(stream, b"v", partition=1)
    assert client.get_partition(stream, 1).high_watermark == 1


def test_pausing_ends_reading_and_a_publish_resumes(client: Client, stream: str) -> None:
    client.create_stream(stream, options=StreamOptions(partitions=2))
    before = datetime.now(UTC) - timedelta(minutes=1)
    client.publish(stream, b"0", partition=1)
    client.pause_stream(stream, partitions=[1], resume_all=True)
    client.pause_stream(stream, partitions=[1], resume_all=True)
    paused = client.get_stream(stream).partitions
    assert [partition.paused for partition in paused] == [False, True]
    with pytest.raises(StateError) as raised:
        client.subscribe(stream, partition=1).open()
    assert raised.value.code == "failed_precondition"
    client.pause_stream(stream)
    client.publish(stream, b"1", partition=1)
    resumed = client.get_stream(stream).partitions[1]
    assert not resumed.paused
    assert resumed.pause_times.latest is not None
    assert before < resumed.pause_times.latest
    found = client.subscribe(stream, partition=1, stop="latest", resume=True)
    assert [record.value for record in found.records()] == [b"0", b"1"]


def test_readonly_refuses_publishes_and_ends_reading(client: Client, stream: str) -> None:
    client.create_stream(stream)
    client.publish(stream, b"0")
    client.set_readonly(stream)
    with pytest.raises(StateError) as raised:
        client.publish(stream, b"1")
    assert raised.value.code == "readonly"
    assert [record.value for record in client.subscribe(stream).records()] == [b"0"]
    partition = client.get_partition(stream)
    assert partition.readonly
    assert partition.readonly_times.latest is not None
    client.set_readonly(stream, False, partitions=[0])
    assert client.publish(stream, b"1").offset == 1


def test_all_calls_report_missing_objects_alike(client: Client, stream: str) -> None:
    client.create_stream(stream, options=StreamOptions(partitions=2))
    no_partition = [
        lambda: client.publish(stream, b"", partition=2),
        lambda: client.publish_many(stream, [b"", b""], partition=2),
        lambda: client.get_partition(stream, 2),
        lambda: client.subscribe(stream, partition=2).open(),
        lambda: client.pause_stream(stream, partitions=[2]),
        lambda: client.set_readonly(stream, partitions=[2]),
        lambda: client.trim_partition(stream, 2, 0),
    ]
    for call in no_partition:
        with pytest.raises(StateError) as raised:
            call()
        assert raised.value.code == "partition_not_found"
        assert str(raised.value) == f'stream "{stream}" has no partition 2: its partitions are numbered 0 to 1'
    no_stream = [
        lambda: client.publish("nowhere", b""),
        lambda: client.publish_many("nowhere", [b"", b""]),
        lambda: client.get_stream("nowhere"),
        lambda: client.get_partition("nowhere"),
        lambda: client.subscribe("nowhere").open(),
        lambda: client.pause_stream("nowhere"),
        lambda: client.set_readonly("nowhere", partitions=[0]),
        lambda: client.trim_partition("nowhere", 0, 0),
        lambda: client.purge_stream("nowhere"),
        lambda: client.delete_stream("nowhere"),
    ]
    for call in no_stream:
        with pytest.raises(StateError) as raised:
            call()
        assert raised.value.code == "stream_not_found"
        assert str(raised.value) == 'stream "nowhere" does not exist: create it, or see bascule stream list'


def test_brokers_are_listed(running: TestBroker, client: Client) -> None:
    (broker,) = client.list_brokers()
    assert f"{broker.host}:{broker.port}" == running.address


def test_a_record_published_on_a_subject_is_stored_by_listening_streams(client: Client, stream: str) -> None:
    client.create_stream(stream, f"{stream}.*")
    receipt = client.publish_to_subject(f"{stream}.a", b"v", key=b"k", headers={"h": b"1"})
    assert receipt is not None
    assert (receipt.stream, receipt.offset) == (stream, 0)
    assert client.publish_to_subject(f"{stream}.a", b"w", ack="none") is None
    first, _ = client.subscribe(stream, stop=2).records()
    assert (first.key, first.value, first.subject, first.header("h")) == (b"k", b"v", f"{stream}.a", b"1")
    with pytest.raises(OutcomeUnknownError):
        client.publish_to_subject("nobody.listens", b"", timeout=0.2)
    with pytest.raises(UsageError):
        client.publish_to_subject("a..b", b"")


def test_a_cursor_is_found_as_it_was_set(client: Client, stream: str) -> None:
    client.create_stream(stream, options=StreamOptions(partitions=2))
    assert client.fetch_cursor("reader", stream) is None
    client.set_cursor("reader", stream, 4)
    client.set_cursor("reader", stream, 7, partition=1)
    client.set_cursor("other", stream, 0)
    assert client.fetch_cursor("reader", stream) == 4
    assert client.fetch_cursor("reader", stream, partition=1) == 7
    assert client.fetch_cursor("other", stream) == 0
    client.set_cursor("reader", stream, None)
    assert client.fetch_cursor("reader", stream) is None


def test_a_cursor_is_not_valid_for_a_stream_that_was_created_again(client: Client, stream: str) -> None:
    client.create_stream(stream)
    client.set_cursor("reader", stream, 4)
    client.delete_stream(stream)
    client.create_stream(stream)
    assert client.fetch_cursor("reader", stream) is None


def test_reading_continues_after_a_cursor(client: Client, stream: str) -> None:
    client.create_stream(stream)
    client.publish_many(stream, [b"%d" % number for number in range(10)])
    with client.subscribe(stream, cursor="reader", stop=10, batch_records=4) as first:
        assert first.commit() is None
        batch = first.next_batch(timeout=30)
        assert batch is not None
        assert first.commit() == batch.offsets[-1]
    rest = client.subscribe(stream, cursor="reader", stop="latest")
    assert [record.offset for record in rest.records()] == list(range(batch.offsets[-1] + 1, 10))
    assert rest.commit() == 9
    assert list(client.subscribe(stream, cursor="reader", stop="latest")) == []
    assert client.fetch_cursor("reader", stream) == 9


def test_reverse_gives_the_newest_first(client: Client, stream: str) -> None:
    client.create_stream(stream)
    assert list(client.subscribe(stream, start="latest", reverse=True)) == []
    client.publish_many(stream, [b"%d" % number for number in range(10)])

    def offsets(start: object, stop: object = None) -> list[int]:
        found = client.subscribe(stream, start=start, stop=stop, reverse=True)  # pyright: ignore[reportArgumentType]
        return [record.offset for record in found.records()]

    assert offsets("latest") == list(range(9, -1, -1))
    assert offsets(6, 3) == [6, 5, 4]
    assert offsets(100, 7) == [9, 8]
    assert offsets("earliest") == [0]
    assert offsets(3, 3) == []
    assert offsets("latest", 20) == []
    client.trim_partition(stream, 0, 4)
    assert offsets("latest") == [9, 8, 7, 6, 5, 4], "it ends at the log start"
    assert offsets("latest", 2) == [9, 8, 7, 6, 5, 4]
    assert offsets(0) == [4]


def test_a_broker_without_cursors_names_the_setting() -> None:
    with broker_in_process() as running, running.connect() as client:
        for call in (lambda: client.set_cursor("c", "s", 1), lambda: client.fetch_cursor("c", "s")):
            with pytest.raises(StateError, match=r"set cursors\.partitions to 1 or more"):
                call()
