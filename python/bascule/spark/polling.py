"""Asks the broker where streams end, and lets it wait until there is something new."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from bascule.errors import BrokerError
from bascule.spark.connection import Broker, StatusRequest, StreamStatus
from bascule.spark.offsets import Key
from bascule.spark.options import SourceOptions

Statuses = Mapping[str, StreamStatus]


def waiting_request(
    options: SourceOptions, request: StatusRequest, beyond: Mapping[Key, int], timed: Collection[Key]
) -> StatusRequest:
    """`request` with the offsets that the query has and with the end times to look up.

    Args:
        options: of the read.
        request: names the stream.
        beyond: offsets by partition; the wait ends when a high watermark is above its own, or has none.
        timed: partitions that have an end time; the last answer named them.
    """
    return replace(
        request,
        times=[
            (number, options.ending.of(stream, number).value) for stream, number in timed if stream == request.stream
        ],
        beyond={number: offset for (stream, number), offset in beyond.items() if stream == request.stream},
    )


def poll(
    options: SourceOptions, broker: Broker, requests: Sequence[StatusRequest], wait_ms: int
) -> dict[str, StreamStatus]:
    """The state of the streams at the end of the wait, with the offsets of all end times.

    One call, and another one when partitions with an end time are new.
    """
    try:
        statuses = broker.status(requests, wait_ms=wait_ms)
    except BrokerError as failure:
        # A stream that was created again may have fewer partitions than there are times to look up.
        if failure.code != "partition_not_found" or not any(request.times for request in requests):
            raise
        statuses = broker.status([replace(request, times=(), beyond=None) for request in requests])
    timed = timed_partitions(options, statuses)
    if all((number, options.ending.of(stream, number).value) in statuses[stream].times for stream, number in timed):
        return statuses
    return broker.status([waiting_request(options, request, {}, timed) for request in requests])


def timed_partitions(options: SourceOptions, statuses: Statuses) -> frozenset[Key]:
    """The partitions whose end is a time."""
    return frozenset(
        (stream, number)
        for stream, status in statuses.items()
        for number in status.partitions
        if options.ending.of(stream, number).kind == "time"
    )


def ended_partitions(options: SourceOptions, statuses: Statuses) -> frozenset[Key]:
    """The partitions of which no later record is read: they end at an offset, or have a record after their end time."""
    return frozenset(
        (stream, number)
        for stream, status in statuses.items()
        for number in status.partitions
        if _is_ended(options, status, number)
    )


def _is_ended(options: SourceOptions, status: StreamStatus, number: int) -> bool:
    end = options.ending.of(status.stream, number)
    if end.kind == "time":
        return status.times.get((number, end.value)) is not None
    return end.kind == "offset"
