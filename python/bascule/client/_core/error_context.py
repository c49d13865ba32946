"""Adds the stream, partition or subject to errors. The fixed texts of the Liftbridge protocol contain no names or
values, and some report a missing partition when the stream is missing.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from bascule.client._core import refusals, requests
from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.deadline import Deadline
from bascule.errors import BrokerError, error

__all__ = ["error_context"]

LOOK_SECONDS: Final = 2.0
"""Longest time spent on asking the broker for details of an error, in seconds."""
_MISSING: Final = frozenset({"stream_not_found", "partition_not_found"})
_OFFSET: Final = "incorrect_offset"


@contextmanager
def error_context(
    pool: ConnectionPool,
    stream: str,
    *,
    partition: int | None = None,
    subject: str | None = None,
    expected: int | None = None,
) -> Generator[None]:
    """Raise the errors of the body with the stream, the partition or the subject in their message.

    Args:
        pool: used to ask the broker what exactly is missing, or what its limit is.
        stream: name of the stream that the body is about; empty = none.
        partition: number of the partition that the body is about; `None` = none.
        subject: the subject that the body is about; `None` = none.
        expected: the expected offset of a published record; `None` = none.
    """
    try:
        yield
    except BrokerError as failure:
        better = refusals.message_too_large_error(failure)
        if better is None and failure.code == _OFFSET and expected is not None and partition is not None:
            better = refusals.incorrect_offset(stream, partition, expected, _next_offset(pool, stream, partition))
        elif better is None and stream:
            better = _better(pool, failure, stream, partition, subject)
        if better is None:
            raise
        raise better from None


def _better(
    pool: ConnectionPool, failure: BrokerError, stream: str, partition: int | None, subject: str | None
) -> BrokerError | None:
    """The error with a better message; `None` to keep the broker's own."""
    if failure.reason == "deleted":
        text = f'the records of stream "{stream}" no longer exist: it was deleted or purged; read it from its beginning'
        return error(failure.code, text, {**failure.details, "stream": stream})
    if failure.code == "readonly":
        which = "" if partition is None else f"partition {partition} of "
        text = (
            f'{which}stream "{stream}" is read-only: bascule stream readonly {stream} --off lets it take records again'
        )
        return error(failure.code, text, {**failure.details, "stream": stream})
    if failure.code in _MISSING:
        return _missing(pool, failure, stream, partition)
    if failure.code == "stream_exists":
        text = f'stream "{stream}" already exists: delete it first or take another name'
        return error(failure.code, text, {**failure.details, "stream": stream})
    if failure.reason == "invalid_subject" and subject is not None:
        which = f"subject {subject[:200]!r}"
        if subject == stream:
            which = f"stream name {stream[:200]!r}, which is also the subject when none is given,"
        text = f"{which} is not a valid subject: tokens joined by dots, without white space, `>` only at the end"
        return error(failure.code, text, failure.details)
    most = _max_record_bytes(pool, stream) if failure.code == "too_large" else None
    return refusals.publish_error(failure, stream, most)


def _max_record_bytes(pool: ConnectionPool, stream: str) -> int | None:
    """The limit of the stream; `None` = the broker did not say."""
    answer = _asked(pool, "FetchStreamDetails", requests.stream_details(stream))
    return None if not answer else requests.read_in_effect(answer).get("max_record_bytes")


def _next_offset(pool: ConnectionPool, stream: str, partition: int) -> int | None:
    """The next offset of the partition; `None` = the broker did not say."""
    answer = _asked(pool, "FetchPartitionMetadata", requests.partition_metadata(stream, partition))
    return None if not answer else requests.read_partition(answer).log_end_offset


def _asked(pool: ConnectionPool, method: str, request: bytes) -> bytes | None:
    try:
        return pool.run(Deadline(LOOK_SECONDS), lambda native, left: native.call(method, request, left))
    except BrokerError:  # no permission, or a foreign broker: the error is reported without it
        return None


def _missing(pool: ConnectionPool, failure: BrokerError, stream: str, partition: int | None) -> BrokerError:
    details = {**failure.details, "stream": stream}
    if failure.code == "stream_not_found" or partition is None:
        return error("stream_not_found", str(refusals.no_stream(stream)), details)
    details["partition"] = partition
    request = requests.metadata([stream])
    try:
        answer = pool.run(Deadline(LOOK_SECONDS), lambda native, left: native.call("FetchMetadata", request, left))
        found = requests.read_streams(answer)
    except BrokerError as second:
        if second.code == "stream_not_found":
            return error(second.code, str(second), details)
        found = []
    if not found:
        return error(failure.code, f'stream "{stream}" has no partition {partition}, or does not exist', details)
    return error(failure.code, str(refusals.no_partition(stream, partition, len(found[0].partitions))), details)
