"""Runs a job: one query, restarted after failures that may pass, until its end or until it is stopped.

A stop lets the epoch that is being written finish. A second run with the same checkpoint continues after the last
finished epoch; an epoch that was being written is written again, which each target recognises.
"""

import json
import logging
import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from bascule.errors import BrokerError
from bascule.pipeline.batches import BATCH_EPOCH, BatchRange
from bascule.pipeline.epochs import EpochWriter, Gate, StopRequested, Totals
from bascule.pipeline.expectations import ROWS
from bascule.pipeline.failures import failure_of, may_pass
from bascule.pipeline.files import parse_job
from bascule.pipeline.model.job import Job
from bascule.pipeline.positions import JobPositions
from bascule.pipeline.progress import EpochReport, OnProgress, Written, report_of
from bascule.pipeline.reaching import check_reached
from bascule.pipeline.sessions import check_packages, session_of
from bascule.pipeline.sql import check_query, check_row_by_row, selected
from bascule.pipeline.stages import DECODE_METRICS, EXPECTATION_METRICS, SOURCE_METRICS, Stages
from bascule.pipeline.targets import targets_of
from bascule.pipeline.targets.streams import StreamTarget
from bascule.spark.checkpoint_copies import claim
from bascule.spark.checkpoints import clear_unfinished
from bascule.spark.sentences import shortly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Outcome", "run"]

logger = logging.getLogger("bascule.pipeline")

POLL_S: Final = 0.2
"""How often a running query is asked for its progress."""
COMMIT_S: Final = 10.0
"""How long a stop waits for the checkpoint to have the last epoch."""


@dataclass(frozen=True)
class Outcome:
    """What a run did.

    Attributes:
        epochs: epochs written.
        rows: records of the source in them.
        dead: dead letters of them.
        restarts: restarts after failures.
        stopped: it was stopped before its end; a continuous run has no other end. A stop that came during the last
            epoch of another mode does not count, because that epoch was finished.
    """

    epochs: int
    rows: int
    dead: int
    restarts: int
    stopped: bool


def run(
    job: Job | Mapping[str, Any],
    *,
    spark: "SparkSession | None" = None,
    on_progress: OnProgress | None = None,
    gate: Gate | None = None,
) -> Outcome:
    """Run a job to its end, or until it is stopped: by `gate.stop()`, or by SIGTERM or Ctrl-C in the main thread.

    Args:
        job: of `from_file`, or a mapping with the keys of a job file.
        spark: the session; None = one as the job says.
        on_progress: called after each epoch, on this thread.
        gate: to stop the run from another thread.

    Raises:
        UsageError: the job is not valid, or Spark refuses a part of it.
        StateError: code `record_invalid`: a record may not fail and does; other codes of targets and of the source.
        BrokerError: a failure that does not pass, or did not within `restarts`; or a broker was not reached at all,
            after which there is no restart.
    """
    given = job if isinstance(job, Job) else parse_job(job)
    check_packages()
    check_reached(given)
    runner = _Runner(given, spark or session_of(given), on_progress, gate or Gate())
    with _stopped_by_signals(runner.gate):
        return runner.run()


class _Runner:
    def __init__(self, job: Job, spark: "SparkSession", on_progress: OnProgress | None, gate: Gate) -> None:
        self.gate: Final = gate
        self._job: Final = job
        self._spark: Final = spark
        self._on_progress: Final = on_progress
        self._totals: Final = Totals()
        self._is_at_end = False
        self._rows = 0
        self._restarts = 0
        self._reported = -1
        self._positions: JobPositions | None = None
        self._range: BatchRange | None = None  # of a batch run: the same after a restart, so that targets recognise it

    def run(self) -> Outcome:
        attempts = 0
        while True:
            before = self._totals.epochs
            try:
                self._attempt()
            except BrokerError as failure:
                attempts = 1 if self._totals.epochs > before else attempts + 1
                if not may_pass(failure) or attempts > self._job.restarts.most or self._is_dead():
                    raise
                if not self._pause(failure, attempts):
                    return self._outcome()
                self._restarts += 1
            else:
                return self._outcome()

    def _attempt(self) -> None:
        try:
            if self._job.mode == "batch":
                self._batch()
            else:
                self._stream()
        except StopRequested:
            return
        except BrokerError:
            raise
        except Exception as failure:
            raise failure_of(failure) from failure

    def _writer(self, stages: Stages, range_id: str = "") -> EpochWriter:
        job = self._job
        targets = targets_of(job)
        dead_letters = None if job.dead_letters is None else targets.pop()
        sink = next((each.sink for each in [*targets, dead_letters] if isinstance(each, StreamTarget)), None)
        return EpochWriter(stages, targets, dead_letters, sink, range_id, self.gate, self._totals)

    def _stream(self) -> None:
        job = self._job
        stages = Stages.of(job)
        checked = stages.checked(stages.source(self._spark, streaming=True))
        if job.sql is not None:
            check_query(self._spark, job.sql)
        result = selected(stages.shown(checked), job.sql)
        if job.sql is not None:
            check_row_by_row(result)
        writer = self._writer(stages)
        writer.check(result.schema)
        claim(str(job.checkpoint))
        writer.check_continues()
        stream = checked.writeStream.queryName(job.name).foreachBatch(shortly(writer, failure_of))
        stream = stream.option("checkpointLocation", str(job.checkpoint))
        if job.mode == "availableNow":
            stream = stream.trigger(availableNow=True)
        elif job.interval:
            stream = stream.trigger(processingTime=f"{job.interval} milliseconds")
        clear_unfinished(self._spark, str(job.checkpoint))
        query = stream.start()
        self._positions = positions = JobPositions(job)
        try:
            self._watch(query, writer)
        finally:
            query.stop()
            positions.end()

    def _watch(self, query: "StreamingQuery", writer: EpochWriter) -> None:
        """Until the query ends, or a stop was requested and the epoch is finished."""
        untyped: Any = query
        while True:
            try:
                ended = untyped.awaitTermination(POLL_S)  # declared for whole seconds, but milliseconds count
            except Exception as failure:
                self._report(query)
                is_ended_by_stop = self.gate.is_stopping and writer.failure is None  # Ctrl-C reaches planners too
                if is_ended_by_stop:
                    logger.info("%s: stopped; its query ended with: %s", self._job.name, failure_of(failure))
                if is_ended_by_stop or isinstance(writer.failure, StopRequested):
                    return
                raise failure_of(writer.failure or failure) from failure
            self._report(query)
            if ended:
                self._is_at_end = self._job.mode != "continuous"
                return
            if self.gate.is_stopping and not self.gate.is_busy:
                self._wait_for_commit(query)
                return

    def _wait_for_commit(self, query: "StreamingQuery") -> None:
        """Until the checkpoint has the last epoch that was written, so that the next run need not repeat it."""
        deadline = time.monotonic() + COMMIT_S
        last = self._totals.last_epoch
        while last is not None and self._reported < last and query.isActive and time.monotonic() < deadline:
            time.sleep(POLL_S / 4)
            self._report(query)

    def _report(self, query: "StreamingQuery") -> None:
        for progress in query.recentProgress:
            if progress.batchId <= self._reported or not progress.numInputRows:
                continue
            self._reported = int(progress.batchId)
            self._rows += int(progress.numInputRows)
            document: dict[str, Any] = json.loads(progress.json)
            if self._positions is not None:
                self._positions.finished(document)
            self._say(report_of(self._job.name, document, self._written(), has_end=self._job.mode != "continuous"))

    def _written(self) -> Written:
        return Written(self._rows, self._totals.dead, self._restarts)

    def _say(self, report: EpochReport) -> None:
        if self._on_progress is not None:
            self._on_progress(report)

    def _batch(self) -> None:
        from pyspark.sql import Observation  # noqa: PLC0415 - heavy

        job = self._job
        started = time.monotonic()
        observe = {name: Observation(name) for name in (SOURCE_METRICS, DECODE_METRICS, EXPECTATION_METRICS)}
        stages = Stages.of(job, observe)
        if job.sql is not None:
            check_query(self._spark, job.sql)
        if self._range is None:
            self._range = BatchRange.of(job)
            logger.info("%s: reads %s", job.name, self._range)
        checked = stages.checked(stages.source(self._spark, streaming=False, positions=self._range.positions))
        writer = self._writer(stages, self._range.id)
        writer.check(selected(stages.shown(checked), job.sql).schema)
        writer(checked, BATCH_EPOCH)
        self._rows = int(observe[SOURCE_METRICS].get[ROWS])
        duration = round((time.monotonic() - started) * 1000)
        progress = {
            "batchId": BATCH_EPOCH,
            "numInputRows": self._rows,
            "durationMs": {"triggerExecution": duration},
            "observedMetrics": {name: observe[name].get for name in stages.observed},
        }
        self._say(report_of(job.name, progress, self._written(), has_end=True))
        self._is_at_end = True

    def _pause(self, failure: BrokerError, attempts: int) -> bool:
        """Wait before a restart; returns whether to restart."""
        restarts = self._job.restarts
        delay_ms = min(restarts.first_delay << min(attempts - 1, 30), restarts.longest_delay)
        logger.warning(
            "%s: %s; restart %d of at most %d in %.1f s",
            *(self._job.name, failure, attempts, restarts.most, delay_ms / 1000),
        )
        deadline = time.monotonic() + delay_ms / 1000
        while time.monotonic() < deadline:
            if self.gate.is_stopping:
                return False
            time.sleep(min(POLL_S, max(deadline - time.monotonic(), 0)))
        return not self.gate.is_stopping

    def _is_dead(self) -> bool:
        """Whether Spark itself has ended, which a restart of the query cannot change."""
        context: Any = self._spark.sparkContext
        try:
            return context._jsc is None or bool(context._jsc.sc().isStopped())  # noqa: SLF001
        except Exception:  # noqa: BLE001 - the process of the JVM is gone
            return True

    def _outcome(self) -> Outcome:
        totals = self._totals
        is_stopped = self.gate.is_stopping and not self._is_at_end
        return Outcome(totals.epochs, self._rows, totals.dead, self._restarts, is_stopped)


@contextmanager
def _stopped_by_signals(gate: Gate) -> Generator[None]:
    """SIGTERM and Ctrl-C request a stop while the context lasts; a second Ctrl-C interrupts at once."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers
        return

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        if gate.is_stopping and number == signal.SIGINT:
            raise KeyboardInterrupt
        gate.stop()

    before: dict[int, Callable[[int, FrameType | None], Any] | int | None] = {
        number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
