"""Requests that store and fetch positions, and their answers. No I/O."""

from typing import NamedTuple

from bascule._liftbridge_pb import message
from bascule.client._core.requests.bounds import INT64_MAX, check_id, check_offset, check_partition

__all__ = ["Position", "fetch_cursor", "read_cursor", "set_cursor", "stored_by"]


def set_cursor(cursor: str, stream: str, partition: int, offset: int | None, incarnation: int = 0) -> bytes:
    """A SetCursorRequest.

    Args:
        cursor: its id.
        stream: name of the stream.
        partition: number.
        offset: of the last processed record; `None` = remove the position.
        incarnation: of the partition when the record was read; the broker rejects another one; 0 = the present one.

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


def stored_by(group: str, consumer: str, epoch: int, generation: int) -> bytes:
    """The suffix of a SetCursorRequest of a group member: the broker rejects it if the member was expelled, or if a
    member of a later generation has stored a position.
    """
    member = {"groupId": group, "consumerId": consumer, "groupEpoch": epoch, "generation": generation}
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
    """The position of a cursor."""

    offset: int | None
    """Offset of the last processed record; `None` = there is none."""
    incarnation: int
    """Present incarnation of the partition; a purge changes it. 0 = it does not exist, or the broker does not say."""

    @property
    def following(self) -> int | None:
        """Offset of the record to read next, at most the highest offset there can be; `None` = there is no position."""
        return None if self.offset is None else min(self.offset + 1, INT64_MAX)


def read_cursor(answer: bytes) -> Position:
    """The position of a FetchCursorResponse."""
    found = message("FetchCursorResponse").FromString(answer)
    return Position(None if found.offset < 0 else found.offset, found.incarnation)
