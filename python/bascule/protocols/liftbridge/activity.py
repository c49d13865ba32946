"""Events of the activity stream as Liftbridge writes them (liftbridge §2.2, §7.1)."""

from typing import Any, Final

from bascule._liftbridge_pb import DecodeError, message, number
from bascule.control.activity import ActivityCodec
from bascule.metadata import Activity

_Event = message("ActivityStreamEvent")
_OPERATIONS: Final = {
    "create_stream": ("CREATE_STREAM", "createStreamOp"),
    "delete_stream": ("DELETE_STREAM", "deleteStreamOp"),
    "pause_stream": ("PAUSE_STREAM", "pauseStreamOp"),
    "resume_stream": ("RESUME_STREAM", "resumeStreamOp"),
    "set_stream_readonly": ("SET_STREAM_READONLY", "setStreamReadonlyOp"),
    "join_group": ("JOIN_CONSUMER_GROUP", "joinConsumerGroupOp"),
    "leave_group": ("LEAVE_CONSUMER_GROUP", "leaveConsumerGroupOp"),
}
_FLAGS: Final = {"pause_stream": "resumeAll", "set_stream_readonly": "readonly", "leave_group": "expired"}


def encode(event: Activity) -> bytes:
    """The value of the record of `event`."""
    operation, field = _OPERATIONS[event.operation]
    written = _Event(id=event.id, op=number("ActivityStreamOp", operation))
    part: Any = getattr(written, field)
    part.SetInParent()
    if event.operation.endswith("group"):
        part.groupId = event.name
        part.consumerId = event.consumer
    else:
        part.stream = event.name
    if event.partitions:
        part.partitions.extend(event.partitions)
    if event.streams:
        part.streams.extend(event.streams)
    if event.operation in _FLAGS:
        setattr(part, _FLAGS[event.operation], event.flag)
    serialized: bytes = written.SerializeToString()
    return serialized


def event_id(value: bytes) -> int:
    """The id of the event in a record's value; 0 = it is none."""
    try:
        return int(_Event.FromString(value).id)
    except DecodeError:
        return 0


CODEC: Final = ActivityCodec(encode, event_id)
