"""Reports where a streaming read stands to the broker, for `bascule lag` and metrics.

A thread of its own sends the reports, so that a broker that does not answer never delays the query. A report that fails
is logged and sent again; it changes nothing about the query, which continues from its checkpoint alone.
"""

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bascule._admin_pb import message
from bascule.errors import AccessError, BrokerError, error
from bascule.spark.admin_calls import admin_call
from bascule.spark.offsets import Marks

__all__ = ["PositionReporter", "ReportAnswer", "ReportedQuery", "begin_hold", "report_positions"]

logger = logging.getLogger("bascule.spark")

RENEW_S: Final = 10.0
"""A query that has not moved says after so long that it is still there."""
TIMEOUT_MS: Final = 5_000
RETRY_S: Final = 2.0
"""Pause after a report that failed."""
SAY_AGAIN_S: Final = 60.0
"""A failure is logged again after so long."""
MAX_STREAMS: Final = 1000
"""Streams of one call: the most that the broker takes."""
MAX_POSITIONS: Final = 10_000
"""Positions of one call, unless one stream has more."""
_SHOWN: Final = 3
"""Refusals that a warning names."""

Positions = Mapping[str, Mapping[int, tuple[int, int]]]
"""By stream and partition: incarnation and next offset."""


@dataclass(frozen=True)
class ReportedQuery:
    """Name of a query, namespace of its streams, and the address of `connection_options` to report them to. `hold`: the
    broker keeps what the query has not processed from retention.
    """

    address: str
    namespace: str
    name: str
    hold: bool = False


class ReportAnswer(NamedTuple):
    """What the broker answers to a report.

    Attributes:
        unknown: streams that were named without positions and that it does not know.
        not_held: streams that let no query hold records; empty for a query that does not.
        refused: why parts of the report are not taken, as sentences by stream.
    """

    unknown: list[str]
    not_held: list[str]
    refused: dict[str, list[str]]


def report_positions(
    query: ReportedQuery, positions: Positions, *, renewed: tuple[str, ...] = (), ended: bool = False
) -> ReportAnswer:
    """Report where a query stands, in as many calls as it takes. What the broker refuses of it keeps it from nothing
    else.

    Args:
        query: which.
        positions: in streams in which it has moved.
        renewed: streams in which it stands where it stood.
        ended: the query has ended.

    Raises:
        BrokerError: a whole call is refused, or the broker is not reachable: the first reason, after all calls.
    """
    streams = [_of_stream(stream, partitions) for stream, partitions in sorted(positions.items())]
    streams += [{"name": stream, "positions": []} for stream in renewed if stream not in positions]
    found = ReportAnswer([], [], {})
    failures: list[BrokerError] = []
    for part in _parts(streams):
        request = message("ReportQueryRequest")(
            query=query.name, namespace=query.namespace, streams=part, ended=ended, hold=query.hold
        )
        try:
            answer: Any = admin_call(query.address, "ReportQuery", request, timeout_ms=TIMEOUT_MS, retry_ms=0)
        except BrokerError as failure:
            failures.append(failure)
            continue
        found.unknown.extend(answer.unknown)
        found.not_held.extend(answer.not_held)
        for each in answer.refused:
            found.refused.setdefault(each.stream, []).append(each.message)
    if failures:
        raise failures[0]
    return found


def _of_stream(stream: str, partitions: Mapping[int, tuple[int, int]]) -> dict[str, Any]:
    positions = [
        {"partition": number, "incarnation": incarnation, "next": offset}
        for number, (incarnation, offset) in sorted(partitions.items())
    ]
    return {"name": stream, "positions": positions}


def _parts(streams: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Streams in parts of which each fits in a call."""
    part: list[dict[str, Any]] = []
    positions = 0
    for stream in streams:
        positions += len(stream["positions"])
        if part and (len(part) == MAX_STREAMS or positions > MAX_POSITIONS):
            yield part
            part, positions = [], len(stream["positions"])
        part.append(stream)
    if part:
        yield part


def begin_hold(query: ReportedQuery, marks: Marks) -> None:
    """Hold everything from these marks on. A broker that does not answer, or knows another log than the marks, is
    logged: the read itself decides on that, and the reporter tries again.

    Raises:
        AccessError: the right is missing, or another client has the name.
        CapacityError: `too_many_queries`.
        StateError: `hold_not_allowed`: a stream lets no query hold records.
    """
    try:
        answer = report_positions(query, _positions_of(marks))
    except BrokerError as failure:
        if isinstance(failure, AccessError) or failure.code == "too_many_queries":
            raise
        logger.warning("query %s does not hold its records yet: %s; it is tried again", query.name, failure)
        return
    if answer.not_held:
        raise error("hold_not_allowed", _not_held(query, answer.not_held))
    if answer.refused:
        text = "query %s does not hold all of its records yet: %s; it is tried again"
        logger.warning(text, query.name, _sentences(answer.refused))


def _not_held(query: ReportedQuery, streams: list[str]) -> str:
    names = ", ".join(streams[:5]) + (" and others" if len(streams) > 5 else "")
    return (
        f"query {query.name} cannot hold records of {names}: set retention_hold_max_bytes of the stream, "
        f"or remove the option retentionHold"
    )


def _sentences(refused: Mapping[str, list[str]]) -> str:
    every = [sentence for _, sentences in sorted(refused.items()) for sentence in sentences]
    return "; ".join(every[:_SHOWN]) + ("; and others" if len(every) > _SHOWN else "")


def _positions_of(marks: Marks) -> dict[str, dict[int, tuple[int, int]]]:
    positions: dict[str, dict[int, tuple[int, int]]] = {}
    for (stream, partition), mark in marks.items():
        positions.setdefault(stream, {})[partition] = (mark.incarnation, mark.next)
    return positions


class PositionReporter:
    """Reports of one streaming read. `reached` and `stop` never raise."""

    def __init__(self, query: ReportedQuery) -> None:
        self._query = query
        self._wakes = threading.Condition()
        self._positions: dict[str, dict[int, tuple[int, int]]] = {}
        self._reported: dict[str, dict[int, tuple[int, int]]] = {}
        """What the broker has."""
        self._answered: dict[str, dict[int, tuple[int, int]]] = {}
        """What the broker has taken or refused."""
        self._said = float("-inf")
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="bascule-positions", daemon=True)
        self._thread.start()

    def reached(self, marks: Marks, *, wait_s: float = 0) -> None:
        """The query has processed everything before these marks. Waits up to `wait_s` for the broker's answer."""
        positions = _positions_of(marks)
        with self._wakes:
            if positions != self._positions:
                self._positions = positions
                self._wakes.notify_all()
            if wait_s:
                self._wakes.wait_for(lambda: positions == self._answered, wait_s)

    def stop(self) -> None:
        """Report that the query has ended; waits for that as long as one report may take."""
        with self._wakes:
            self._is_stopping = True
            self._wakes.notify_all()
        self._thread.join(TIMEOUT_MS / 1000)

    def _run(self) -> None:
        renew_at = time.monotonic()
        while True:
            with self._wakes:
                left_s = renew_at - time.monotonic()
                self._wakes.wait_for(lambda: self._is_stopping or self._positions != self._reported, max(left_s, 0))
                positions, is_ending = self._positions, self._is_stopping
            if positions and not self._report(positions, is_ending=is_ending) and not is_ending:
                with self._wakes:
                    self._wakes.wait_for(lambda: self._is_stopping, RETRY_S)
            if is_ending:
                return
            renew_at = time.monotonic() + RENEW_S

    def _report(self, positions: dict[str, dict[int, tuple[int, int]]], *, is_ending: bool) -> bool:
        """Send what has changed, and that the rest stands where it stood; returns whether the broker has it."""
        moved = {stream: each for stream, each in positions.items() if self._reported.get(stream) != each}
        kept = tuple(stream for stream in positions if stream not in moved)
        try:
            answer = report_positions(self._query, moved, renewed=kept, ended=is_ending)
        except BrokerError as failure:
            self._say(f"the position of query {self._query.name} could not be reported: {failure}")
            self._set_reported({}, {})  # what the broker has now is not known
            return False
        missing = {*answer.unknown, *answer.refused}
        reported = {stream: each for stream, each in positions.items() if stream not in missing}
        self._set_reported(reported, {} if answer.unknown else positions)
        if answer.not_held:
            self._say(_not_held(self._query, answer.not_held))
        if answer.refused:
            what = f"the broker does not take all that query {self._query.name} reports"
            self._say(f"{what}: {_sentences(answer.refused)}; this is tried again")
        return not answer.refused

    def _set_reported(
        self, reported: dict[str, dict[int, tuple[int, int]]], answered: dict[str, dict[int, tuple[int, int]]]
    ) -> None:
        with self._wakes:
            self._reported, self._answered = reported, answered
            self._wakes.notify_all()

    def _say(self, what: str) -> None:
        now = time.monotonic()
        if now - self._said >= SAY_AGAIN_S:
            self._said = now
            logger.warning("%s; the query continues", what)
