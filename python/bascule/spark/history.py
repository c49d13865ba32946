"""Compares a query's checkpoint with the broker: deleted, re-created, shortened and replaced logs.

Each of them ends the query, by name; with `onDataLoss=skip` it is logged and the query continues.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from bascule.errors import error
from bascule.spark.connection import PartitionStatus, StreamStatus
from bascule.spark.offsets import UNKNOWN, Key, Mark, Marks, Predecessor
from bascule.spark.options import SourceOptions

logger = logging.getLogger("bascule.spark")


def deleted_streams(options: SourceOptions, before: Marks, statuses: Mapping[str, StreamStatus]) -> set[str]:
    """The streams that the query has read, that its pattern matches, and that no longer exist.

    Raises:
        StateError: `stream_not_found`, if there is one and `onDataLoss` is not `skip`.
    """
    if options.selection.pattern is None:
        return set()
    pattern = re.compile(options.selection.pattern)
    gone = {stream for stream, _ in before if stream not in statuses and pattern.fullmatch(stream)}
    for stream in sorted(gone):
        what = f"stream {stream}, which the query has read, was deleted"
        _lost(options, "stream_not_found", what, "continue with the other streams", {"stream": stream})
    return gone


def valid_mark(options: SourceOptions, key: Key, mark: Mark, part: PartitionStatus) -> Mark | None:
    """Where reading continues; None = the partition is read as a new one.

    Raises:
        StateError: without `onDataLoss=skip`, `incarnation_changed` of a stream that was deleted and created again,
            `offset_out_of_range` of a log that ends before the mark.
    """
    stream, partition = key
    details: dict[str, Any] = {"stream": stream, "partition": partition}
    if mark.incarnation != part.incarnation:
        what = (
            f"{stream}/{partition} has incarnation {part.incarnation}, the checkpoint was made for "
            f"{mark.incarnation}: the stream was deleted and created again"
        )
        details |= {"expected": mark.incarnation, "actual": part.incarnation}
        _lost(options, "incarnation_changed", what, "read the new stream from its start", details)
        return None
    if mark.next > part.high_watermark:
        what = f"the query has read {stream}/{partition} up to offset {mark.next}, which is beyond " + (
            f"the end {part.high_watermark} of its archive: the table was rolled back or replaced"
            if options.tier == "archive"
            else f"its high watermark {part.high_watermark}: an older copy of the log was restored, or its end was lost"
        )
        details |= {"offset": mark.next, "log_start": part.log_start, "high_watermark": part.high_watermark}
        _lost(options, "offset_out_of_range", what, f"continue at offset {part.high_watermark}", details)
        return replace(mark, next=part.high_watermark, before=Predecessor())
    return mark


def compare(options: SourceOptions, key: Key, mark: Mark, found: Predecessor) -> None:
    """Compare the record before a mark with the present one; an unknown one is accepted and logged.

    Raises:
        StateError: `history_changed`, if they differ and `onDataLoss` is not `skip`.
    """
    stream, partition = key
    if mark.before.contradicts(found):
        what = (
            f"the log of {stream}/{partition} was replaced, for example by an older copy: the record before offset "
            f"{mark.next} is of {_time(found)}, the query read one of {_time(mark.before)}"
        )
        details = {
            "stream": stream,
            "partition": partition,
            "offset": mark.next,
            "expected": mark.before.link,
            "actual": found.link,
        }
        _lost(options, "history_changed", what, f"continue at offset {mark.next}", details)
    elif mark.before.link != UNKNOWN and found.link == UNKNOWN:
        logger.warning(
            "%s/%d: the record before offset %d was removed by retention or compaction: whether the log is the one "
            "that the query has read is unknown",
            *(stream, partition, mark.next),
        )


def _time(found: Predecessor) -> str:
    """When the record was received, in UTC."""
    if found.timestamp_ns == UNKNOWN:
        return "an unknown time"
    seconds, nanoseconds = divmod(found.timestamp_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{nanoseconds:09d}Z"


def _lost(options: SourceOptions, code: str, what: str, otherwise: str, details: Mapping[str, Any]) -> None:
    """End the query, or log that it continues without the lost records."""
    if options.on_data_loss != "skip":
        remedy = f"start the query with a new checkpoint, or set onDataLoss to skip to {otherwise}"
        raise error(code, f"{what}; {remedy}", dict(details))
    logger.warning("%s; onDataLoss is skip: %s", what, otherwise)
