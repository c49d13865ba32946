"""Subscriptions over a fake native core: positions, ends, reconnects."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from bascule._liftbridge_pb import message
from bascule.client import Start, Stop
from bascule.client._core.subscribe_options import SubscribeOptions, subscribe
from bascule.errors import StateError, UnavailableError, UsageError

from tests.unit.client.fakes import FakeBatch, FakeNative, FakeSubscription, client_of, failure

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOON_NS = 1_769_860_800_000_000_000


def sent(native: FakeNative) -> list[Any]:
    return [message("SubscribeRequest").FromString(body) for method, body in native.requests if method == "Subscribe"]


def high_watermark(next_offset: int) -> bytes:
    response = message("FetchPartitionMetadataResponse")()
    response.metadata.highWatermark = response.metadata.newestOffset = next_offset - 1
    return response.SerializeToString()


@pytest.mark.parametrize(
    ("start", "fields"),
    [
        ("earliest", {"startPosition": 2}),
        ("latest", {"startPosition": 3}),
        ("new", {}),
        (7, {"startPosition": 1, "startOffset": 7}),
        (0, {"startPosition": 1}),
        (NOON, {"startPosition": 4, "startTimestamp": NOON_NS}),
        (NOON.astimezone(timezone(timedelta(hours=9))), {"startPosition": 4, "startTimestamp": NOON_NS}),
    ],
)
def test_starts_on_the_wire(start: Start, fields: dict[str, int]) -> None:
    expected = message("SubscribeRequest")(stream="s", partition=1, **fields)
    assert subscribe(SubscribeOptions(stream="s", partition=1), start, None) == expected.SerializeToString()


@pytest.mark.parametrize(
    ("stop", "fields"),
    [
        (None, {}),
        ("latest", {"stopPosition": 2}),
        (8, {"stopPosition": 1, "stopOffset": 7}),
        (NOON, {"stopPosition": 3, "stopTimestamp": NOON_NS - 1}),
    ],
)
def test_stops_are_exclusive_here_and_inclusive_on_the_wire(stop: Stop, fields: dict[str, int]) -> None:
    expected = message("SubscribeRequest")(stream="s", startPosition=2, **fields)
    assert subscribe(SubscribeOptions(stream="s"), "earliest", stop) == expected.SerializeToString()


@pytest.mark.parametrize(("start", "stop"), [("sometime", None), (-1, None), (2**63, None), ("new", "never"), (0, -1)])
def test_invalid_starts_and_stops_are_rejected_before_anything_is_sent(start: Any, stop: Any) -> None:
    native = FakeNative()
    with pytest.raises(UsageError) as raised:
        client_of(native).subscribe("s", start=start, stop=stop)
    assert raised.value.code == "invalid_argument"
    assert native.requests == []


@pytest.mark.parametrize(("start", "stop"), [("earliest", 0), (5, 5), (6, 5), (NOON, NOON)])
def test_an_empty_range_ends_at_once_without_asking(start: Start, stop: Stop) -> None:
    native = FakeNative()
    assert list(client_of(native).subscribe("s", start=start, stop=stop)) == []
    assert native.requests == []


def test_batches_are_returned_until_the_stop_and_position_advances() -> None:
    native = FakeNative()
    native.subscriptions = [FakeSubscription([FakeBatch(0, 3), None, FakeBatch(3, 2)])]
    subscription = client_of(native).subscribe("s", stop=5)
    assert subscription.position == "earliest"
    batches = list(subscription)
    assert [batch.offsets for batch in batches] == [[0, 1, 2], [3, 4]]
    assert (subscription.position, subscription.ended) == (5, True)
    assert batches[0].to_pylist()[2] == {
        "offset": 2, "timestamp_ns": 2000, "key": None, "value": b"2", "subject": "s",
        "headers": [], "reply": "", "origin_time_ns": None,
    }  # fmt: skip
    assert repr(batches[0]) == "<Batch of s/0: 3 records, offsets 0 to 2>"


def test_records_come_one_by_one() -> None:
    native = FakeNative()
    native.subscriptions = [FakeSubscription([FakeBatch(4, 2), FakeBatch(6, 1)])]
    assert [record.value for record in client_of(native).subscribe("s", stop=7).records()] == [b"4", b"5", b"6"]


def test_stop_latest_is_fixed_when_it_opens() -> None:
    native = FakeNative()
    native.answers = [high_watermark(10)]
    native.subscriptions = [
        FakeSubscription([FakeBatch(0, 4), failure("unavailable")]),
        FakeSubscription([FakeBatch(4, 6)]),
    ]
    subscription = client_of(native).subscribe("s", stop="latest")
    assert sum(map(len, subscription)) == 10
    first, second = sent(native)
    assert (first.startPosition, first.stopOffset) == (2, 9)
    assert (second.startPosition, second.startOffset, second.stopOffset) == (1, 4, 9)
    assert subscription.reconnects == 1


@pytest.mark.parametrize(
    ("start", "first_read", "asked"),
    [
        ("earliest", [FakeBatch(0, 4)], 7),
        ("earliest", [], 0),
        (4, [], 7),
    ],
)
def test_a_stored_offset_carries_the_incarnation_it_was_read_in(
    start: Start, first_read: list[FakeBatch], asked: int
) -> None:
    native = FakeNative()
    native.subscriptions = [
        FakeSubscription([*first_read, failure("unavailable")], incarnation=7),
        FakeSubscription([FakeBatch(4, 6)], incarnation=7),
    ]
    assert sum(map(len, client_of(native).subscribe("s", start=start))) == 6 + sum(map(len, first_read))
    assert [request.incarnation for request in sent(native)] == [0, asked]


@pytest.mark.parametrize(("start", "kept"), [("new", 5), (100, 5), ("earliest", "earliest")])
def test_the_start_survives_a_lost_connection(start: Start, kept: Start) -> None:
    native = FakeNative()
    native.subscriptions = [
        FakeSubscription([None, failure("unavailable")], incarnation=7, start=5),
        FakeSubscription([FakeBatch(5, 6)], incarnation=7, start=5),
    ]
    subscription = client_of(native).subscribe("s", start=start)
    assert subscription.next_batch(0) is None
    assert subscription.position == kept
    assert sum(map(len, subscription)) == 6
    second = sent(native)[1]
    assert (second.startOffset, second.incarnation) == ((5, 7) if kept == 5 else (0, 0))


def test_stop_latest_of_a_paused_partition_is_asked_for_once_it_is_resumed() -> None:
    native = FakeNative()
    native.answers = [failure("not_leader"), high_watermark(3)]
    resuming = FakeSubscription([])
    native.subscriptions = [resuming, FakeSubscription([FakeBatch(0, 3)])]
    assert sum(map(len, client_of(native).subscribe("s", stop="latest", resume=True))) == 3
    first, second = sent(native)
    assert (first.resume, first.startPosition, first.stopPosition) == (True, 3, 0)
    assert (second.resume, second.startPosition, second.stopOffset) == (True, 2, 2)
    assert resuming.closed


@pytest.mark.parametrize("paused", [False, True])
def test_a_paused_partition_fails_at_once_and_a_new_leader_is_waited_for(paused: bool) -> None:
    shown = message("FetchMetadataResponse")()
    shown.streamMetadata.add(name="s").partitions[0].paused = paused
    native = FakeNative()
    native.answers = [failure("not_leader"), shown.SerializeToString()]
    if paused:
        with pytest.raises(StateError, match=r'0 of stream "s" is paused: .* bascule stream resume s$') as raised:
            list(client_of(native).subscribe("s", stop="latest"))
        assert (raised.value.code, native.answers) == ("failed_precondition", [])
        return
    native.answers += [shown.SerializeToString(), high_watermark(3)]
    native.subscriptions = [FakeSubscription([FakeBatch(0, 3)])]
    assert sum(map(len, client_of(native).subscribe("s", stop="latest"))) == 3


def test_a_paused_partition_is_named_where_the_broker_does_not() -> None:
    native = FakeNative()
    native.subscriptions = [failure("failed_precondition", "commit log was closed", '{"reason": "paused"}')]
    with pytest.raises(StateError, match=r'^partition 2 of stream "s" is paused: subscribe with resume, or'):
        list(client_of(native).subscribe("s", partition=2))


def test_stop_latest_of_an_empty_partition_ends_at_once() -> None:
    native = FakeNative()
    native.answers = [high_watermark(0)]
    assert list(client_of(native).subscribe("s", stop="latest")) == []
    assert sent(native) == []


@pytest.mark.parametrize(
    "refusal",
    [
        failure("end_of_stream", "Stream is empty"),
        failure("invalid_argument", "Stop offset is before start offset: 3 < 5", '{"reason": "empty_range"}'),
        failure(
            "internal",
            "Failed to lookup offset for timestamp: timestamp is before the beginning of the log",
            '{"reason": "empty_range"}',
        ),
    ],
)
def test_a_range_that_the_broker_finds_empty_is_empty(refusal: Exception) -> None:
    native = FakeNative()
    native.subscriptions = [refusal]
    assert list(client_of(native).subscribe("s", start="new", stop=NOON)) == []


def test_a_stream_that_is_deleted_meanwhile_raises() -> None:
    native = FakeNative()
    native.subscriptions = [
        FakeSubscription(
            [FakeBatch(0, 1), failure("stream_not_found", "commit log was deleted", '{"reason": "deleted"}')]
        )
    ]
    found = iter(client_of(native).subscribe("s"))
    assert next(found).offsets == [0]
    with pytest.raises(StateError, match='the records of stream "s" no longer exist: it was deleted or purged'):
        next(found)


def test_a_broker_that_does_not_come_back_in_time_raises() -> None:
    native = FakeNative()
    native.subscriptions = [FakeSubscription([failure("unavailable")]), *[failure("unavailable")] * 10_000]
    with pytest.raises(UnavailableError):
        list(client_of(native, timeout=0.005).subscribe("s"))


def test_leaving_the_context_closes_it() -> None:
    native = FakeNative()
    opened = FakeSubscription([FakeBatch(0, 1)])
    native.subscriptions = [opened]
    with client_of(native).subscribe("s") as subscription:
        assert subscription.next_batch() is not None
    assert opened.closed
    with pytest.raises(UsageError, match="the subscription is closed"):
        subscription.next_batch()


def test_nothing_in_time_is_none_and_not_the_end() -> None:
    native = FakeNative()
    native.subscriptions = [FakeSubscription([None, FakeBatch(0, 1)])]
    subscription = client_of(native).subscribe("s")
    assert subscription.next_batch(timeout=0.01) is None
    assert not subscription.ended
    batch = subscription.next_batch(timeout=0.01)
    assert batch is not None
    assert len(batch) == 1


def cursor_at(offset: int) -> bytes:
    return message("FetchCursorResponse")(offset=offset).SerializeToString()


@pytest.mark.parametrize(("stored", "position", "start"), [(-1, 2, 0), (0, 1, 1), (41, 1, 42)])
def test_reading_continues_after_the_cursor_or_at_start_without_one(stored: int, position: int, start: int) -> None:
    native = FakeNative()
    native.answers = [cursor_at(stored)]
    native.subscriptions = [FakeSubscription([FakeBatch(start, 1)])]
    subscription = client_of(native).subscribe("s", partition=3, cursor="reader")
    assert subscription.next_batch() is not None
    ((_, body), _) = native.requests
    asked = message("FetchCursorRequest").FromString(body)
    assert (asked.cursorId, asked.stream, asked.partition) == ("reader", "s", 3)
    (request,) = sent(native)
    assert (request.startPosition, request.startOffset) == (position, start)


def test_a_cursor_is_fetched_once_and_commit_stores_the_returned_position() -> None:
    native = FakeNative()
    native.answers = [cursor_at(9)]
    native.subscriptions = [
        FakeSubscription([FakeBatch(10, 3), failure("unavailable")]),
        FakeSubscription([FakeBatch(13, 1)]),
    ]
    subscription = client_of(native).subscribe("s", cursor="reader")
    subscription.open()
    assert subscription.commit() is None
    batches = list(subscription)
    assert [len(batch) for batch in batches] == [3, 1]
    assert subscription.commit() == 13
    methods = [method for method, _ in native.requests]
    assert methods == ["FetchCursor", "Subscribe", "Subscribe", "SetCursor"]
    stored = message("SetCursorRequest").FromString(native.requests[-1][1])
    assert (stored.cursorId, stored.stream, stored.offset) == ("reader", "s", 13)


def test_without_a_cursor_there_is_nothing_to_commit() -> None:
    with pytest.raises(UsageError, match="the subscription has no cursor"):
        client_of(FakeNative()).subscribe("s").commit()


def test_reverse_reading_descends_and_reconnects_below_the_last_record() -> None:
    native = FakeNative()
    down = FakeBatch(0, 0)
    down.numbers = [9, 8, 7]
    native.subscriptions = [
        FakeSubscription([down, failure("unavailable")]),
        FakeSubscription([failure("end_of_stream")]),
    ]
    subscription = client_of(native).subscribe("s", start=9, stop=4, reverse=True)
    assert [batch.offsets for batch in subscription] == [[9, 8, 7]]
    first, second = sent(native)
    assert (first.reverse, first.startOffset, first.stopOffset) == (True, 9, 5)
    assert (second.reverse, second.startOffset, second.stopOffset) == (True, 6, 5)


def test_reverse_reading_that_reconnects_below_the_log_start_ends() -> None:
    native = FakeNative()
    down, again = FakeBatch(0, 0), FakeBatch(0, 0)
    down.numbers, again.numbers = [9, 8, 7], [7]
    native.subscriptions = [
        FakeSubscription([down, failure("unavailable")]),
        FakeSubscription([again, failure("end_of_stream")], start=7),
    ]
    subscription = client_of(native).subscribe("s", start=9, reverse=True)
    assert [batch.offsets for batch in subscription] == [[9, 8, 7]]


def test_reverse_ends_below_the_first_record_without_asking_again() -> None:
    native = FakeNative()
    down = FakeBatch(0, 0)
    down.numbers = [1, 0]
    native.subscriptions = [FakeSubscription([down, failure("unavailable")])]
    assert [batch.offsets for batch in client_of(native).subscribe("s", start="latest", reverse=True)] == [[1, 0]]
    assert len(sent(native)) == 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"reverse": True, "start": "new"}, "a reverse reader gets no new records"),
        ({"reverse": True, "stop": "latest"}, "stop is an offset or None when reading in reverse"),
        ({"reverse": True, "cursor": "c"}, "a cursor moves forward"),
        ({"cursor": ""}, "cursor is empty: give it 1 to 1024 bytes"),
        ({"cursor": "x" * 1025}, "has 1025 bytes: give it 1 to 1024 bytes"),
        ({"partition": -1}, "partition is -1: it must be from 0 to 2147483647"),
        ({"batch_records": 0}, "batch_records is 1 or more, not 0"),
    ],
)
def test_unencodable_records_are_rejected_before_anything_is_sent(wrong: dict[str, Any], reason: str) -> None:
    native = FakeNative()
    with pytest.raises(UsageError, match=reason) as raised:
        client_of(native).subscribe("s", **wrong)
    assert raised.value.code == "invalid_argument"
    assert native.requests == []
