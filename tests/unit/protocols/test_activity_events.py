"""Events of the activity stream as bytes: each operation has its own message, with all that happened."""

from typing import Any, get_args

import pytest
from bascule._liftbridge_pb import message, number
from bascule.metadata import Activity
from bascule.metadata.model import Operation
from bascule.protocols.liftbridge.activity import CODEC, encode, event_id

EVENTS: dict[Activity, tuple[str, str, dict[str, Any]]] = {
    Activity(1, "create_stream", "s", (0, 1)): (
        "CREATE_STREAM", "createStreamOp", {"stream": "s", "partitions": [0, 1]},
    ),
    Activity(2, "delete_stream", "s"): ("DELETE_STREAM", "deleteStreamOp", {"stream": "s"}),
    Activity(3, "pause_stream", "s", (2,), flag=True): (
        "PAUSE_STREAM", "pauseStreamOp", {"stream": "s", "partitions": [2], "resumeAll": True},
    ),
    Activity(4, "resume_stream", "s", (2,)): ("RESUME_STREAM", "resumeStreamOp", {"stream": "s", "partitions": [2]}),
    Activity(5, "set_stream_readonly", "s", (0,), flag=True): (
        "SET_STREAM_READONLY", "setStreamReadonlyOp", {"stream": "s", "partitions": [0], "readonly": True},
    ),
    Activity(6, "join_group", "g", consumer="c", streams=("s", "t")): (
        "JOIN_CONSUMER_GROUP", "joinConsumerGroupOp", {"groupId": "g", "consumerId": "c", "streams": ["s", "t"]},
    ),
    Activity(7, "leave_group", "g", consumer="c", flag=True): (
        "LEAVE_CONSUMER_GROUP", "leaveConsumerGroupOp", {"groupId": "g", "consumerId": "c", "expired": True},
    ),
}  # fmt: skip


def test_every_operation_is_here() -> None:
    operations = get_args(getattr(Operation, "__value__", Operation))
    assert sorted(event.operation for event in EVENTS) == sorted(operations)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.operation)
def test_an_event_has_its_operation_and_nothing_else(event: Activity) -> None:
    operation, field, parts = EVENTS[event]
    expected = message("ActivityStreamEvent")(id=event.id, op=number("ActivityStreamOp", operation), **{field: parts})
    assert message("ActivityStreamEvent").FromString(encode(event)) == expected
    assert event_id(encode(event)) == event.id


@pytest.mark.parametrize("value", [b"", b"\xff", b"not an event", encode(Activity(9, "delete_stream", "s"))[:-1]])
def test_a_value_that_is_not_an_event_has_no_id(value: bytes) -> None:
    assert CODEC.event_id(value) == 0
