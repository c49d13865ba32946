"""Liftbridge's admin methods: the order of checks, codes and texts, and what answers show."""

from typing import Any

import pytest
from bascule._liftbridge_pb import message
from bascule.metadata.model import incarnation_of
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge import is_subject

from tests.unit.control.fake_plane import until
from tests.unit.control.rig import Rig


async def call(rig: Rig, method: str, timeout_ms: int = -1, **fields: Any) -> tuple[int, str, bytes]:
    """Send one request through the seam; the reply."""
    request_id = len(rig.plane.replies) + 1000
    rig.plane.request(
        request_id, f"liftbridge/{method}", message(f"{method}Request")(**fields).SerializeToString(), timeout_ms
    )
    await until(lambda: request_id in rig.plane.replies)
    return rig.plane.replies[request_id]


async def good(rig: Rig, method: str, **fields: Any) -> Any:
    code, text, body = await call(rig, method, **fields)
    assert (code, text) == (0, "")
    return message(f"{method}Response").FromString(body)


async def bad(rig: Rig, method: str, **fields: Any) -> tuple[Status, str]:
    code, text, body = await call(rig, method, **fields)
    assert body == b""
    return Status(code), text


async def test_a_created_stream_is_shown_with_its_partitions(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="a.*", partitions=2)
    rig.plane.positions[incarnation_of(2, 1)] = (0, 5, 7, 100, 11, 12, 0, 0)
    answer = await good(rig, "FetchMetadata")
    (stream,) = answer.streamMetadata
    assert (stream.name, stream.subject, stream.error, stream.creationTimestamp) == ("s", "a.*", 0, 1_000)
    empty, filled = stream.partitions[0], stream.partitions[1]
    assert (empty.highWatermark, empty.newestOffset) == (-1, -1)
    assert (filled.highWatermark, filled.newestOffset) == (4, 6)
    assert (filled.id, filled.leader, list(filled.replicas), list(filled.isr)) == (1, "a", ["a"], ["a"])
    received = filled.messagesReceivedTimestamps
    assert (received.firstTimestamp, received.latestTimestamp) == (11, 12)


async def test_brokers_are_shown_with_address_and_load(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s", partitions=3)
    (broker,) = (await good(rig, "FetchMetadata")).brokers
    assert (broker.id, broker.host, broker.port) == ("a", "127.0.0.1", 9292)
    assert (broker.partitionCount, broker.leaderCount) == (3, 3)


async def test_streams_and_groups_come_in_the_order_asked_once_each_unknown_ones_included(rig: Rig) -> None:
    for name in ("b", "a"):
        await good(rig, "CreateStream", name=name, subject=name)
    answer = await good(rig, "FetchMetadata", streams=["b", "x", "a", "b", "x"], groups=["g", "g"])
    assert [(item.name, item.error) for item in answer.streamMetadata] == [("b", 0), ("x", 1), ("a", 0)]
    assert [(item.groupId, item.error) for item in answer.groupMetadata] == [("g", 1)]
    everything = await good(rig, "FetchMetadata")
    assert [item.name for item in everything.streamMetadata] == ["a", "b"]
    assert not everything.groupMetadata


NAME = (Status.INVALID_ARGUMENT, "Name cannot be empty")
SUBJECT = (Status.INVALID_ARGUMENT, "Subject is invalid")
RESERVED = (Status.INVALID_ARGUMENT, "Stream is reserved")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, NAME),
        ({"subject": "a b", "partitions": -1}, NAME),
        ({"name": "s"}, SUBJECT),
        ({"name": "s", "subject": "a..b"}, SUBJECT),
        ({"name": "s", "subject": "a b"}, SUBJECT),
        ({"name": "__cursors", "subject": ".a"}, SUBJECT),
        ({"name": "__cursors", "subject": "a", "partitions": -1}, RESERVED),
        ({"name": "__activity", "subject": "a"}, RESERVED),
        ({"name": "s", "subject": "a", "replicationFactor": 2}, (3, "Invalid replicationFactor 2, cluster size 1")),
        ({"name": "s", "subject": "a", "replicationFactor": -2}, (3, "Invalid replicationFactor -2")),
    ],
)
async def test_creation_is_refused_with_exact_codes_and_texts(
    rig: Rig, fields: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert await bad(rig, "CreateStream", **fields) == expected
    assert not rig.plane.view


async def test_negative_partitions_are_refused(rig: Rig) -> None:
    code, text = await bad(rig, "CreateStream", name="s", subject="s", partitions=-1)
    assert code is Status.INVALID_ARGUMENT
    assert "-1" in text


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "a\\b", "a b", "a*", "a>", ".", "..", "a\tb", "a\0b", "x" * 256, "\x85"]
)
async def test_names_that_would_break_paths_or_subjects_are_refused(rig: Rig, name: str) -> None:
    code, text = await bad(rig, "CreateStream", name=name, subject="s")
    assert code is Status.INVALID_ARGUMENT
    assert text.startswith("Stream name ")


@pytest.mark.parametrize("name", ["a", "a.b", "x" * 255, "Ünïcode", "a%b", "...", "__other"])
async def test_ordinary_names_are_accepted(rig: Rig, name: str) -> None:
    await good(rig, "CreateStream", name=name, subject="s")


async def test_creating_twice_and_deleting_twice_is_refused(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    assert await bad(rig, "CreateStream", name="s", subject="t") == (Status.ALREADY_EXISTS, "stream already exists")
    await good(rig, "DeleteStream", name="s")
    assert await bad(rig, "DeleteStream", name="s") == (Status.NOT_FOUND, "stream does not exist")
    await good(rig, "CreateStream", name="s", subject="s")


async def test_reserved_streams_are_not_deleted(rig: Rig) -> None:
    assert await bad(rig, "DeleteStream", name="__cursors") == RESERVED


async def test_settings_are_kept_as_they_were_asked(rig: Rig) -> None:
    await good(
        rig,
        "CreateStream",
        name="s",
        subject="s",
        retentionMaxBytes={"value": 0},
        retentionMaxAge={"value": 5_000},
        autoPauseTime={"value": 7},
        minIsr={"value": 1},
        optimisticConcurrencyControl={"value": True},
    )
    stream = rig.controller.state.stream("default", "s")
    assert stream is not None
    settings = stream.settings
    assert (settings.retention_bytes, settings.retention_age_ms, settings.retention_messages) == (0, 5_000, None)
    assert (settings.auto_pause_ms, settings.min_isr, settings.concurrency_control) == (7, 1, True)


@pytest.mark.parametrize(
    ("field", "value", "bounds"),
    [
        ("retentionMaxAge", -1, "0 and 9223372036854775807"),
        ("minIsr", 256, "0 and 255"),
        ("maxRecordBytes", 0, "1 and 67108864"),
        ("maxRecordBytes", 1 << 40, "1 and 67108864"),
    ],
)
async def test_settings_out_of_bounds_are_refused_by_name(rig: Rig, field: str, value: int, bounds: str) -> None:
    code, text = await bad(rig, "CreateStream", name="s", subject="s", **{field: {"value": value}})
    assert (code, text) == (Status.INVALID_ARGUMENT, f"{field} is {value}, not between {bounds}")


async def test_partition_metadata_comes_from_the_leader(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    rig.plane.positions[incarnation_of(2, 0)] = (0, 3, 3, 10, 1, 2, 0, 0)
    answer = await good(rig, "FetchPartitionMetadata", stream="s", partition=0)
    assert (answer.metadata.highWatermark, answer.metadata.newestOffset) == (2, 2)


@pytest.mark.parametrize(("stream", "partition"), [("x", 0), ("s", 1), ("s", -1)])
async def test_metadata_of_an_unknown_partition_is_not_found(rig: Rig, stream: str, partition: int) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    answer = await bad(rig, "FetchPartitionMetadata", stream=stream, partition=partition)
    assert answer == (Status.NOT_FOUND, "partition not found")


async def test_metadata_of_a_partition_that_is_not_open_here_is_refused(rig: Rig) -> None:
    await good(rig, "CreateStream", name="s", subject="s")
    rig.plane.opened.clear()
    answer = await bad(rig, "FetchPartitionMetadata", stream="s", partition=0)
    assert answer == (Status.FAILED_PRECONDITION, "The request should be sent to partition leader")


async def test_an_unknown_method_is_unimplemented(rig: Rig) -> None:
    rig.plane.request(1, "liftbridge/Merge", b"")
    await until(lambda: 1 in rig.plane.replies)
    assert rig.plane.replies[1][0] == Status.UNIMPLEMENTED


async def test_malformed_requests_are_refused_and_the_next_one_is_served(rig: Rig) -> None:
    rig.plane.request(1, "liftbridge/CreateStream", b"\xff\xff")
    await until(lambda: 1 in rig.plane.replies)
    text = "grpc: error unmarshalling request: malformed CreateStreamRequest"
    assert rig.plane.replies[1] == (Status.INTERNAL, text, b"")
    await good(rig, "CreateStream", name="s", subject="s")


async def test_a_metadata_write_that_gets_no_answer_ends_with_the_callers_deadline(rig: Rig) -> None:
    rig.plane.silent = True
    code, text, _ = await call(rig, "CreateStream", 20, name="s", subject="s")
    assert code == Status.INTERNAL
    assert text.startswith("Failed to replicate partition: ")
    assert text.endswith("raft operation timed out")


async def test_a_bug_in_a_handler_is_internal_and_hides_its_trace(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr(rig.controller, "status", explode)
    code, text = await bad(rig, "FetchMetadata")
    assert code is Status.INTERNAL
    assert "secret" not in text


async def test_a_text_that_no_header_can_hold_holds_up_no_other_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StatusError(Status.NOT_FOUND, "no \ud800")

    monkeypatch.setattr(rig.controller, "status", refuse)
    assert await bad(rig, "FetchMetadata") == (Status.NOT_FOUND, "no \\ud800")


@pytest.mark.parametrize("subject", ["a", "a.b", "a.*", ">", "a.>", "*", "ä", "a>b"])
def test_these_are_subjects(subject: str) -> None:
    assert is_subject(subject)


@pytest.mark.parametrize(
    "subject", ["", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\nb", "a\rb", "a\0b", "a.>.b", ">.a"]
)
def test_invalid_subjects(subject: str) -> None:
    assert not is_subject(subject)
