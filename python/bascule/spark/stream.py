"""Streaming reads: offsets, admission, long poll.

Spark keeps one reader per run on the driver and calls it for every micro-batch; a second instance is pickled for the
tasks and never sees what the first one learned, so `read` needs its partition and the options only.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from bascule.spark.admission import Backlog, admit, is_worth_starting
from bascule.spark.batch import RangesPartition, arrow_schema
from bascule.spark.connection import PartitionStatus, StatusRequest, StreamStatus
from bascule.spark.offsets import Key, Mark, Marks, check_incarnation, from_document, ranges, to_document
from bascule.spark.options import Limits, SourceOptions
from bascule.spark.planning import plan
from bascule.spark.reading import broker_of, read_ranges
from bascule.spark.resolving import check_start, end_of, look_up, partitions_of, requests, resolve, start_of

logger = logging.getLogger("bascule.spark")

DISCOVERY_S: Final = 10.0
"""How often a pattern is matched against the names of all streams."""
_NO_LIMITS: Final = Limits()


class BasculeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming read. Positions are committed high watermarks, so that a range always gives the same records."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._requests: list[StatusRequest] = []
        self._discovered = float("-inf")
        self._started = float("-inf")
        self._latest: dict[str, Any] | None = None
        self._target: dict[Key, int] | None = None

    # -- positions --------------------------------------------------------------------------------------------------
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        broker = broker_of(self._options)
        statuses = look_up(self._options, broker, self._wanted())
        starts = resolve(self._options, statuses, self._options.starting, start_of)
        marks = {key: Mark(part.incarnation, starts[key], starts[key]) for key, part in partitions_of(statuses).items()}
        return self._document(marks)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends; `start` itself when there is none.

        Waits at the broker for `longPollMs` when there is nothing beyond `start`.

        Raises:
            StateError: records were removed before they were read, or a stream was deleted and created again.
        """
        before, _ = from_document(start, self._options.namespace)
        statuses = self._poll(before)
        known = partitions_of(statuses)
        self._remember(before, known)
        ends = resolve(self._options, statuses, self._options.ending, end_of)
        if self._target is not None:
            ends = {key: min(end, self._target.get(key, 0)) for key, end in ends.items()}
        backlogs = {key: self._backlog(key, part, before.get(key), ends[key]) for key, part in known.items()}
        limits = _NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._options.limits
        waited_ms = (time.monotonic() - self._started) * 1000
        if not self._is_worth_starting(backlogs, limits, waited_ms):
            return start
        admitted = admit({key: backlog for key, backlog in backlogs.items() if backlog.size}, limits)
        marks = {**before, **self._advance(before, known, backlogs, admitted)}
        if not ranges(before, marks):
            return start
        self._started = time.monotonic()
        return self._document(marks)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Something else than "all available" when a limit is set, so that the engine's own "all" can be told apart."""
        limits = self._options.limits
        if limits.max_offsets:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """What the last `latestOffset` learned of the ends of the streams; asks nobody."""
        return self._latest

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the ends of this run: what is there now."""
        statuses = look_up(self._options, broker_of(self._options), self._wanted())
        self._target = resolve(self._options, statuses, self._options.ending, end_of)

    # -- tasks ------------------------------------------------------------------------------------------------------
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tasks of a micro-batch: a function of the two documents alone, so that a replay has the same ones."""
        before, _ = from_document(start, self._options.namespace)
        after, packing = from_document(end, self._options.namespace)
        return [RangesPartition(each) for each in plan(ranges(before, after), packing)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Record batches of one task."""
        wanted = partition.ranges if isinstance(partition, RangesPartition) else ()
        return read_ranges(self._options, wanted, arrow_schema(self._schema))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept at the broker for a query."""

    def stop(self) -> None:
        """Connections belong to the process."""

    # -- inside -----------------------------------------------------------------------------------------------------
    def _document(self, marks: Marks) -> dict[str, Any]:
        return to_document(self._options.namespace, marks, self._options.packing)

    def _wanted(self) -> list[StatusRequest]:
        """The streams asked about; a pattern is matched anew from time to time."""
        is_stale = time.monotonic() - self._discovered > DISCOVERY_S
        if not self._requests or (self._options.selection.pattern is not None and is_stale):
            self._requests = requests(self._options, broker_of(self._options))
            self._discovered = time.monotonic()
        return self._requests

    def _poll(self, before: Marks) -> dict[str, StreamStatus]:
        """The state of all streams, as soon as there is something beyond `before` or the long poll ended."""
        wanted = self._wanted()
        broker = broker_of(self._options)
        if self._target is not None or _has_times(self._options):
            return look_up(self._options, broker, wanted)
        beyond = [
            StatusRequest(
                request.stream,
                request.partitions,
                beyond={number: mark.next for (stream, number), mark in before.items() if stream == request.stream},
            )
            for request in wanted
        ]
        return broker.status(beyond, wait_ms=self._options.long_poll_ms)

    def _remember(self, before: Marks, known: dict[Key, PartitionStatus]) -> None:
        latest = {
            key: Mark(part.incarnation, before[key].first if key in before else part.log_start, part.high_watermark)
            for key, part in known.items()
        }
        self._latest = self._document({**before, **latest})

    def _backlog(self, key: Key, part: PartitionStatus, before: Mark | None, end: int) -> Backlog:
        if before is None:
            return Backlog(part.log_start, max(end, part.log_start), part.record_bytes)
        check_incarnation(*key, before.incarnation, part.incarnation)
        if before.next >= end:
            return Backlog(before.next, before.next)
        return Backlog(check_start(self._options, key, part, before.next), end, part.record_bytes)

    def _is_worth_starting(self, backlogs: dict[Key, Backlog], limits: Limits, waited_ms: float) -> bool:
        if self._target is not None:
            return any(backlog.size for backlog in backlogs.values())
        return is_worth_starting(backlogs, limits, waited_ms)

    def _advance(
        self,
        before: Marks,
        known: dict[Key, PartitionStatus],
        backlogs: dict[Key, Backlog],
        admitted: dict[Key, int],
    ) -> dict[Key, Mark]:
        """New marks. Where lost records may be skipped, the range still begins at the old mark: the tasks skip."""
        marks: dict[Key, Mark] = {}
        for key, part in known.items():
            mark = before.get(key)
            first = backlogs[key].start if mark is None else mark.first
            reached = first if mark is None else mark.next
            marks[key] = Mark(part.incarnation, first, admitted.get(key, reached))
        return marks


def _has_times(options: SourceOptions) -> bool:
    """Whether the end of the read is a time, which must be looked up each time."""
    places = (options.ending.default, *options.ending.by_stream.values(), *options.ending.by_partition.values())
    return any(place.kind == "time" for place in places)
