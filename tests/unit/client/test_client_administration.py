"""Streams, brokers, cursors and groups over a fake native core."""

import threading
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from bascule import StreamOptions, _admin_pb, group_cursor
from bascule._liftbridge_pb import message
from bascule.client import EventTimes, Group
from bascule.client._core.deadline import Deadline
from bascule.client._core.routes import CursorPlace
from bascule.errors import BrokerError, OutcomeUnknownError, StateError, UnavailableError, UsageError

from tests.unit.client.fakes import FakeNative, client_of, failure


def sent(native: FakeNative, method: str) -> Any:
    ((found, body),) = native.requests
    assert found == method
    return message(f"{method}Request").FromString(body)


def metadata(name: str, partitions: int, subject: str = "") -> bytes:
    response = message("FetchMetadataResponse")()
    stream = response.streamMetadata.add(name=name, subject=subject)
    for number in range(partitions):
        stream.partitions[number].id = number
    return response.SerializeToString()


def test_every_option_of_a_stream_is_sent() -> None:
    native = FakeNative()
    options = StreamOptions(
        group="g",
        partitions=2,
        replication_factor=-1,
        retention_max_bytes=1,
        retention_max_messages=2,
        retention_max_age=timedelta(seconds=3),
        cleaner_interval=timedelta(seconds=4),
        segment_max_bytes=5,
        segment_max_age=timedelta(seconds=6),
        compact_enabled=False,
        compact_parallelism=7,
        auto_pause_time=timedelta(seconds=8),
        auto_pause_disable_if_subscribers=True,
        min_isr=9,
        concurrency_control=True,
        encryption=False,
        partition_by_subject=True,
    )
    client_of(native).create_stream("s", "a.*", options=options)
    request = sent(native, "CreateStream")
    wrappers = {
        field.name: getattr(request, field.name).value
        for field, _ in request.ListFields()
        if field.message_type is not None
    }
    assert wrappers == {
        "retentionMaxBytes": 1,
        "retentionMaxMessages": 2,
        "retentionMaxAge": 3000,
        "cleanerInterval": 4000,
        "segmentMaxBytes": 5,
        "segmentMaxAge": 6000,
        "compactEnabled": False,
        "compactMaxGoroutines": 7,
        "autoPauseTime": 8000,
        "autoPauseDisableIfSubscribers": True,
        "minIsr": 9,
        "optimisticConcurrencyControl": True,
        "encryption": False,
        "partitionBySubject": True,
    }
    assert (request.group, request.partitions, request.replicationFactor) == ("g", 2, -1)


def details(**differences: Any) -> bytes:
    whole = {"name": "s", "subject": "s", "settings": {"partition_by_subject": False}}
    return _admin_pb.message("FetchStreamDetailsResponse")(**{**whole, **differences}).SerializeToString()


@pytest.mark.parametrize(
    ("subject", "options", "said"),
    [
        (None, StreamOptions(partitions=4), "and its number of partitions is 2, not 4: choose another name"),
        (None, StreamOptions(partitions=1), "its number of partitions is 2, not 1"),
        ("b.>", None, "its subject is 's.*', not 'b.>'"),
        ("b.>", StreamOptions(partitions=3), "its subject is 's.*', not 'b.>', its number of partitions is 2, not 3"),
        (None, StreamOptions(encryption=True), "its encryption is False, not True"),
        (None, StreamOptions(partition_by_subject=True), "its partition_by_subject is False, not True"),
        (None, StreamOptions(group="g"), "its group is '', not 'g'"),
    ],
)
def test_exist_ok_reports_how_an_existing_stream_differs(
    subject: str | None, options: StreamOptions | None, said: str
) -> None:
    native = FakeNative()
    native.answers = [failure("stream_exists"), metadata("s", 2, "s.*"), details()]
    with pytest.raises(StateError) as raised:
        client_of(native).create_stream("s", subject, options=options, exist_ok=True)
    assert raised.value.code == "stream_exists"
    assert str(raised.value).startswith('stream "s" already exists, and its ')
    assert said in str(raised.value)
    assert raised.value.details["asked"].keys() == raised.value.details["found"].keys()


@pytest.mark.parametrize(
    ("subject", "options"),
    [
        ("s.*", StreamOptions(partitions=2, group="g", encryption=True, partition_by_subject=False)),
        (None, StreamOptions(retention_max_bytes=5, replication_factor=-1)),
        (None, None),
    ],
)
def test_exist_ok_accepts_a_matching_stream(subject: str | None, options: StreamOptions | None) -> None:
    native = FakeNative()
    native.answers = [
        failure("stream_exists"), metadata("s", 2, "s.*"), details(encrypted=True, queue_group="g"),
    ]  # fmt: skip
    client_of(native).create_stream("s", subject, options=options, exist_ok=True)


def test_one_deadline_covers_the_creation_and_the_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    native = FakeNative()
    now, left = 0.0, list[int]()

    def call(method: str, request: bytes, timeout_ms: int) -> bytes:
        nonlocal now
        now += 1
        left.append(timeout_ms)
        return FakeNative.call(native, method, request, timeout_ms)

    monkeypatch.setattr("bascule.client._core.deadline.time", SimpleNamespace(monotonic=lambda: now))
    monkeypatch.setattr(native, "call", call)
    options = StreamOptions(encryption=False)
    native.answers = [failure("stream_exists"), metadata("s", 1), details()]
    client_of(native).create_stream("s", options=options, exist_ok=True, timeout=4)
    assert left == [4000, 3000, 2000]
    native.answers = [failure("stream_exists"), metadata("s", 1), details()]
    with pytest.raises(UnavailableError) as raised:
        client_of(native).create_stream("s", options=options, exist_ok=True, timeout=2)
    assert raised.value.code == "deadline_exceeded"


def test_a_stream_deleted_before_the_check_is_created() -> None:
    native = FakeNative()
    options = StreamOptions(partitions=2)
    native.answers = [failure("stream_exists"), failure("stream_not_found"), b""]
    client_of(native).create_stream("s", options=options, exist_ok=True)
    assert [method for method, _ in native.requests] == ["CreateStream", "FetchMetadata", "CreateStream"]
    native.answers = [failure("stream_exists"), failure("stream_not_found")] * 2
    with pytest.raises(StateError) as raised:
        client_of(native).create_stream("s", options=options, exist_ok=True)
    assert raised.value.code == "stream_not_found"
    assert native.answers == []
    native.answers = [failure("stream_exists"), failure("stream_not_found"), failure("stream_exists"), metadata("s", 1)]
    with pytest.raises(StateError, match="its number of partitions is 1, not 2"):
        client_of(native).create_stream("s", options=options, exist_ok=True)


def test_unknown_properties_are_not_compared() -> None:
    native = FakeNative()
    native.answers = [failure("stream_exists"), failure("permission_denied"), failure("unimplemented")]
    options = StreamOptions(partitions=4, encryption=True)
    client_of(native).create_stream("s", "t", options=options, exist_ok=True)
    assert [method for method, _ in native.requests] == ["CreateStream", "FetchMetadata", "FetchStreamDetails"]
    native.answers = [failure("stream_exists"), metadata("s", 2, "t"), failure("unimplemented")]
    with pytest.raises(StateError, match="number of partitions is 2, not 4"):
        client_of(native).create_stream("s", "t", options=options, exist_ok=True)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"partitions": -1}, "partitions is -1: it must be from 0"),
        ({"replication_factor": -2}, "replication_factor is -2: it must be from -1"),
        ({"retention_max_bytes": -1}, "retention_max_bytes is -1: it must be from 0"),
        ({"retention_max_bytes": 2**63}, "retention_max_bytes is 9223372036854775808: it must be from 0"),
        ({"min_isr": 2**31}, "min_isr is 2147483648: it must be from 0 to 2147483647"),
        ({"segment_max_age": timedelta(seconds=-1)}, "segment_max_age is -1 day, 23:59:59: it must be from 0:00:00"),
    ],
)
def test_options_out_of_range_are_refused_with_the_bound(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError) as raised:
        StreamOptions(**wrong)
    assert reason in str(raised.value)


def test_pausing_and_readonly_say_which_partitions() -> None:
    native = FakeNative()
    client_of(native).pause_stream("s", partitions=[0, 2], resume_all=True)
    request = sent(native, "PauseStream")
    assert (request.name, list(request.partitions), request.resumeAll) == ("s", [0, 2], True)
    native.requests.clear()
    client_of(native).set_readonly("s")
    assert sent(native, "SetStreamReadonly").readonly
    native.requests.clear()
    client_of(native).set_readonly("s", False, partitions=[1])
    request = sent(native, "SetStreamReadonly")
    assert (request.readonly, list(request.partitions)) == (False, [1])
    with pytest.raises(UsageError, match="partition is -1"):
        client_of(native).pause_stream("s", partitions=[-1])


def test_idempotent_calls_are_retried_after_a_lost_answer() -> None:
    native = FakeNative()
    native.answers = [failure("outcome_unknown"), b"", failure("outcome_unknown"), b""]
    client = client_of(native)
    client.set_cursor("c", "s", 4)
    client.pause_stream("s")
    assert [method for method, _ in native.requests] == ["SetCursor", "SetCursor", "PauseStream", "PauseStream"]
    native.answers = [failure("outcome_unknown")]
    with pytest.raises(OutcomeUnknownError):
        client.delete_stream("s")


def test_a_retried_position_does_not_overwrite_a_later_one() -> None:
    later: list[threading.Thread] = []

    class Losing(FakeNative):
        def call(self, method: str, request: bytes, timeout_ms: int) -> bytes:
            if not later:
                later.append(threading.Thread(target=client.set_cursor, args=("c", "s", 9)))
                later[0].start()
                client.set_cursor("c", "s", 2, partition=1)
                later[0].join(0.02)  # must not end before this one
            return super().call(method, request, timeout_ms)

    native = Losing()
    client = client_of(native, timeout=20)
    native.answers = [b"", failure("outcome_unknown"), failure("unavailable")]
    client.set_cursor("c", "s", 4)
    later[0].join(20)
    stored = [message("SetCursorRequest").FromString(body) for _, body in native.requests]
    assert [(item.partition, item.offset) for item in stored] == [(1, 2), (0, 4), (0, 4), (0, 4), (0, 9)]


def test_a_position_that_waits_past_the_deadline_is_not_stored() -> None:
    native = FakeNative()
    client = client_of(native)
    with client._pool.locks.held(CursorPlace("c", "s", 0), Deadline(1)):  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(UnavailableError, match=r"nothing was done within 0\.01 s"):
            client.set_cursor("c", "s", 4, timeout=0.01)
        client.set_cursor("d", "s", 4)
    client.set_cursor("c", "s", 5)
    stored = [message("SetCursorRequest").FromString(body) for _, body in native.requests]
    assert [(item.cursorId, item.offset) for item in stored] == [("d", 4), ("c", 5)]


def test_cursors_hold_an_offset_or_nothing() -> None:
    native = FakeNative()
    client = client_of(native)
    client.set_cursor("c", "s", 7, partition=2)
    request = sent(native, "SetCursor")
    assert (request.cursorId, request.stream, request.partition, request.offset) == ("c", "s", 2, 7)
    native.requests.clear()
    client.set_cursor("c", "s", None)
    assert sent(native, "SetCursor").offset == -1
    native.answers = [message("FetchCursorResponse")(offset=value).SerializeToString() for value in (-1, 0, 8)]
    assert [client.fetch_cursor("c", "s") for _ in range(3)] == [None, 0, 8]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("", "s", 1), "cursor is empty: give it 1 to 1024 bytes"),
        (("c", "", 1), "stream is empty: give it 1 to 1024 bytes"),
        (("c", "s", -1), "offset is -1: it must be from 0 to 9223372036854775807"),
        (("c", "s", 2**63), "offset is 9223372036854775808"),
    ],
)
def test_invalid_cursors_are_rejected_before_anything_is_sent(arguments: Any, reason: str) -> None:
    native = FakeNative()
    with pytest.raises(UsageError, match=reason):
        client_of(native).set_cursor(*arguments)
    assert native.requests == []


def test_a_group_has_a_coordinator_and_an_epoch() -> None:
    native = FakeNative()
    response = message("FetchMetadataResponse")()
    response.groupMetadata.add(groupId="g", coordinator="b", epoch=5)
    missing = message("FetchMetadataResponse")()
    missing.groupMetadata.add(groupId="h", error=1)
    native.answers = [response.SerializeToString(), missing.SerializeToString()]
    client = client_of(native)
    assert client.get_group("g") == Group("g", "b", 5)
    with pytest.raises(StateError, match='consumer group "h" does not exist') as raised:
        client.get_group("h")
    assert raised.value.code == "not_found"
    assert group_cursor("g") == "__group:g"
    with pytest.raises(UsageError, match="group is empty"):
        group_cursor("")


def test_leaving_names_the_group_and_the_member() -> None:
    native = FakeNative()
    client_of(native).leave_group("g", "a")
    request = sent(native, "LeaveConsumerGroup")
    assert (request.groupId, request.consumerId) == ("g", "a")
    with pytest.raises(UsageError, match="has 256 bytes: give it 1 to 255 bytes"):
        client_of(native).leave_group("g" * 256, "a")


def test_partition_times_are_decoded() -> None:
    native = FakeNative()
    response = message("FetchPartitionMetadataResponse")()
    response.metadata.messagesReceivedTimestamps.firstTimestamp = 1_000_000_000
    response.metadata.messagesReceivedTimestamps.latestTimestamp = 2_000_000_000
    native.answers = [response.SerializeToString()]
    partition = client_of(native).get_partition("s")
    first, latest = (datetime(1970, 1, 1, 0, 0, second, tzinfo=UTC) for second in (1, 2))
    assert partition.received_times == EventTimes(first, latest)
    assert partition.pause_times == EventTimes(None, None)


def test_brokers_are_listed() -> None:
    native = FakeNative()
    response = message("FetchMetadataResponse")()
    response.brokers.add(id="b", host="h", port=1, partitionCount=2, leaderCount=3)
    native.answers = [response.SerializeToString()]
    (broker,) = client_of(native).list_brokers()
    assert (broker.id, broker.host, broker.port, broker.partitions, broker.leaders) == ("b", "h", 1, 2, 3)


def test_a_record_for_a_subject_comes_back_with_the_stream_that_took_it() -> None:
    native = FakeNative()
    response = message("PublishToSubjectResponse")()
    response.ack.stream, response.ack.offset, response.ack.receptionTimestamp = "s", 3, 9
    refused = message("PublishToSubjectResponse")()
    refused.ack.stream, refused.ack.msgSubject, refused.ack.ackError = "s", "a.b", 2
    native.answers = [response.SerializeToString(), b"", refused.SerializeToString()]
    client = client_of(native)
    receipt = client.publish_to_subject("a.b", b"v", key=b"k", headers={"h": b"1"}, ack="all")
    assert receipt == ("s", 3, 9)
    request = sent(native, "PublishToSubject")
    assert (request.subject, request.key, request.value, request.ackPolicy) == ("a.b", b"k", b"v", 1)
    assert dict(request.headers) == {"h": b"1"}
    assert client.publish_to_subject("a.b", b"v", ack="none") is None
    with pytest.raises(StateError, match=r'stream "s" rejected the record on subject "a\.b"') as raised:
        client.publish_to_subject("a.b", b"v")
    assert raised.value.code == "incorrect_offset"


@pytest.mark.parametrize("code", ["stream_not_found", "partition_not_found"])
def test_missing_objects_have_one_error_text(code: str) -> None:
    calls: list[Any] = [
        lambda client: client.publish("s", b"", partition=5),
        lambda client: client.get_partition("s", 5),
        lambda client: client.trim_partition("s", 5, 0),
        lambda client: client.pause_stream("s", partitions=[5]),
        lambda client: client.subscribe("s", partition=5).open(),
    ]
    sentences: set[str] = set()
    for call in calls:
        native = FakeNative()
        native.acks = [failure(code)]
        native.subscriptions = [failure(code)]
        native.answers = [failure(code), metadata("s", 3)]
        if call in (calls[0], calls[-1]):
            native.answers.pop(0)
        with pytest.raises(StateError) as raised:
            call(client_of(native))
        assert raised.value.code == code
        assert raised.value.details["stream"] == "s"
        sentences.add(str(raised.value))
    assert sentences == {
        'stream "s" does not exist: create it, or see bascule stream list'
        if code == "stream_not_found"
        else 'stream "s" has no partition 5: its partitions are numbered 0 to 2'
    }


def test_a_partition_that_is_missing_with_its_stream_is_a_stream_that_is_missing() -> None:
    native = FakeNative()
    unknown = message("FetchMetadataResponse")()
    unknown.streamMetadata.add(name="s", error=1)
    native.answers = [unknown.SerializeToString()]
    native.subscriptions = [failure("partition_not_found", "No such partition")]
    with pytest.raises(BrokerError, match='stream "s" does not exist') as raised:
        client_of(native).subscribe("s").open()
    assert raised.value.code == "stream_not_found"


def admin_sent(native: FakeNative, method: str) -> Any:
    ((found, body),) = native.requests
    native.requests.clear()
    assert found == method
    return _admin_pb.message(f"{method}Request").FromString(body)


def test_changes_of_settings_are_typed_and_none_resets() -> None:
    native = FakeNative()
    native.answers = [_admin_pb.message("EditStreamResponse")(after={"codec": "lz4"}).SerializeToString()]
    changes = {"codec": "lz4", "retention_age_ms": None, "min_isr": 0, "compact_enabled": False}
    before, after = client_of(native).edit_stream("s", changes, dry_run=True)
    assert (before["codec"], after["codec"], after["retention_bytes"]) == (None, "lz4", None)
    request = admin_sent(native, "EditStream")
    found = {field.name: value for field, value in request.changes.ListFields()}
    assert found == {"codec": "lz4", "min_isr": 0, "compact_enabled": False}
    assert (request.name, list(request.reset), request.dry_run) == ("s", ["retention_age_ms"], True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"codecs": "lz4"}, "codecs is not a setting of a stream, which has durability, codec"),
        ({"codec": 7}, "codec is 7, not a text"),
        ({"min_isr": True}, "min_isr is True, not a whole number"),
        ({"min_isr": 1.0}, "min_isr is 1.0, not a whole number"),
        ({"compact_enabled": 1}, "compact_enabled is 1, not true or false"),
        ({"retention_bytes": 1 << 63}, "retention_bytes is 9223372036854775808, not a whole number of 64 bits"),
    ],
)
def test_changes_that_cannot_be_sent_are_refused_by_name(changes: dict[str, Any], said: str) -> None:
    native = FakeNative()
    with pytest.raises(UsageError) as refused:
        client_of(native).edit_stream("s", changes)
    assert (said in str(refused.value), refused.value.code, native.requests) == (True, "invalid_argument", [])


def test_a_partition_that_is_not_open_has_no_offsets() -> None:
    native = FakeNative()
    there = {"number": 1, "open": {"log_end": 5, "high_watermark": 4}, "nats": {"not_stored": {"full": 2}}}
    damage = {"start": 1, "end": 2, "fault": "checksum", "path": "/f", "position": 64}
    native.answers = [details(partitions=[{"paused": True, "paused_ns": 5_000, "damaged": [damage]}, there])]
    closed, opened = client_of(native).describe_stream("s").partitions
    assert admin_sent(native, "FetchStreamDetails").name == "s"
    assert (closed.log_start, closed.log_end, closed.subscribers, closed.received_at) == (None, None, None, None)
    assert (closed.paused_at, closed.readonly_at) == (datetime(1970, 1, 1, 0, 0, 0, 5, tzinfo=UTC), None)
    assert (closed.damaged[0].end, closed.damaged[0].path) == (2, "/f")
    assert (opened.log_start, opened.high_watermark, opened.log_end, opened.number) == (0, 4, 5, 1)
    assert opened.nats_not_stored == {"full": 2}


def test_a_dry_run_of_a_creation_asks_about_the_same_request() -> None:
    native = FakeNative()
    native.answers = [b""]
    client_of(native).create_stream("s", options=StreamOptions(partitions=3), dry_run=True)
    asked = admin_sent(native, "CheckCreateStream").create
    assert (asked.name, asked.subject, asked.partitions) == ("s", "s", 3)
