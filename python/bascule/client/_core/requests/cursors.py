"""Requests that store and fetch positions, and their answers. No I/O."""

from typing import NamedTuple

from bascule._liftbridge_pb import message
from bascule.client._core.requests.bounds import check_id, check_offset, check_partition

__all__ = ["Position", "fetch_cursor", "read_cursor", "set_cursor", "stored_by"]


def set_cursor(cursor: str, stream: str, partition: int, offset: int | None, incarnation: int = 0) -> bytes:
    """A SetCursorRequest; without an offset the cursor is as if it had never been set.

    Args:
        cursor: its id.
        stream: name of the stream.
        partition: number.
        offset: of the last record processed.
        incarnation: of the partition whose record it is, refused when there is another by now; 0 = the present one.

    Raises:
        UsageError: code `invalid_argument`: an id or the offset.
    """
    stored = -1 if offset is None else check_offset("offset", offset)
    return message("SetCursorRequest")(
        stream=check_id("stream", stream),
        partition=check_partition(partition),
        cursorId=check_id("cursor", cursor),
        offset=stored,
        incarnation=incarnation,
    ).SerializeToString()


def stored_by(group: str, consumer: str, epoch: int) -> bytes:
    """What follows a SetCursorRequest that a member of a group sends: it is refused when a member of a later epoch has
    stored a position.
    """
    member = {"groupId": group, "consumerId": consumer, "groupEpoch": epoch}
    return message("SetCursorRequest")(consumer=member).SerializeToString()


def fetch_cursor(cursor: str, stream: str, partition: int) -> bytes:
    """A FetchCursorRequest.

    Raises:
        UsageError: code `invalid_argument`: an id.
    """
    return message("FetchCursorRequest")(
        stream=check_id("stream", stream), partition=check_partition(partition), cursorId=check_id("cursor", cursor)
    ).SerializeToString()


class Position(NamedTuple):
    """Where a cursor stands."""

    offset: int | None
    """Of the last record processed; `None` = there is none."""
    incarnation: int
    """Of the partition as it is now: another one after a purge; 0 = it does not exist, or the broker does not say."""


def read_cursor(answer: bytes) -> Position:
    """The position of a FetchCursorResponse."""
    found = message("FetchCursorResponse").FromString(answer)
    return Position(None if found.offset < 0 else found.offset, found.incarnation)
