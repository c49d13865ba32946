"""Publish, PublishAsync, PublishToSubject (liftbridge §3.7 to §3.9, §3.12)."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from bascule._liftbridge_pb import message
from bascule.testing import TestBroker

from tests.conformance.api import ALL, BAD_REQUEST, LEADER, NONE, NOT_FOUND, Api, Failed, failed
from tests.waiting import until


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


def test_ten_messages_are_read_as_they_were_sent(api: Api, stream: str) -> None:
    api.create(stream, subject=f"sub.{stream}")
    for index in range(10):
        policy = LEADER if index % 2 else ALL
        headers = {"h": b"%d" % index, "subject": b"overwritten"}
        api.publish(stream, b"value %d" % index, key=b"key %d" % index, ackPolicy=policy, headers=headers)
    read = api.read(stream)
    assert len(read) == 10
    for index, found in enumerate(read):
        assert (found.offset, found.key, found.value) == (index, b"key %d" % index, b"value %d" % index)
        assert dict(found.headers) == {"h": b"%d" % index, "subject": f"sub.{stream}".encode(), "reply": b""}
        assert (found.stream, found.partition, found.subject) == (stream, 0, f"sub.{stream}")
        assert found.timestamp > 0
        assert (found.ackInbox, found.correlationId, found.ackPolicy, found.replySubject) == ("", "", 0, "")


def test_an_ack_has_all_fields_and_its_reception_is_the_records_time(api: Api, stream: str) -> None:
    api.create(stream, subject=f"sub.{stream}", partitions=2)
    answer = api.call(
        "Publish", stream=stream, partition=1, ackPolicy=ALL, correlationId="c", ackInbox=f"inbox.{stream}"
    )
    ack = answer.ack
    assert (ack.stream, ack.partitionSubject, ack.msgSubject) == (stream, f"sub.{stream}", f"sub.{stream}.1")
    assert (ack.offset, ack.ackInbox, ack.correlationId, ack.ackPolicy) == (0, f"inbox.{stream}", "c", ALL)
    assert (ack.ackError, answer.correlationId) == (0, "")
    (found,) = api.read(stream, partition=1)
    assert 0 < ack.receptionTimestamp == found.timestamp <= ack.commitTimestamp


@pytest.mark.parametrize("policy", [LEADER, ALL, NONE])
def test_without_a_deadline_the_answer_is_empty_and_immediate(api: Api, stream: str, policy: int) -> None:
    api.create(stream)
    answer = api.call("Publish", None, stream=stream, value=b"x", ackPolicy=policy)
    assert answer == message("PublishResponse")()
    until(lambda: api.partition(stream).newestOffset == 0)


def test_unary_checks_have_their_codes_and_texts(api: Api, stream: str) -> None:
    api.create(stream)
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "no stream provided")):
        api.publish("")
    with pytest.raises(Failed, check=failed("NOT_FOUND", "no such stream: nothing")):
        api.publish("nothing")
    for number in (1, -1):
        with pytest.raises(Failed, check=failed("NOT_FOUND", f"no such partition: {number}")):
            api.publish(stream, partition=number)
    with pytest.raises(Failed, check=failed("INVALID_ARGUMENT", "message exceeds max replication size")):
        api.publish(stream, b"x" * ((1 << 20) + 1))


@pytest.mark.parametrize("inbox", ["a b", "a.*", "a\r\nPUB b 1\r\nx", ".a", "a" * 2001])
def test_an_ack_inbox_that_is_not_a_subject_is_refused(api: Api, stream: str, inbox: str) -> None:
    api.create(stream)
    calls: dict[str, dict[str, Any]] = {"Publish": {"stream": stream}, "PublishToSubject": {"subject": stream}}
    for method, fields in calls.items():
        with pytest.raises(Failed, match=r"INVALID_ARGUMENT ackInbox .* is not a valid subject to publish on"):
            api.call(method, ackPolicy=ALL, ackInbox=inbox, **fields)
    assert api.publish(stream, b"first", ackInbox="a" * 2000) == 0


@pytest.mark.parametrize("policy", [3, -1])
def test_an_unknown_ack_policy_is_rejected(api: Api, stream: str, policy: int) -> None:
    api.create(stream)
    refused = failed("INVALID_ARGUMENT", f"Unknown AckPolicy {policy}")
    with pytest.raises(Failed, check=refused):
        api.publish(stream, b"x", ackPolicy=policy)
    with pytest.raises(Failed, check=refused):
        api.call("PublishToSubject", subject=stream, value=b"x", ackPolicy=policy)
    (answer,) = api.publish_async([{"stream": stream, "ackPolicy": policy, "correlationId": "c"}])
    assert (answer.asyncError.code, answer.asyncError.message) == (BAD_REQUEST, f"Unknown AckPolicy {policy}")
    assert api.publish(stream, b"first") == 0


def test_asynchronous_answers_follow_their_messages(api: Api, stream: str) -> None:
    api.create(stream, partitions=2)
    requests: list[dict[str, Any]] = [
        {"stream": stream, "partition": index % 2, "correlationId": f"c{index}", "ackPolicy": index % 2}
        for index in range(20)
    ]
    requests.append({"stream": stream, "correlationId": "silent", "ackPolicy": NONE})
    requests.append({"stream": "nothing", "correlationId": "stream", "ackPolicy": NONE})
    requests.append({"stream": stream, "partition": 7, "correlationId": "partition"})
    requests.append({"stream": stream, "value": b"x" * ((1 << 20) + 1), "correlationId": "large"})
    answers = {item.correlationId: item for item in api.publish_async(requests)}
    assert set(answers) == {*(f"c{index}" for index in range(20)), "stream", "partition", "large"}
    for index in range(20):
        ack = answers[f"c{index}"].ack
        assert (ack.offset, ack.correlationId, ack.ackPolicy) == (index // 2, f"c{index}", index % 2)
    errors = {name: answers[name].asyncError for name in ("stream", "partition", "large")}
    assert {name: (item.code, item.message) for name, item in errors.items()} == {
        "stream": (NOT_FOUND, "no such stream: nothing"),
        "partition": (NOT_FOUND, "no such partition: 7"),
        "large": (BAD_REQUEST, "message exceeds max replication size"),
    }
    assert all(answers[name].HasField("ack") for name in errors), "an error comes with an ack"


def test_publish_to_subject_returns_the_first_ack(api: Api, stream: str) -> None:
    api.create(stream, subject=f"sub.{stream}.*")
    answer = api.call(
        "PublishToSubject",
        subject=f"sub.{stream}.a",
        value=b"v",
        key=b"k",
        headers={"h": b"1"},
        correlationId="c",
        ackInbox=f"inbox.{stream}",
        ackPolicy=ALL,
    )
    ack = answer.ack
    assert (ack.stream, ack.offset, ack.correlationId, ack.ackInbox) == (stream, 0, "c", f"inbox.{stream}")
    assert (ack.msgSubject, ack.ackPolicy) == (f"sub.{stream}.a", ALL)
    (found,) = api.read(stream)
    assert (found.key, found.value, found.headers["h"], found.subject) == (b"k", b"v", b"1", f"sub.{stream}.a")
    with pytest.raises(Failed) as refusal:
        api.call("PublishToSubject", 0.3, subject=f"nobody.{stream}", ackPolicy=ALL)
    assert refusal.value.code.name == "DEADLINE_EXCEEDED"
    empty = api.call("PublishToSubject", subject=f"nobody.{stream}", ackPolicy=NONE)
    assert empty == message("PublishToSubjectResponse")()


def test_calls_without_an_ack_inbox_get_a_generated_one(api: Api, stream: str) -> None:
    api.create(stream)
    calls: dict[str, dict[str, Any]] = {"Publish": {"stream": stream}, "PublishToSubject": {"subject": stream}}
    inboxes = {api.call(method, ackPolicy=ALL, **fields).ack.ackInbox for method, fields in calls.items()}
    assert len(inboxes) == len(calls)
    assert all(inbox.startswith("liftbridge-default.ack.") for inbox in inboxes)


def test_an_error_ack_of_publish_to_subject_is_returned_unchanged(api: Api, stream: str) -> None:
    api.create(stream, optimisticConcurrencyControl={"value": True})
    assert api.call("PublishToSubject", subject=stream, ackPolicy=ALL).ack.offset == 0
    ack = api.call("PublishToSubject", subject=stream, ackPolicy=ALL).ack
    assert (ack.ackError, ack.offset) == (2, 0)


def test_a_publisher_that_sends_nothing_is_not_closed(api: Api) -> None:
    began = time.monotonic()

    def silence() -> Iterator[dict[str, Any]]:
        time.sleep(1.5)
        yield {"stream": "nothing", "correlationId": "late"}

    (answer,) = api.publish_async(silence())
    assert answer.correlationId == "late"
    assert time.monotonic() - began >= 1.5
