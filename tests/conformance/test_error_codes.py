"""The trailer of failed calls: the code of specs/errors.toml, beside the status and the text of Liftbridge."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from bascule.testing import TestBroker, broker

from tests.conformance.api import ALL, OFFSET, STOP_LATEST, STOP_OFFSET, Api, Failed
from tests.waiting import until


@pytest.fixture
def api(running: TestBroker) -> Iterator[Api]:
    with Api(running.address) as it:
        yield it


def failure(call: Callable[[], object]) -> tuple[str, str, dict[str, Any]]:
    with pytest.raises(Failed) as caught:
        call()
    return caught.value.code.name, caught.value.text, caught.value.error


def test_methods_of_the_data_plane(api: Api, stream: str) -> None:
    assert failure(lambda: api.publish(stream)) == (
        "NOT_FOUND",
        f"no such stream: {stream}",
        {"code": "stream_not_found"},
    )
    assert failure(lambda: api.publish("")) == ("INVALID_ARGUMENT", "no stream provided", {"code": "invalid_argument"})
    missing = ("NOT_FOUND", "No such partition", {"code": "partition_not_found"})
    assert failure(lambda: api.read(stream)) == missing
    api.create(stream)
    api.call("SetStreamReadonly", name=stream, readonly=True)
    readonly = ("FAILED_PRECONDITION", "readonly partition: 0", {"code": "readonly"})
    assert failure(lambda: api.publish(stream)) == readonly
    api.call("PauseStream", name=stream)
    paused = {"code": "failed_precondition", "reason": "paused"}
    assert failure(lambda: api.read(stream)) == ("FAILED_PRECONDITION", "commit log was closed", paused)
    text = "No cursorId provided"
    set_cursor = failure(lambda: api.call("SetCursor", stream=stream, partition=0))
    assert set_cursor == ("INVALID_ARGUMENT", text, {"code": "invalid_argument"})


def test_subscriptions_that_end(api: Api, stream: str) -> None:
    api.create(stream)
    api.publish(stream)

    _, ended = api.subscribe(stream, stopPosition=STOP_LATEST).rest()
    assert ended is not None
    expected = ("RESOURCE_EXHAUSTED", "Stop offset reached", {"code": "end_of_stream"})
    assert (ended.code.name, ended.text, ended.error) == expected
    empty: dict[str, Any] = {"startPosition": OFFSET, "startOffset": 1, "stopPosition": STOP_OFFSET}
    code, _, error = failure(lambda: api.subscribe(stream, **empty))
    assert (code, error) == ("INVALID_ARGUMENT", {"code": "invalid_argument", "reason": "empty_range"})


def test_methods_of_the_control_plane(api: Api, stream: str) -> None:
    gone = ("NOT_FOUND", "stream does not exist", {"code": "stream_not_found", "reason": "stream_not_found"})
    assert failure(lambda: api.call("DeleteStream", name=stream)) == gone
    api.create(stream)
    exists = ("ALREADY_EXISTS", "stream already exists", {"code": "stream_exists", "reason": "stream_exists"})
    assert failure(lambda: api.create(stream)) == exists
    invalid = failure(lambda: api.create(f"{stream}-2", subject="a b"))
    assert invalid == (
        "INVALID_ARGUMENT",
        "Subject is invalid",
        {"code": "invalid_argument", "reason": "invalid_subject"},
    )
    member: dict[str, Any] = {"groupId": stream, "consumerId": "c", "streams": [stream]}
    api.call("JoinConsumerGroup", **member)
    code, _, error = failure(lambda: api.call("JoinConsumerGroup", **member))
    assert (code, error) == ("FAILED_PRECONDITION", {"code": "failed_precondition", "reason": "already_member"})
    code, _, error = failure(lambda: api.raw("/proto.API/Nonsense", b""))
    assert (code, error) == ("UNIMPLEMENTED", {"code": "unimplemented"})


def test_one_record_of_publish_async(api: Api, stream: str) -> None:
    (answer,) = api.publish_async([{"stream": stream, "ackPolicy": ALL, "correlationId": "c"}])
    assert answer.asyncError.message == f"no such stream: {stream}"
    assert answer.asyncError.error == '{"code":"stream_not_found"}'


def test_values_of_the_sentence() -> None:
    with broker(settings={"limits.message_bytes": 100_000}) as started, Api(started.address) as api:
        api.create("s", minIsr={"value": 2})
        until(lambda: api.partition("s").id == 0)
        code, text, error = failure(lambda: api.publish("s"))
        assert (code, error) == ("FAILED_PRECONDITION", {"code": "not_enough_replicas", "in_sync": 1, "min_isr": 2})
        assert text == "failed to append: not enough in-sync replicas: there are 1, min ISR is 2"
        code, _, error = failure(lambda: api.publish("s", b"x" * 200_000))
        assert code == "RESOURCE_EXHAUSTED"
        assert error["code"] == "too_large"
        assert error["message_bytes"] > 200_000
        assert error["limit"] == 100_000
