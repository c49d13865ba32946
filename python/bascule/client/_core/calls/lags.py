"""Calls of the client about lags of consumer groups and queries."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, Self, cast

from bascule._admin_pb import message
from bascule.client._core import requests
from bascule.client._core.calls.unary import Calls

__all__ = ["Lags", "ReaderLag", "ReleasedHold"]


@dataclass(frozen=True, slots=True)
class ReaderLag:
    """How far a consumer group or a query is behind in one partition. The three sizes are `None` if the partition is
    paused, was created again, or is not open on the broker that answered.
    """

    kind: Literal["group", "query"]
    reader: str
    """Group, or name of the query."""
    stream: str
    """`namespace/name` outside the namespace `default`."""
    partition: int
    next_offset: int
    """Offset of the next record that it has not processed."""
    records: int | None
    """Offsets from there, or from the log start if that is later, to the high watermark."""
    bytes: int | None
    """Stored bytes of these; up to 64 KiB and one batch too many."""
    age: timedelta | None
    """Age of the oldest of these records; 0 = there is none."""
    owner: str
    """Client that reports the query, by its certificate; empty = one without, or a group."""
    reported: timedelta | None
    """Time since the query's last report; `None` = a group, whose positions are stored."""
    state: str
    """`reporting`; `silent` = nothing was reported for a minute; `ended`; `stored` = a group."""
    hold_left: timedelta | None = None
    """How long the query still keeps these records from retention, without another report; 0 = its hold has ended;
    `None` = it holds none."""

    @classmethod
    def of(cls, found: Any) -> Self:
        """From a ReaderLag of FetchLags."""
        has_lag = found.HasField("lag")
        return cls(
            kind=cast('Literal["group", "query"]', found.kind),
            reader=found.reader,
            stream=found.stream,
            partition=found.partition,
            next_offset=found.next,
            records=found.lag.records if has_lag else None,
            bytes=found.lag.bytes if has_lag else None,
            age=timedelta(milliseconds=found.lag.age_ms) if has_lag else None,
            owner=found.owner,
            reported=timedelta(milliseconds=found.report_age_ms) if found.HasField("report_age_ms") else None,
            state=found.state,
            hold_left=timedelta(milliseconds=found.hold_left_ms) if found.HasField("hold_left_ms") else None,
        )


@dataclass(frozen=True, slots=True)
class ReleasedHold:
    """What a query held in a stream."""

    positions: dict[int, int]
    """Offsets by partition: the records from there on were held."""
    left: timedelta
    """How long the hold would have lasted."""


class Lags(Calls):
    """How far readers are behind."""

    def lags(self, *, reader: str = "", stream: str = "", timeout: float | None = None) -> list[ReaderLag]:
        """Positions and lags of consumer groups and of queries that report theirs, ordered by kind, reader, stream and
        partition.

        Args:
            reader: only groups and queries of this name; empty = all.
            stream: only this stream, `namespace/name` outside `default`; empty = all.
            timeout: seconds; `None` = the client's.

        Raises:
            CapacityError: code `busy`: the answer would be too large; name a reader or a stream.
            UnavailableError: no broker answered in time.
        """
        answer = self._call("FetchLags", requests.fetch_lags(reader, stream), timeout)
        return [ReaderLag.of(item) for item in message("FetchLagsResponse").FromString(answer).lags]

    def release_hold(
        self,
        query: str,
        stream: str,
        *,
        namespace: str = "default",
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> ReleasedHold:
        """End the hold of a query that is gone in one stream, and forget where it stood there. Retention and compaction
        then remove what other holds and settings of the stream do not keep. A query that reports again holds again.

        Args:
            query: its name.
            stream: in which it holds records.
            namespace: of the stream.
            dry_run: change nothing.
            timeout: seconds; `None` = the client's.

        Raises:
            StateError: code `hold_not_found`: the query holds nothing there; `query_active`: it reported within the
                last minute and has not ended.
            AccessError: the right EditStream on the stream is missing.
            UnavailableError: no broker answered in time.
            OutcomeUnknownError: the call was cut off, and the hold may have been released.
        """
        request = requests.release_hold(query, namespace, stream, dry_run=dry_run)
        answer: Any = message("ReleaseHoldResponse").FromString(self._call("ReleaseHold", request, timeout))
        positions = {each.partition: each.next for each in answer.positions}
        return ReleasedHold(positions, timedelta(milliseconds=answer.hold_left_ms))
