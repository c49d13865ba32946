"""Streaming reads: offsets, admission, long poll.

Spark keeps one reader per run on the driver and calls it for every micro-batch; a second instance is pickled for the
tasks and never sees what the first one learned, so `read` needs its partition and the options only.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

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

from bascule.errors import BrokerError
from bascule.spark.admission import Backlog, admit, is_worth_starting
from bascule.spark.batch import RangesPartition, arrow_schema
from bascule.spark.connection import PartitionStatus, StatusRequest, StreamStatus
from bascule.spark.history import compare, deleted_streams, valid_mark
from bascule.spark.idle import leave_stopped_planner
from bascule.spark.offsets import Key, Mark, Marks, Predecessor, from_document, ranges, to_document
from bascule.spark.options import Limits, SourceOptions, check_hold
from bascule.spark.planning import plan
from bascule.spark.polling import ended_partitions, poll, timed_partitions, waiting_request
from bascule.spark.reading import broker_of, read_ranges
from bascule.spark.resolving import (
    Places,
    ask_matching,
    check_positions,
    check_start,
    end_of,
    identify,
    look_up,
    partitions_of,
    requests,
    resolve,
    start_of,
)
from bascule.spark.sentences import sentence_first
from bascule.spark.slots import current_slots
from bascule.spark.usage import usage
from bascule.spark.waiting import missing_offsets, wait_ms, wake_offsets

if TYPE_CHECKING:
    from bascule.spark.reporting import PositionReporter
    from bascule.spark.stream_tiers import StreamTiers

logger = logging.getLogger("bascule.spark")

REPORT_S: Final = 1.0
"""How long a run that has an end waits for a report of its position."""
DISCOVERY_S: Final = 10.0
"""Interval at which a pattern is matched against the names of all streams."""
_NO_LIMITS: Final = Limits()


class BasculeStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One streaming read. Positions are committed high watermarks, so that a range always gives the same records; with
    an archive, `StreamTiers` decides from where.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.table is not None:
            raise usage(
                "option view=table is for batch reads: a streaming read has every change; remove it, or read the table "
                "with spark.read in foreachBatch"
            )
        self._options = options
        self._schema = schema
        self._requests: list[StatusRequest] = []
        self._discovered = float("-inf")
        self._started = float("-inf")
        self._latest: dict[str, Any] | None = None
        self._target: dict[Key, int] | None = None
        self._is_checked = False
        self._appeared: dict[Key, Mark] = {}
        self._wake: dict[Key, int] = {}
        self._timed: frozenset[Key] = frozenset()
        self._is_compared = False
        self._is_idle = False
        self._reporter: PositionReporter | None = None
        self._tiers = _tiers_of(options)

    # -- positions --------------------------------------------------------------------------------------------------
    @sentence_first()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where a new query begins."""
        statuses = self._look_up()
        check_positions(self._options, statuses)
        if self._tiers is not None:
            statuses = self._tiers.at_start(statuses)
        starts = resolve(self._options, statuses, self._options.starting, start_of)
        marks = {key: Mark(part.incarnation, starts[key], starts[key]) for key, part in partitions_of(statuses).items()}
        known = self._identify(starts.items())
        return self._document({key: mark.identified(known[key, mark.next]) for key, mark in marks.items()})

    @sentence_first()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Where the next micro-batch ends; `start` itself if there is none.

        Waits at the broker for `longPollMs` when there is nothing beyond `start`.

        Raises:
            StateError: with `onDataLoss=fail`: records were removed before they were read, a stream was deleted or
                created again, a log was replaced by an older copy or lost its end.
        """
        before, _ = from_document(start, self._options.namespace)
        self._report(before)
        limits = _NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._options.limits
        statuses = self._poll(before, limits)
        deleted = deleted_streams(self._options, before, statuses)
        self._check_ends(statuses, before)
        if self._tiers is not None:
            statuses = self._tiers.extended(statuses, self._read_to(before))
        known = partitions_of(statuses)
        base = self._with_new(self._valid_marks(before, known, deleted), known)
        self._remember(base, known)
        backlogs = self._backlogs(statuses, base)
        is_moved = any(base.get(key) != mark for key, mark in before.items() if key[0] not in deleted)
        admitted = {key: backlog.start for key, backlog in backlogs.items() if backlog.start > base[key].next}
        is_lost = any(not backlogs[key].size for key in admitted)
        is_started = self._is_worth_starting(backlogs, limits)
        if is_started:
            admitted |= admit({key: backlog for key, backlog in backlogs.items() if backlog.size}, limits)
        if not (is_moved or is_lost or is_started):
            self._wake = self._wake_offsets(statuses, sum(each.size for each in backlogs.values()), limits)
            self._is_idle = True
            return start
        marks = {**base, **self._advance(base, known, admitted)}
        identified = self._identified(base, marks, known)
        if identified is None:
            return start
        self._started = time.monotonic()
        self._is_compared = True
        self._wake = {}
        self._is_idle = False
        return self._document(identified)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Another limit than "all available" if a limit is set, to distinguish it from the engine's own "all"."""
        limits = self._options.limits
        if limits.max_offsets:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        """The ends of the streams as of the last `latestOffset`; does not call the broker."""
        return self._latest

    @sentence_first()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the ends of this run at the present ends."""
        statuses = self._look_up()
        if self._tiers is not None and self._options.tier == "archive":
            statuses = self._tiers.extended(statuses, {})
        self._target = resolve(self._options, statuses, self._options.ending, end_of)

    # -- tasks ------------------------------------------------------------------------------------------------------
    @sentence_first()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Tasks of a micro-batch: their offsets depend on the two documents alone, so that a replay has the same ones.

        Raises:
            StateError: `offset_out_of_range`, if neither the broker nor the archive has a range.
            StateError: `history_changed`, with `onDataLoss=fail`: the first micro-batch of a run repeats an unfinished
                one, and the log was replaced by another copy since that was planned.
        """
        before, _ = from_document(start, self._options.namespace)
        after, packing = from_document(end, self._options.namespace)
        self._compare_repeated(before, after)
        tasks = plan(ranges(before, after), packing)
        return [RangesPartition(each) for each in (tasks if self._tiers is None else self._tiers.divide(tasks))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Record batches of one task."""
        wanted = partition.ranges if isinstance(partition, RangesPartition) else ()
        return read_ranges(self._options, wanted, arrow_schema(self._schema))

    def commit(self, end: dict[str, Any]) -> None:
        """Does nothing: `latestOffset` has reported this position already, when the micro-batch before ended."""

    def stop(self) -> None:
        """Ends a process that Spark has left and is about to kill; connections belong to the process."""
        leave_stopped_planner()

    # -- inside -----------------------------------------------------------------------------------------------------
    def _report(self, before: Marks) -> None:
        """With `consumerGroup`: report that everything before these marks is processed.

        Raises:
            UsageError: `retentionHold` without `consumerGroup`.
            BrokerError: with `retentionHold`: the first report is refused, or a stream lets no query hold records.
        """
        check_hold(self._options)
        if self._options.consumer_group is None:
            return
        from bascule.spark import reporting  # noqa: PLC0415 - executors lack protobuf

        if self._reporter is None:
            place = (self._options.address, self._options.namespace)
            query = reporting.ReportedQuery(*place, self._options.consumer_group, self._options.hold)
            if query.hold:
                reporting.begin_hold(query, before)
            self._reporter = reporting.PositionReporter(query)
        # Spark kills this process right after the last micro-batch of a run that has an end.
        self._reporter.reached(before, wait_s=REPORT_S if self._target is not None else 0)

    def _document(self, marks: Marks) -> dict[str, Any]:
        packing = replace(self._options.packing, slots=current_slots())  # executors come and go
        return to_document(self._options.namespace, marks, packing)

    def _read_to(self, before: Marks) -> dict[Key, int]:
        """The next offset of each partition that the query knows."""
        return {key: mark.next for key, mark in {**self._appeared, **before}.items()}

    def _identify(self, places: Places) -> dict[tuple[Key, int], Predecessor]:
        """The broker's records before some offsets; an archive that is read alone may have others."""
        if self._options.tier == "archive":
            return dict.fromkeys(places, Predecessor())
        return identify(broker_of(self._options), places)

    def _wanted(self, again: bool = False) -> list[StatusRequest]:
        """The requests for the streams; a pattern is matched periodically, and if `again` is set."""
        is_stale = again or time.monotonic() - self._discovered > DISCOVERY_S
        if not self._requests or (self._options.selection.pattern is not None and is_stale):
            self._requests = requests(self._options, broker_of(self._options))
            self._discovered = time.monotonic()
        return self._requests

    def _look_up(self) -> dict[str, StreamStatus]:
        """The present state of all streams, with look-ups of the times in the options."""
        broker = broker_of(self._options)
        return ask_matching(self._options, self._wanted, lambda wanted: look_up(self._options, broker, wanted))

    def _waited_ms(self) -> float:
        return (time.monotonic() - self._started) * 1000

    def _poll(self, before: Marks, limits: Limits) -> dict[str, StreamStatus]:
        """The state of all streams, as soon as a micro-batch may be worth starting or the long poll ended."""
        broker = broker_of(self._options)
        is_waiting = self._target is None
        long_poll_ms = wait_ms(limits, self._options.long_poll_ms, self._waited_ms()) if is_waiting else 0
        beyond = {**self._read_to(before), **self._wake}
        if self._options.tier == "archive":  # the broker does not know when there is more of the archive
            time.sleep(long_poll_ms / 1000 if self._is_idle else 0)
            long_poll_ms = 0

        def ask(wanted: list[StatusRequest]) -> dict[str, StreamStatus]:
            if not wanted:  # a pattern that matches nothing: there is nothing at the broker to wait for
                time.sleep(long_poll_ms / 1000)
                return {}
            waiting = [waiting_request(self._options, request, beyond, self._timed) for request in wanted]
            return poll(self._options, broker, waiting, long_poll_ms)

        statuses = ask_matching(self._options, self._wanted, ask)
        self._timed = timed_partitions(self._options, statuses)
        return statuses

    def _wake_offsets(self, statuses: dict[str, StreamStatus], backlog: int, limits: Limits) -> dict[Key, int]:
        """What the next call waits for, after this one found too little."""
        ends = {key: part.high_watermark for key, part in partitions_of(statuses).items()}
        missing = missing_offsets(limits, backlog, self._waited_ms())
        return wake_offsets(ends, ended_partitions(self._options, statuses), missing)

    def _check_ends(self, statuses: dict[str, StreamStatus], before: Marks) -> None:
        """Once in a run: ends of streams that are neither read now nor were read before are refused."""
        if self._is_checked:
            return
        read = {name: set(status.partitions) for name, status in statuses.items()}
        for stream, number in before:
            read.setdefault(stream, set()).add(number)
        self._options.ending.check(read)
        self._is_checked = True

    def _valid_marks(self, before: Marks, known: dict[Key, PartitionStatus], deleted: set[str]) -> dict[Key, Mark]:
        """The marks that still hold, without those of deleted streams."""
        kept = {key: mark for key, mark in before.items() if key[0] not in deleted}
        valid = {
            key: valid_mark(self._options, key, mark, known[key]) if key in known else mark
            for key, mark in kept.items()
        }
        return {key: mark for key, mark in valid.items() if mark is not None}

    def _with_new(self, marks: dict[Key, Mark], known: dict[Key, PartitionStatus]) -> dict[Key, Mark]:
        """`marks` and those of partitions without one, which are read from the log start offset of when they were first
        seen: what retention removes later is noticed.
        """
        for key in known.keys() - marks.keys():
            part, seen = known[key], self._appeared.get(key)
            if seen is None or seen.incarnation != part.incarnation:
                self._appeared[key] = Mark(part.incarnation, part.log_start, part.log_start)
        return {**{key: self._appeared[key] for key in known.keys() - marks.keys()}, **marks}

    def _identified(self, base: Marks, marks: Marks, known: dict[Key, PartitionStatus]) -> dict[Key, Mark] | None:
        """`marks` with the records before them, after those before `base` were compared; None when a stream was deleted
        meanwhile, which the next call sees.
        """
        places = [(key, mark.next) for each in (base, marks) for key, mark in each.items() if key in known]
        try:
            found = self._identify(places)
        except BrokerError as failure:
            if self._options.selection.pattern is None or failure.code != "stream_not_found":
                raise
            self._discovered = float("-inf")
            return None
        for key, mark in base.items():
            if key in known:
                compare(self._options, key, mark, found.get((key, mark.next), Predecessor()))
        return {key: mark.identified(found.get((key, mark.next), Predecessor())) for key, mark in marks.items()}

    def _compare_repeated(self, before: Marks, after: Marks) -> None:
        """Once in a run: the records before both ends of a micro-batch that an earlier run has planned."""
        if self._is_compared:
            return
        self._is_compared = True
        marks = [(key, mark) for each in (before, after) for key, mark in each.items()]
        try:
            found = self._identify([(key, mark.next) for key, mark in marks])
        except BrokerError as failure:
            if failure.code not in {"stream_not_found", "partition_not_found"}:
                raise
            return  # the tasks report it, or skip its records
        for key, mark in marks:
            compare(self._options, key, mark, found.get((key, mark.next), Predecessor()))

    def _remember(self, base: Marks, known: dict[Key, PartitionStatus]) -> None:
        latest = {key: Mark(part.incarnation, base[key].first, part.high_watermark) for key, part in known.items()}
        self._latest = self._document({**base, **latest})

    def _backlogs(self, statuses: dict[str, StreamStatus], base: Marks) -> dict[Key, Backlog]:
        ends = resolve(self._options, statuses, self._options.ending, end_of)
        if self._target is not None:
            ends = {key: min(end, self._target.get(key, 0)) for key, end in ends.items()}
        known = partitions_of(statuses)
        return {key: self._backlog(key, part, base[key], ends[key]) for key, part in known.items()}

    def _backlog(self, key: Key, part: PartitionStatus, mark: Mark, end: int) -> Backlog:
        if mark.next >= end:
            return Backlog(mark.next, mark.next)
        return Backlog(min(check_start(self._options, key, part, mark.next), end), end, part.record_bytes)

    def _is_worth_starting(self, backlogs: dict[Key, Backlog], limits: Limits) -> bool:
        if self._target is not None:
            return any(backlog.size for backlog in backlogs.values())
        return is_worth_starting(backlogs, limits, self._waited_ms())

    def _advance(self, base: Marks, known: dict[Key, PartitionStatus], admitted: dict[Key, int]) -> dict[Key, Mark]:
        """New marks. Where lost records may be skipped, the range still begins at the old mark: the tasks skip."""
        return {
            key: Mark(known[key].incarnation, base[key].first, place)
            for key, place in admitted.items()
            if place != base[key].next
        }


def _tiers_of(options: SourceOptions) -> "StreamTiers | None":
    """The tiers of a run; None = the broker alone."""
    return None if options.archive is None else import_module("bascule.spark.stream_tiers").StreamTiers(options)
