"""Calls, retries and deadlines over a fake native core."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from bascule import StreamOptions
from bascule._admin_pb import message as admin
from bascule._liftbridge_pb import message
from bascule.errors import BrokerError, CapacityError, StateError, UnavailableError, UsageError

from tests.unit.client.fakes import FakeNative, client_of, failure


def metadata(*names: str, unknown: str = "") -> bytes:
    response = message("FetchMetadataResponse")()
    for name in names:
        found = response.streamMetadata.add(name=name, subject=f"{name}.>", creationTimestamp=1_700_000_000_123_456_789)
        for number in (1, 0):
            partition = found.partitions[number]
            partition.id, partition.leader, partition.highWatermark, partition.newestOffset = number, "b", 9, 11
    if unknown:
        response.streamMetadata.add(name=unknown, error=1)
    return response.SerializeToString()


def test_create_sends_only_given_options() -> None:
    native = FakeNative()
    hour = timedelta(hours=1)
    options = StreamOptions(partitions=3, retention_max_age=hour, retention_max_bytes=0, encryption=True)
    client_of(native).create_stream("orders", options=options)
    ((method, sent),) = native.requests
    request = message("CreateStreamRequest").FromString(sent)
    assert (method, request.name, request.subject, request.partitions) == ("CreateStream", "orders", "orders", 3)
    assert request.retentionMaxAge.value == 3_600_000
    assert request.HasField("retentionMaxBytes"), "an explicit 0 is not the default"
    assert not request.HasField("retentionMaxMessages")
    assert request.encryption.value


def test_exist_ok_and_missing_ok_forgive_that_and_nothing_else() -> None:
    native = FakeNative()
    client = client_of(native)
    native.answers = [failure("stream_exists"), failure("stream_exists"), failure("invalid_argument")]
    client.create_stream("x", exist_ok=True)
    with pytest.raises(StateError, match='stream "x" already exists'):
        client.create_stream("x")
    with pytest.raises(UsageError):
        client.create_stream("x", exist_ok=True)
    native.answers = [failure("stream_not_found"), failure("stream_not_found")]
    client.delete_stream("x", missing_ok=True)
    with pytest.raises(StateError):
        client.delete_stream("x")


def test_streams_come_by_name_with_partitions_by_number_and_ends_exclusive() -> None:
    native = FakeNative()
    native.answers = [metadata("b", "a")]
    streams = client_of(native).list_streams()
    assert [stream.name for stream in streams] == ["a", "b"]
    assert [partition.number for partition in streams[0].partitions] == [0, 1]
    assert (streams[0].partitions[0].high_watermark, streams[0].partitions[0].log_end_offset) == (10, 12)
    assert streams[0].created.isoformat() == "2023-11-14T22:13:20.123456+00:00"


def test_streams_of_a_namespace_are_named_with_it() -> None:
    native = FakeNative()
    found = message("FetchMetadataResponse").FromString(metadata("t")).streamMetadata
    native.answers = [admin("FetchStreamsResponse")(streams=found).SerializeToString()]
    (stream,) = client_of(native).list_streams(namespace="shop")
    assert (stream.name, [partition.number for partition in stream.partitions]) == ("shop/t", [0, 1])
    ((method, body),) = native.requests
    assert (method, admin("FetchStreamsRequest").FromString(body).namespace) == ("FetchStreams", "shop")


def test_an_unknown_stream_is_named() -> None:
    native = FakeNative()
    native.answers = [metadata(unknown="orders")]
    with pytest.raises(StateError, match='stream "orders" does not exist') as raised:
        client_of(native).get_stream("orders")
    assert raised.value.code == "stream_not_found"


def test_what_may_be_tried_again_is_within_one_deadline() -> None:
    native = FakeNative()
    native.answers = [failure("unavailable"), failure("busy"), failure("not_leader"), metadata("a")]
    client = client_of(native)
    assert client.list_streams()[0].name == "a"
    assert client.reconnects == 2, "a busy broker stays in use"
    assert native.closed == 2


def test_the_deadline_ends_the_retries_with_the_last_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    native, now = FakeNative(), 0.0

    def call(method: str, request: bytes, timeout_ms: int) -> bytes:
        nonlocal now
        now += 0.08
        return FakeNative.call(native, method, request, timeout_ms)

    monkeypatch.setattr("bascule.client._core.deadline.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(native, "call", call)
    native.answers = [failure("unavailable", f"try {number}") for number in range(100)]
    with pytest.raises(UnavailableError, match="try 3"):
        client_of(native, timeout=0.3).list_streams()
    assert len(native.requests) == 4


def test_the_next_address_is_tried() -> None:
    native = FakeNative()
    native.connecting = [failure("unavailable"), None]
    native.answers = [failure("unavailable"), metadata("a")]
    client_of(native, "a:1", "b:2", "c:3").list_streams()
    assert native.addresses == ["a:1", "b:2", "c:3"]


@pytest.mark.parametrize("code", ["outcome_unknown", "stream_not_found", "invalid_argument", "internal"])
def test_what_must_not_be_sent_twice_is_not(code: str) -> None:
    native = FakeNative()
    native.acks = [failure(code)]
    with pytest.raises(BrokerError) as raised:
        client_of(native).publish("s", b"v")
    assert raised.value.code == code
    assert native.published == []


def test_a_batch_that_is_partly_stored_is_not_sent_again() -> None:
    native = FakeNative()
    native.acks = [failure("busy", "full", '{"index": 2, "acknowledged": 2}')]
    with pytest.raises(CapacityError) as raised:
        client_of(native).publish_many("s", [b"v"] * 4)
    assert raised.value.details == {"index": 2, "acknowledged": 2}


def test_a_batch_is_retried_if_a_busy_broker_stored_nothing() -> None:
    native = FakeNative()
    native.acks = [failure("busy", "full", '{"index": 0, "acknowledged": 0}'), None]
    assert [receipt.offset for receipt in client_of(native).publish_many("s", [b"v"] * 3)] == [0, 1, 2]


def test_long_lists_are_sent_in_parts_and_errors_index_the_whole_list() -> None:
    native = FakeNative()
    client = client_of(native)
    values = [b"%d" % number for number in range(50_000)]
    assert [receipt.offset for receipt in client.publish_many("s", values)] == list(range(50_000))
    assert [len(part) for part in native.published] == [8192] * 6 + [848]
    assert [value for part in native.published for value in part] == values
    sequences = [producer[2] for producer in native.producers if producer]
    assert sequences == list(range(0, 50_000, 8192)), "one producer, and each part follows the one before"


def test_nothing_is_sent_after_a_failed_part() -> None:
    native = FakeNative()
    native.acks = [None, failure("too_large", "too big", '{"index": 7, "acknowledged": 7}')]
    with pytest.raises(UsageError) as raised:
        client_of(native).publish_many("s", [b""] * 50_000)
    assert raised.value.details == {"index": 8199, "acknowledged": 8199, "stream": "s"}
    assert len(native.producers) == 2


def test_an_empty_batch_is_not_sent() -> None:
    native = FakeNative()
    assert client_of(native).publish_many("s", []) == []
    assert native.published == []


@pytest.mark.parametrize("column", ["keys", "headers"])
def test_columns_of_different_lengths_are_refused(column: str) -> None:
    with pytest.raises(UsageError, match=f"there are 1 {column} for 2 values"):
        client_of(FakeNative()).publish_many("s", [b"", b""], **{column: [None]})  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_timeout_is_above_zero(seconds: float) -> None:
    with pytest.raises(UsageError, match="a timeout is a number of seconds above 0"):
        client_of(FakeNative()).list_streams(timeout=seconds)


def test_a_closed_client_raises_closed() -> None:
    native = FakeNative()
    client = client_of(native)
    client.open()
    client.close()
    client.close()
    assert native.closed == 1
    with pytest.raises(UsageError, match="the client is closed") as raised:
        client.list_streams()
    assert raised.value.code == "closed"


def test_the_next_batch_of_a_partition_follows_the_last_one_and_a_failure_begins_an_epoch() -> None:
    native = FakeNative()
    client = client_of(native)
    client.publish_many("s", [b""] * 3)
    client.publish("s", b"")
    native.acks = [failure("too_large")]
    with pytest.raises(UsageError):
        client.publish("s", b"")
    client.publish("s", b"")
    client.publish("s", b"", partition=1)
    first, second, third, fourth, other = [producer for producer in native.producers if producer]
    assert first[0] > 0
    assert [producer[1:] for producer in (first, second, third, fourth)] == [(0, 0), (0, 3), (0, 4), (1, 0)]
    assert {producer[0] for producer in (first, second, third, fourth)} == {first[0]}
    assert other[0] != first[0], "each partition has its own session"
    assert other[1:] == (0, 0)


def test_a_retry_sends_the_same_batch() -> None:
    native = FakeNative()
    native.acks = [failure("outcome_unknown", "lost", '{"acknowledged": 2, "resend": true}'), None]
    client = client_of(native)
    assert len(client.publish_many("s", [b"v"] * 3)) == 3
    assert native.producers[0] == native.producers[1]
    assert client.reconnects == 1


def test_concurrent_calls_use_separate_sessions() -> None:
    native = FakeNative()
    client = client_of(native)

    def meanwhile() -> None:
        client.publish("s", b"inner")

    native.acks = [meanwhile]
    client.publish("s", b"outer")
    outer, inner = native.producers
    assert outer is not None
    assert inner is not None
    assert outer[0] != inner[0]


def test_a_batch_is_sent_without_a_session_if_the_broker_has_too_many() -> None:
    native = FakeNative()
    native.acks = [failure("too_many_producers", "full", '{"index": 0, "acknowledged": 0}'), None]
    assert client_of(native).publish("s", b"v").offset == 0
    first, second = native.producers
    assert first is not None
    assert second is None


def test_a_batch_without_acks_does_not_use_a_session() -> None:
    native = FakeNative()
    client = client_of(native)
    client.publish("s", b"")
    client.publish("s", b"", ack="none")
    client.publish("s", b"")
    first, silent, second = native.producers
    assert silent is None
    assert first is not None
    assert second == (first[0], 0, 1)
