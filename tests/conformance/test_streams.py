"""CreateStream, DeleteStream, FetchMetadata, settings of a stream (liftbridge §3.1, §3.2, §3.6, §3.10, §5.5)."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from bascule.testing import TestBroker, broker

from tests.conformance.api import EARLIEST, OFFSET, Api, Failed, failed
from tests.waiting import until

EMPTY = "Name cannot be empty"


@pytest.fixture(scope="module")
def running() -> Iterator[TestBroker]:
    """A broker that applies retention at once; others keep everything for 15 minutes."""
    with broker(settings={"streams.retention_min_age_ms": 0}) as started:
        yield started


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


def test_a_second_creation_exists_already_and_a_second_deletion_finds_nothing(api: Api, stream: str) -> None:
    api.create(stream)
    with pytest.raises(Failed, check=failed("ALREADY_EXISTS", "stream already exists")):
        api.create(stream, subject="another")
    api.call("DeleteStream", name=stream)
    with pytest.raises(Failed, check=failed("NOT_FOUND", "stream does not exist")):
        api.call("DeleteStream", name=stream)


def test_a_stream_created_again_starts_at_0_at_once(api: Api, stream: str) -> None:
    for _ in range(3):
        api.create(stream)
        assert [api.publish(stream), api.publish(stream)] == [0, 1]
        api.call("DeleteStream", name=stream)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"name": "", "subject": "a b"}, EMPTY),
        ({"subject": ""}, "Subject is invalid"),
        ({"subject": "a b"}, "Subject is invalid"),
        ({"subject": "a\tb"}, "Subject is invalid"),
        ({"subject": "a..b"}, "Subject is invalid"),
        ({"subject": ".a"}, "Subject is invalid"),
        ({"name": "__cursors"}, "Stream is reserved"),
        ({"name": "__activity"}, "Stream is reserved"),
        ({"replicationFactor": 2}, "Invalid replicationFactor 2, cluster size 1"),
        ({"replicationFactor": -2}, "Invalid replicationFactor -2"),
    ],
)
def test_what_cannot_be_created_is_refused_with_exact_texts(api: Api, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", text)):
        api.create(fields.pop("name", "refused"), **{"subject": "refused", **fields})


@pytest.mark.parametrize("name", ["../x", "/", "a b", "*", ">", "a>", ".", "..", "a\0b", "a\\b", "x" * 256, "a\u2028b"])
def test_names_that_would_escape_are_refused(api: Api, name: str) -> None:
    with pytest.raises(Failed) as refusal:
        api.create(name, subject="escapes")
    assert refusal.value.code.name == "INVALID_ARGUMENT"


def test_negative_counts_are_refused_by_name(api: Api, stream: str) -> None:
    for fields in ({"partitions": -1}, {"retentionMaxAge": {"value": -1}}, {"minIsr": {"value": -1}}):
        with pytest.raises(Failed) as refusal:
            api.create(stream, **fields)
        assert refusal.value.code.name == "INVALID_ARGUMENT"
        assert "-1" in refusal.value.text


def test_metadata_shows_partitions_replicas_and_the_broker(running: TestBroker, api: Api, stream: str) -> None:
    before = time.time_ns()
    api.create(stream, subject=f"{stream}.*", partitions=3, replicationFactor=-1)
    shown = api.stream(stream)
    (here,) = api.call("FetchMetadata").brokers
    assert (shown.name, shown.subject, sorted(shown.partitions)) == (stream, f"{stream}.*", [0, 1, 2])
    assert before <= shown.creationTimestamp <= time.time_ns()
    for number in range(3):
        partition = shown.partitions[number]
        assert (partition.id, partition.leader) == (number, here.id)
        assert list(partition.replicas) == list(partition.isr) == [here.id]
        assert (partition.highWatermark, partition.newestOffset) == (-1, -1)
        assert partition.logStartOffset.value == 0
    assert f"{here.host}:{here.port}" == running.address
    assert shown.error == 0
    api.call("PauseStream", name=stream, partitions=[1])
    paused = api.stream(stream).partitions
    assert [paused[number].HasField("logStartOffset") for number in range(3)] == [True, False, True]
    assert here.partitionCount >= 3
    assert here.leaderCount == here.partitionCount


def test_asked_streams_come_in_order_once_each_with_unknown_ones(api: Api, stream: str) -> None:
    api.create(stream)
    answer = api.call("FetchMetadata", streams=[stream, "nothing", stream], groups=["no group"])
    assert [(item.name, item.error) for item in answer.streamMetadata] == [(stream, 0), ("nothing", 1)]
    assert [(item.groupId, item.error) for item in answer.groupMetadata] == [("no group", 1)]
    assert [broker.id for broker in answer.brokers] == [api.stream(stream).partitions[0].leader]
    assert not api.call("FetchMetadata").groupMetadata


def test_partition_metadata_has_the_ends_and_the_times_of_receipts(api: Api, stream: str) -> None:
    api.create(stream)
    with pytest.raises(Failed, check=failed("NOT_FOUND", "partition not found")):
        api.partition(stream, 1)
    with pytest.raises(Failed, check=failed("NOT_FOUND", "partition not found")):
        api.partition("nothing")
    assert api.partition(stream).messagesReceivedTimestamps.firstTimestamp == 0
    before = time.time_ns()
    api.fill(stream, 2)
    found = api.partition(stream)
    assert (found.highWatermark, found.newestOffset) == (1, 1)
    times = found.messagesReceivedTimestamps
    assert before <= times.firstTimestamp <= times.latestTimestamp <= time.time_ns()


RETAINED = {"segmentMaxBytes": {"value": 1}, "cleanerInterval": {"value": 100}}
VALUE = b"x" * 1000


def oldest_of(api: Api, stream: str) -> int:
    return api.subscribe(stream, startPosition=EARLIEST).next().offset


@pytest.mark.parametrize(
    ("limit", "oldest"),
    [
        ({"retentionMaxBytes": {"value": 100}}, 9),
        ({"retentionMaxBytes": {"value": 1900}}, 9),
        ({"retentionMaxMessages": {"value": 5}}, 5),
    ],
)
def test_retention_with_segments_of_one_record(api: Api, stream: str, limit: dict[str, Any], oldest: int) -> None:
    api.create(stream, **RETAINED, **limit)
    for _ in range(10):
        api.publish(stream, VALUE)
    until(lambda: oldest_of(api, stream) >= oldest)
    time.sleep(0.4)
    assert oldest_of(api, stream) == oldest
    assert api.subscribe(stream, startPosition=OFFSET, startOffset=2).next().offset == oldest


def test_retention_by_age_leaves_what_is_young(api: Api, stream: str) -> None:
    patient = f"{stream}-patient"
    api.create(stream, **RETAINED, retentionMaxAge={"value": 1_000})
    api.create(patient, **RETAINED, retentionMaxAge={"value": 3_600_000})
    for _ in range(9):
        api.publish(stream, VALUE)
        api.publish(patient, VALUE)
    time.sleep(1.3)  # until they are old
    api.publish(stream, b"young")
    until(lambda: oldest_of(api, stream) == 9)
    assert oldest_of(api, patient) == 0


def test_segments_roll_by_age(api: Api, stream: str) -> None:
    api.create(stream, cleanerInterval={"value": 100}, segmentMaxAge={"value": 300}, retentionMaxMessages={"value": 1})
    api.publish(stream, b"first")
    time.sleep(0.8)
    api.publish(stream, b"second")
    until(lambda: oldest_of(api, stream) == 1)


def test_settings_of_one_stream_leave_others_alone(api: Api, stream: str) -> None:
    api.create(stream, **RETAINED, retentionMaxMessages={"value": 1})
    other = f"{stream}-other"
    api.create(other)
    for name in (stream, other):
        api.fill(name, 5)
    until(lambda: api.subscribe(stream).next().offset == 4)
    assert api.subscribe(other).next().offset == 0
