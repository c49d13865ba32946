"""The activity stream (liftbridge §7.1)."""

from collections.abc import Iterator
from typing import Any

import pytest
from bascule._liftbridge_pb import message
from bascule.testing import TestBroker, broker

from tests.conformance.api import Api, Failed, failed
from tests.waiting import until

ON = {"activity.enabled": True}


@pytest.fixture(scope="module")
def telling() -> Iterator[TestBroker]:
    """A broker that writes its activity."""
    with broker(settings=ON) as started:
        yield started


def events(api: Api, count: int) -> list[Any]:
    """The first `count` events."""
    return [message("ActivityStreamEvent").FromString(item.value) for item in api.subscribe("__activity").take(count)]


def test_each_operation_yields_its_event_in_order(telling: TestBroker) -> None:
    with Api(telling.address) as api:
        api.create("s", partitions=2)
        api.call("PauseStream", name="s", partitions=[1], resumeAll=True)
        api.publish("s", partition=1)
        api.call("SetStreamReadonly", name="s", readonly=True)
        api.call("JoinConsumerGroup", groupId="g", consumerId="a", streams=["s"])
        api.call("JoinConsumerGroup", groupId="g", consumerId="b", streams=["s"])
        api.call("LeaveConsumerGroup", groupId="g", consumerId="b")
        api.call("DeleteStream", name="s")
        found = events(api, 9)
        shown = api.stream("__activity")
    assert (shown.subject, len(shown.partitions)) == ("liftbridge-default.activity", 1)
    ids = [event.id for event in found]
    assert ids == sorted(set(ids))
    assert [event.op for event in found] == [0, 0, 2, 3, 4, 5, 5, 6, 1]
    assert (found[0].createStreamOp.stream, list(found[0].createStreamOp.partitions)) == ("__activity", [0])
    assert (found[1].createStreamOp.stream, list(found[1].createStreamOp.partitions)) == ("s", [0, 1])
    pause = found[2].pauseStreamOp
    assert (pause.stream, list(pause.partitions), pause.resumeAll) == ("s", [1], True)
    assert (found[3].resumeStreamOp.stream, list(found[3].resumeStreamOp.partitions)) == ("s", [1])
    readonly = found[4].setStreamReadonlyOp
    assert (readonly.stream, list(readonly.partitions), readonly.readonly) == ("s", [0, 1], True)
    joined = found[5].joinConsumerGroupOp
    assert (joined.groupId, joined.consumerId, list(joined.streams)) == ("g", "a", ["s"])
    left = found[7].leaveConsumerGroupOp
    assert (left.groupId, left.consumerId, left.expired) == ("g", "b", False)
    assert found[8].deleteStreamOp.stream == "s"


def test_a_member_that_was_expelled_is_distinguished_from_one_that_left() -> None:
    with broker(settings={**ON, "groups.consumer_timeout_ms": 500}) as running, Api(running.address) as api:
        api.create("s")
        api.call("JoinConsumerGroup", groupId="g", consumerId="silent", streams=["s"])
        left = events(api, 4)[3].leaveConsumerGroupOp
    assert (left.groupId, left.consumerId, left.expired) == ("g", "silent", True)


def test_clients_cannot_create_or_delete_it(telling: TestBroker) -> None:
    reserved = failed("INVALID_ARGUMENT", "Stream is reserved")
    with Api(telling.address) as api:
        with pytest.raises(Failed, check=reserved):
            api.create("__activity", subject="x")
        with pytest.raises(Failed, check=reserved):
            api.call("DeleteStream", name="__activity")


def test_kills_lose_no_event_and_repeat_none() -> None:
    with broker(durability="disk", settings=ON) as running:
        names: list[str] = []
        for run in range(3):
            with Api(running.address) as api:
                for index in range(8):
                    names.append(f"s{run}-{index}")
                    api.create(names[-1])
            running.kill()
            running.start()
        with Api(running.address) as api:
            until(lambda: api.partition("__activity").newestOffset >= len(names))
            found = [message("ActivityStreamEvent").FromString(item.value) for item in api.read("__activity")]
    assert [event.createStreamOp.stream for event in found] == ["__activity", *names]


def test_a_broker_without_the_activity_stream_writes_no_events() -> None:
    with broker() as running, Api(running.address) as api:
        api.create("s")
        assert [item.name for item in api.call("FetchMetadata").streamMetadata] == ["s"]
