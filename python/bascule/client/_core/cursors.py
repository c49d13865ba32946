"""Storing and fetching positions. Both are idempotent, so they are retried when an answer was lost."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from bascule.client._core import requests
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.deadline import Deadline
from bascule.client._core.routes import CURSORS, CursorPlace
from bascule.client._core.subscribe_options import Member
from bascule.errors import BrokerError, error

__all__ = ["GROUP_CURSOR_PREFIX", "find", "group_cursor", "partitions", "store", "store_as"]

GROUP_CURSOR_PREFIX = "__group:"
_OFF: Final = "Cursors stream does not exist"
_HOW_ON: Final = "this broker keeps no cursors: set cursors.partitions to 1 or more and restart it"


def group_cursor(group: str) -> str:
    """The id of the cursor that the members of `group` store their positions under."""
    return GROUP_CURSOR_PREFIX + requests.check_id("group", group)


def store(
    pool: ConnectionPool, deadline: Deadline, place: CursorPlace, offset: int | None, incarnation: int = 0
) -> None:
    """Store the offset of the last processed record; `None` = remove the position. `incarnation`: that of the partition
    when the record was read; 0 = the present one. Requests of one client for one position are sent one after the other:
    each waits until the previous one was answered or its time is up.

    At least once: a request whose answer was lost is sent again. The unanswered request may still reach the broker, for
    instance from the buffer of a broken connection, and then overwrites a later position. Only in that case a position
    moves back; a reader that starts there gets records again and misses none.

    Raises:
        UsageError: code `invalid_argument`: an id, the partition or the offset.
        StateError: code `failed_precondition`: the broker keeps no cursors; `stream_not_found`: the partition has
            another incarnation by now, and nothing is stored.
        OutcomeUnknownError: it was sent and not answered.
        UnavailableError: no broker answered in time.
    """
    _send(pool, deadline, place, requests.set_cursor(place.cursor, place.stream, place.partition, offset, incarnation))


def store_as(
    pool: ConnectionPool, deadline: Deadline, place: CursorPlace, position: requests.Position, member: Member
) -> None:
    """As `store`, by a member of the group that owns the position.

    Raises:
        BrokerError: as `store`.
    """
    request = requests.set_cursor(place.cursor, place.stream, place.partition, *position)
    claim = requests.stored_by(member.group, member.consumer, member.epoch, member.generation)
    _send(pool, deadline, place, request + claim)


def _send(pool: ConnectionPool, deadline: Deadline, place: CursorPlace, request: bytes) -> None:
    with _explaining(), pool.locks.held(place, deadline):
        pool.run(deadline, lambda native, left: native.call("SetCursor", request, left), place, repeatable=True)


def find(pool: ConnectionPool, deadline: Deadline, place: CursorPlace) -> requests.Position:
    """The stored position.

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
    """The partitions of `__cursors`, which hold the stored positions.

    Raises:
        StateError: code `failed_precondition`: the broker keeps no cursors.
        UnavailableError: no broker answered in time.
    """
    request = requests.metadata([CURSORS])
    answer = pool.run(deadline, lambda native, left: native.call("FetchMetadata", request, left))
    try:
        (stream,) = requests.read_streams(answer)
    except BrokerError as failure:
        raise error("failed_precondition", _HOW_ON, failure.details) from None
    return [partition.number for partition in stream.partitions]


@contextmanager
def _explaining() -> Generator[None]:
    try:
        yield
    except BrokerError as failure:
        if str(failure) != _OFF:
            raise
        raise error("failed_precondition", _HOW_ON, failure.details) from None
