"""Queries that report where they stand: checks their reports, and shows the data plane the positions for their lag."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol

from bascule.control.controller import Controller
from bascule.control.decide_queries import Here, RefusedPosition, judge_report
from bascule.control.query_table import EXPIRE_S, SILENT_S, Position, QueryTable, Report
from bascule.control.specs import hold_ms
from bascule.logs import emit
from bascule.metadata import StreamKey
from bascule.metadata.rejection import RejectedError, Rejection, RejectionCode

LOOK_S: Final = 10.0
"""How often silent queries are searched for."""


class LagPlane(Protocol):
    """The part of `bascule.engine` that knows how far readers are behind."""

    def set_query(
        self, query: str, stream: tuple[str, str], positions: Sequence[tuple[int, int, int]], hold_ms: int
    ) -> None:
        """Take the positions of a query in a stream (namespace, name): (partition, incarnation, next offset); none =
        they are forgotten. For `hold_ms` the records from there on are kept; 0 = they are not.
        """
        ...

    def lags(self) -> list[dict[str, Any]]:
        """The positions and lags of consumer groups and queries. Blocks."""
        ...


class ReportAnswer(NamedTuple):
    """What becomes of a report.

    Attributes:
        unknown: streams that were named without positions and are not known here.
        not_held: streams that let no query hold records; empty for a query that does not.
        refused: parts that are not taken, while others are.
    """

    unknown: list[str]
    not_held: list[str]
    refused: tuple[RefusedPosition, ...]


class Queries:
    """The queries of this broker. All methods belong to the event loop's thread.

    Args:
        controller: which has the state.
        plane: the data plane.
        most: queries, and those of one client with a certificate.
        clock_s: monotonic.
    """

    def __init__(
        self,
        controller: Controller,
        plane: LagPlane,
        most: tuple[int, int],
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._controller = controller
        self._plane = plane
        self._table = QueryTable(*most)
        self._clock_s = clock_s

    def report(self, report: Report, *, holds: bool = False) -> ReportAnswer:
        """Take a report, without the parts that are refused. With `holds` the query holds records.

        Raises:
            RejectedError: nothing is taken: `stream_not_found`, `partition_not_found`, `incarnation_changed`,
                `query_not_owned`, `too_many_queries`; `invalid`: an offset beyond the high watermark; with `holds`
                `not_open`: a partition that this broker does not lead, or has not opened.
        """
        namespace = report.key.namespace
        known = self._table.query(report.key)
        stood = {name: each.positions for name, each in known.streams.items()} if known is not None else {}
        positions = [each if each is not None else stood.get(name, ()) for name, each in report.streams.items()]
        status = self._controller.status([position.incarnation for each in positions for position in each])
        here = Here(self._controller.broker_id, status)
        streams, refused = judge_report(
            self._controller.state, namespace, report.streams, here, stood if holds else None
        )
        if not streams:
            raise RejectedError(refused[0].rejection)
        settings = {name: self._controller.state.streams[StreamKey(namespace, name)].settings for name in streams}
        held = {name: ms for name, each in settings.items() if (ms := hold_ms(each))} if holds else {}
        report = report._replace(streams=streams, hold_s={name: ms / 1000 for name, ms in held.items()})
        taken = self._table.take(report, self._clock_s())
        if isinstance(taken, Rejection):
            raise RejectedError(taken)
        query = self._table.query(report.key)
        for name in streams.keys() - set(taken):
            assert query is not None
            place = (namespace, name)
            self._plane.set_query(report.key.name, place, query.streams[name].positions, held.get(name, 0))
        return ReportAnswer(taken, [name for name in streams if name not in held] if holds else [], refused)

    def release(
        self, key: StreamKey, name: str, by: str, *, dry_run: bool = False
    ) -> tuple[tuple[Position, ...], float]:
        """End the hold of a query that is gone in one stream, and forget where it stood there.

        Args:
            key: the query, in the namespace of the stream.
            name: of the stream.
            by: who asks, for the log.
            dry_run: change nothing.

        Returns:
            Its positions, and how many seconds the hold would have lasted.

        Raises:
            RejectedError: `stream_not_found`, `hold_not_found`, `query_active`.
        """
        now_s = self._clock_s()
        stream = self._controller.state.streams.get(StreamKey(key.namespace, name))
        if stream is None:
            raise RejectedError(
                Rejection(RejectionCode.STREAM_NOT_FOUND, f"stream {key.namespace}/{name} does not exist")
            )
        held = self._table.hold(key, name, now_s)
        if not isinstance(held, Rejection) and not hold_ms(stream.settings):
            text = f"stream {key.namespace}/{name} lets no query hold records any more"
            held = Rejection(RejectionCode.HOLD_NOT_FOUND, text)
        if isinstance(held, Rejection):
            raise RejectedError(held)
        left_s = held.hold_left_s(now_s)
        if not dry_run:
            self._table.forget([(key, name)])
            self._plane.set_query(key.name, (key.namespace, name), (), 0)
            text = f"the hold of query {key.name} was released, {left_s:.0f} s before its end"
            emit(30, "control.queries", text, namespace=key.namespace, stream=name, query=key.name, by=by)
        return held.positions, left_s

    async def lags(self) -> list[dict[str, Any]]:
        """The positions and lags of consumer groups and queries, as `specs/formats/seam.md` has them, with `owner` and
        `state` of each; by kind, reader, stream and partition.
        """
        found = await asyncio.to_thread(self._plane.lags)
        shown = [each for item in found if (each := self._with_owner(item)) is not None]
        order = ("kind", "reader", "namespace", "stream", "partition")
        return sorted(shown, key=lambda item: tuple(item[name] for name in order))

    async def run(self) -> None:
        """Report silent queries and forget old ones, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Report queries that have become silent, and forget those that have been for an hour."""
        now_s = self._clock_s()
        for key, stream in self._table.missed(now_s):
            text = f"query {key.name} has not reported for {SILENT_S:.0f} s where it stands"
            emit(30, "control.queries", text, namespace=key.namespace, stream=stream, query=key.name)
        for key, stream in self._table.expire(now_s):
            self._plane.set_query(key.name, (key.namespace, stream), (), 0)
            text = f"query {key.name} is forgotten: it has not reported for {EXPIRE_S:.0f} s or more"
            emit(20, "control.queries", text, namespace=key.namespace, stream=stream, query=key.name)

    def _with_owner(self, item: dict[str, Any]) -> dict[str, Any] | None:
        """None = the query was forgotten meanwhile."""
        if item["kind"] == "group":
            return {**item, "owner": "", "state": "stored"}
        stream = self._controller.state.streams.get(StreamKey(item["namespace"], item["stream"]))
        if stream is None or not hold_ms(stream.settings):
            item = {**item, "hold_left_ns": None}
        query = self._table.query(StreamKey(item["namespace"], item["reader"]))
        report = query.streams.get(item["stream"]) if query is not None else None
        if query is None or report is None:
            return None
        return {**item, "owner": query.owner, "state": report.state(self._clock_s())}
