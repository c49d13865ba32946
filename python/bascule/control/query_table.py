"""Where queries stand: what they report, for how long it counts, and who may report it. Pure: times are handed in.

In memory only (docs/decisions/queries.md): after a restart of the broker the next report brings the positions back.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from bascule.metadata import StreamKey
from bascule.metadata.rejection import Rejection, RejectionCode

SILENT_S: Final = 60.0
"""A query that has reported nothing for so long is silent."""
EXPIRE_S: Final = 3600.0
"""After so long without a report the positions of a query in a stream are forgotten, or later with its hold."""
MAX_POSITIONS: Final = 100_000
"""Positions of all queries together."""

QueryState = Literal["reporting", "silent", "ended"]


class Position(NamedTuple):
    """Where a query continues in a partition: `next` is the offset of the first record that it has not processed."""

    partition: int
    incarnation: int
    next: int


@dataclass
class StreamReport:
    """What a query has reported about a stream; `reported_s` is the time of the last report, monotonic."""

    positions: tuple[Position, ...]
    reported_s: float
    is_ended: bool = False
    hold_s: float = 0
    """For how long after the report its records are held; 0 = they are not."""
    is_missed: bool = False
    """It was said that the query is silent."""

    def hold_left_s(self, now_s: float) -> float:
        """How long its records are still held without another report; 0 or less = they are not."""
        return self.reported_s + self.hold_s - now_s if self.hold_s else 0

    def state(self, now_s: float) -> QueryState:
        """Whether the query still reports."""
        if self.is_ended:
            return "ended"
        return "silent" if now_s - self.reported_s >= SILENT_S else "reporting"


@dataclass
class Query:
    """A query, by namespace and name.

    Attributes:
        owner: the client that reports; empty = one without a certificate.
        streams: by name.
    """

    owner: str
    streams: dict[str, StreamReport] = field(default_factory=dict[str, StreamReport])

    @property
    def positions(self) -> int:
        """How many it has."""
        return sum(len(report.positions) for report in self.streams.values())


class Report(NamedTuple):
    """One report. `streams`: positions by stream; None = as before. `hold_s`: of the streams in which the query holds
    records.
    """

    key: StreamKey
    owner: str
    streams: Mapping[str, tuple[Position, ...] | None]
    is_ended: bool = False
    hold_s: Mapping[str, float] = {}


class QueryTable:
    """The queries that report.

    Args:
        most: queries, 1 or more.
        most_of_owner: queries of one client with a certificate, 1 or more.
    """

    def __init__(self, most: int, most_of_owner: int) -> None:
        self._most = most
        self._most_of_owner = most_of_owner
        self._queries: dict[StreamKey, Query] = {}

    def query(self, key: StreamKey) -> Query | None:
        """A query; None = it has reported nothing, or long ago."""
        return self._queries.get(key)

    def __iter__(self) -> Iterator[tuple[StreamKey, Query]]:
        return iter(self._queries.items())

    def take(self, report: Report, now_s: float) -> Rejection | list[str]:
        """Take a report. Returns the streams that were named without positions and are not known; the other streams are
        up to date. A rejected report changes nothing.
        """
        query = self._queries.get(report.key)
        refusal = self._refusal(report, query)
        if refusal is not None:
            return refusal
        unknown = [
            name
            for name, positions in report.streams.items()
            if positions is None and (query is None or name not in query.streams)
        ]
        if len(unknown) == len(report.streams):
            return unknown
        if query is None:
            query = self._queries[report.key] = Query(report.owner)
        for name, positions in report.streams.items():
            if name not in unknown:
                kept = query.streams[name].positions if positions is None else positions
                query.streams[name] = StreamReport(kept, now_s, report.is_ended, report.hold_s.get(name, 0))
        return unknown

    def _refusal(self, report: Report, query: Query | None) -> Rejection | None:
        name = report.key.name
        if query is not None and query.owner != report.owner:
            owner = f"client {query.owner}" if query.owner else "a client without a certificate"
            text = f"query {name} is reported by {owner}: give your query another name"
            return Rejection(RejectionCode.QUERY_NOT_OWNED, text)
        if query is None:
            if len(self._queries) >= self._most:
                text = f"{self._most} queries report already, which is the most (limits.queries): raise it, or wait"
                return Rejection(RejectionCode.TOO_MANY_QUERIES, f"{text} until some have been silent for an hour")
            own = sum(1 for each in self._queries.values() if each.owner == report.owner)
            if report.owner and own >= self._most_of_owner:
                text = f"client {report.owner} reports {own} queries, the most that one client may"
                return Rejection(RejectionCode.TOO_MANY_QUERIES, f"{text} (limits.queries_per_client)")
        known = query.streams if query is not None else {}
        more = sum(
            len(positions) - (len(known[stream].positions) if stream in known else 0)
            for stream, positions in report.streams.items()
            if positions is not None
        )
        total = sum(each.positions for each in self._queries.values()) + more
        if more > 0 and total > MAX_POSITIONS:
            text = f"queries would have {total} positions, at most {MAX_POSITIONS} are kept: report fewer streams"
            return Rejection(RejectionCode.TOO_MANY_QUERIES, text)
        return None

    def hold(self, key: StreamKey, stream: str, now_s: float) -> StreamReport | Rejection:
        """What a query that is gone holds in a stream; a rejection if it holds nothing there, or is not gone."""
        query = self._queries.get(key)
        report = None if query is None else query.streams.get(stream)
        if report is None or report.hold_left_s(now_s) <= 0:
            text = f"query {key.name} holds no records of stream {stream} in namespace {key.namespace}"
            return Rejection(RejectionCode.HOLD_NOT_FOUND, text)
        if report.state(now_s) == "reporting":
            ago = f"query {key.name} reported {now_s - report.reported_s:.0f} s ago and would hold its records again"
            text = f"{ago}: stop it, and try again {SILENT_S:.0f} s later"
            return Rejection(RejectionCode.QUERY_ACTIVE, text)
        return report

    def expire(self, now_s: float) -> list[tuple[StreamKey, str]]:
        """Forget reports that are too old and whose hold has ended. Returns query and stream of each."""
        old = [
            (key, name)
            for key, query in self._queries.items()
            for name, report in query.streams.items()
            if now_s - report.reported_s >= max(EXPIRE_S, report.hold_s)
        ]
        self.forget(old)
        return old

    def forget(self, places: Iterable[tuple[StreamKey, str]]) -> None:
        """Forget what queries have reported about streams."""
        for key, name in places:
            query = self._queries[key]
            del query.streams[name]
            if not query.streams:
                del self._queries[key]

    def missed(self, now_s: float) -> list[tuple[StreamKey, str]]:
        """Query and stream of those that have become silent since the last call."""
        found = [
            (key, name, report)
            for key, query in self._queries.items()
            for name, report in query.streams.items()
            if not report.is_missed and report.state(now_s) == "silent"
        ]
        for _, _, report in found:
            report.is_missed = True
        return [(key, name) for key, name, _ in found]
