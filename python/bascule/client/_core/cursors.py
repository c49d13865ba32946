"""Storing and finding positions; both may be done twice, so an answer that was lost is asked for again."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from bascule.client._core import requests
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.deadline import Deadline
from bascule.client._core.reading import Member
from bascule.client._core.routes import CURSORS, CursorPlace
from bascule.errors import BrokerError, error

__all__ = ["GROUP_CURSOR_PREFIX", "find", "group_cursor", "partitions", "store", "store_as"]

GROUP_CURSOR_PREFIX = "__group:"
_OFF: Final = "Cursors stream does not exist"
_HOW_ON: Final = "this broker keeps no cursors: set cursors.partitions to 1 or more and start it again"


def group_cursor(group: str) -> str:
    """The id of the cursor that the members of `group` store their positions under."""
    return GROUP_CURSOR_PREFIX + requests.check_id("group", group)


def store(
    pool: ConnectionPool, deadline: Deadline, place: CursorPlace, offset: int | None, incarnation: int = 0
) -> None:
    """Store the offset of the last record processed; `None` = none. `incarnation`: of the partition it was read in; 0 =
    the present one. Those of one client for one place go one after the other: each waits until the one before was
    answered or given up.

    At least once: one whose answer was lost is sent again. The sending that was not answered may still reach the
    broker, for instance out of the buffer of a broken connection, and is stored then, over later ones too. In that
    case, and no other, the position goes back by itself; a reader that only moves forward gets records again and misses
    none.

    Raises:
        UsageError: code `invalid_argument`: an id, the partition or the offset.
        StateError: code `failed_precondition`: the broker keeps no cursors; `stream_not_found`: the partition has begun
            anew since, and nothing is stored.
        OutcomeUnknownError: it was sent and not answered.
        UnavailableError: no broker answered in time.
    """
    _send(pool, deadline, place, requests.set_cursor(place.cursor, place.stream, place.partition, offset, incarnation))


def store_as(
    pool: ConnectionPool, deadline: Deadline, place: CursorPlace, position: requests.Position, member: Member
) -> None:
    """The same by a member of the group that the position is of.

    Raises:
        BrokerError: as `store`; StateError, code `failed_precondition`: a member of a later epoch has stored one.
    """
    request = requests.set_cursor(place.cursor, place.stream, place.partition, *position)
    _send(pool, deadline, place, request + requests.stored_by(member.group, member.consumer, member.epoch))


def _send(pool: ConnectionPool, deadline: Deadline, place: CursorPlace, request: bytes) -> None:
    with _explaining(), pool.locks.held(place, deadline):
        pool.run(deadline, lambda native, left: native.call("SetCursor", request, left), place, repeatable=True)


def find(pool: ConnectionPool, deadline: Deadline, place: CursorPlace) -> requests.Position:
    """The position stored last.

    Raises:
        UsageError: code `invalid_argument`: an id or the partition.
        StateError: code `failed_precondition`: the broker keeps no cursors.
        UnavailableError: no broker answered in time.
    """
    request = requests.fetch_cursor(place.cursor, place.stream, place.partition)
    with _explaining():
        answer = pool.run(deadline, lambda native, left: native.call("FetchCursor", request, left), place)
    return requests.read_cursor(answer)


def partitions(pool: ConnectionPool, deadline: Deadline) -> list[int]:
    """The partitions that positions are stored in.

    Raises:
        StateError: code `failed_precondition`: the broker keeps no cursors.
        UnavailableError: no broker answered in time.
    """
    request = requests.metadata([CURSORS])
    answer = pool.run(deadline, lambda native, left: native.call("FetchMetadata", request, left))
    try:
        (stream,) = requests.read_streams(answer)
    except BrokerError as failure:
        raise error("failed_precondition", _HOW_ON, failure.details) from failure
    return [partition.number for partition in stream.partitions]


@contextmanager
def _explaining() -> Generator[None]:
    try:
        yield
    except BrokerError as failure:
        if str(failure) != _OFF:
            raise
        raise error("failed_precondition", _HOW_ON, failure.details) from failure
