"""Runs the epochs of a replay, on the driver; each is one epoch of a sink, written by one task for each lane.

The broker knows the replay by its sink, and each run is a new generation: an earlier run that still lives is fenced
before this one looks which epoch is the last. The end of an epoch is in the checkpoint before it is published, so what
the broker has is known exactly, and nothing of it is read again.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

from bascule.errors import BrokerError, StateError, error
from bascule.failpoints import failpoint
from bascule.spark.connection import Broker, StatusRequest
from bascule.spark.replaying.checkpoint import Checkpoint, Plan, Reached
from bascule.spark.replaying.lanes import Lane, Part, Position, Share, share_of
from bascule.spark.replaying.options import TransferOptions
from bascule.spark.replaying.preview import Outcome, Progress
from bascule.spark.replaying.results import collected
from bascule.spark.replaying.rows import fitting
from bascule.spark.sink.calls import OpenedSink, SinkCalls
from bascule.spark.sink.identity import MAX_TASKS, Writer
from bascule.spark.sink.options import SinkOptions, parse_sink_options
from bascule.spark.sink.tasks import TaskMessage, write_task
from bascule.spark.sink.writers import publish
from bascule.spark.spelling import spelled
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACE_S: Final = 5.0
"""With a limit of rows in a second an epoch has the rows of so many seconds."""
OnProgress = Callable[[Progress], None]


class Reader(Protocol):
    """Reads a source in tasks."""

    def read(self, part: Part) -> Iterator[Any]:
        """Record batches of a part with its columns, in order of offset."""
        ...


class RowShape(Protocol):
    """How records become rows of the sink, in tasks."""

    @property
    def keeps_partition(self) -> bool:
        """Whether rows go to the partition that they are from."""
        ...

    def rows(self, batch: Any, partition: int) -> tuple[Any, Any]:
        """The rows of records of a partition, and the offset of each."""
        ...


@dataclass(frozen=True)
class Work:
    """What the tasks of an epoch do.

    Attributes:
        reader: of the source.
        shape: of its rows.
        options: of the sink, with the ids of the epoch.
        token: of this attempt to write it.
        share: bounds of each lane; None = each lane stops at the position given for it.
        starts: lanes that are not at their end, each with its position and where to stop.
    """

    reader: Reader
    shape: RowShape
    options: SinkOptions
    token: str
    share: Share | None
    starts: tuple[tuple[Lane, Position, Position], ...]


@dataclass(frozen=True)
class Done:
    """What a task did: its message to the sink, the position it has reached, its rows and their bytes."""

    message: TaskMessage
    reached: Position
    rows: int
    bytes: int


@dataclass(frozen=True)
class Failed:
    """Why a task cannot succeed, however often it is tried."""

    code: str
    text: str
    details: dict[str, Any]


class _Cursor:
    """The rows of one lane in one epoch."""

    def __init__(self, work: Work, number: int) -> None:
        self._work = work
        self._lane, self.reached, self._end = work.starts[number]
        self.rows, self.bytes = 0, 0

    def batches(self) -> Iterator[Any]:
        """Rows for the sink, until the bounds; then `reached` is where the next epoch begins."""
        for number, part in self._lane.between(self.reached, self._end):
            for batch in self._work.reader.read(part):
                rows, offsets = self._work.shape.rows(batch, self._lane.partition)
                count, size = self._fitting(rows)
                self.rows, self.bytes = self.rows + count, self.bytes + size
                if count:
                    yield rows.slice(0, count)
                if count < rows.num_rows:
                    self.reached = self._lane.normal(number, int(offsets[count].as_py()))
                    return
        self.reached = self._end

    def _fitting(self, rows: Any) -> tuple[int, int]:
        share = self._work.share
        if share is None:
            return fitting(rows, rows.num_rows, 1 << 62)
        count, size = fitting(rows, share.rows - self.rows, share.bytes - self.bytes)
        if count or self.rows or not rows.num_rows:
            return count, size
        return fitting(rows, 1, 1 << 62)  # one row may be larger than the share


def _write(work: Work, number: int) -> Done | Failed:
    from pyspark import TaskContext  # noqa: PLC0415 - only tasks have one

    cursor = _Cursor(work, number)
    try:
        message = write_task(work.options, work.token, cursor.batches(), TaskContext.get(), is_stream=False)
    except BrokerError as failure:
        if failure.retry == "backoff":
            raise  # Spark may try the task again
        return Failed(failure.code, str(failure), dict(failure.details))
    return Done(message, cursor.reached, cursor.rows, cursor.bytes)


@dataclass
class Transfer:
    """One run of a replay.

    Attributes:
        spark: the session.
        options: of the replay.
        checkpoint: of the replay.
        plan: of the replay.
        reader: of the source.
        shape: of its rows.
        on_progress: called after each epoch, on this thread.
    """

    spark: "SparkSession"
    options: TransferOptions
    checkpoint: Checkpoint
    plan: Plan
    reader: Reader
    shape: RowShape
    on_progress: OnProgress | None = None

    def run(self, lost: Sequence[str]) -> Outcome:
        """Write what is left.

        Raises:
            UsageError: the target has fewer partitions than the source, and rows are to keep theirs.
            StateError: another replay has this id at the broker, or checkpoint and broker do not agree.
            BrokerError: an epoch was not written, or that is not known; run the replay again.
        """
        began, run_id = time.monotonic(), str(uuid4())
        opened = self._open(run_id)
        if self.shape.keeps_partition:
            check_partitions(self.options, self.plan.lanes, opened.streams[0].partitions)
        if self.plan.is_new:
            self.checkpoint.keep(self.plan)
        epoch = 0 if opened.last_epoch is None else opened.last_epoch + 1
        reached = self._reached(epoch)
        first, ends = epoch, tuple(lane.end for lane in self.plan.lanes)
        before = reached.rows
        while reached.positions != ends:
            started = time.monotonic()
            following = self._epoch(run_id, epoch, reached)
            self._report(epoch, following, reached.rows, before, time.monotonic() - began)
            self._pace(following.rows - reached.rows, time.monotonic() - started, is_last=following.positions == ends)
            reached, epoch = following, epoch + 1
        seconds = round(time.monotonic() - began, 3)
        counts = (reached.rows, reached.bytes, epoch, epoch - first)
        return Outcome(self.options.id, ", ".join(self.options.targets), *counts, seconds, list(lost))

    def _open(self, run_id: str) -> OpenedSink:
        """The sink, for this run alone."""
        options = self._sink_options(run_id, 0)
        writer = Writer("foreach", "kept", self.options.sink_id, self.plan.query_id, run_id, 0)
        try:
            return SinkCalls(options).open(writer, self.options.targets)
        except StateError as failure:
            if failure.code != "sink_conflict":
                raise
            text = (
                f"the broker has epochs of {self.options.id} that were written with another checkpoint: use the folder "
                "of that run. If it was deleted, another id would write these records a second time: begin "
                f"after the records that {', '.join(self.options.targets)} has, or, if it has no others, delete it and "
                f"create it again first. Present ends by stream and partition: {self._ends(options)}"
            )
            raise StateError("sink_conflict", text, dict(failure.details)) from failure

    def _ends(self, options: SinkOptions) -> str:
        """The ends of the partitions of the targets, as the option startingOffsets has them."""
        place = (options.address, options.namespace, options.request_timeout_ms, options.retry_deadline_ms)
        found = Broker(*place).status([StatusRequest(name) for name in self.options.targets])
        ends = {
            name: {str(number): part.high_watermark for number, part in sorted(status.partitions.items())}
            for name, status in sorted(found.items())
        }
        return json.dumps(ends)

    def _reached(self, epoch: int) -> Reached:
        """Where the epochs before `epoch` end.

        Raises:
            StateError: `sink_epoch`, if the checkpoint is older or newer than what the broker has.
        """
        last = self.checkpoint.last()
        if last < epoch - 1 or last > epoch:
            has = f"epoch {epoch - 1}" if epoch else "no epoch"
            text = (
                f"the broker has {has} of replay {self.options.id}, and the checkpoint ends with epoch {last}: one of "
                "them was restored from a backup or deleted; start another replay for what is missing, with another id"
            )
            raise StateError("sink_epoch", text, {"epoch": epoch - 1, "checkpoint": last})
        if not epoch:
            return Reached(tuple(lane.start for lane in self.plan.lanes), 0, 0)
        reached = self.checkpoint.reached(epoch - 1)
        assert reached is not None  # `last` has seen it or a later one, and files are never removed
        return reached

    def _epoch(self, run_id: str, epoch: int, reached: Reached) -> Reached:
        """Write one epoch; returns where it ends."""
        known = self.checkpoint.reached(epoch)
        ends = tuple(lane.end for lane in self.plan.lanes) if known is None else known.positions
        places = zip(self.plan.lanes, reached.positions, ends, strict=True)
        moving = [(number, place) for number, place in enumerate(places) if place[1] != place[2]]
        starts = tuple(place for _, place in moving[:MAX_TASKS])
        options = self._sink_options(run_id, epoch)
        share = self._share(len(starts)) if known is None else None
        work = Work(self.reader, self.shape, options, secrets.token_hex(16), share, starts)
        done = self._run_tasks(work)
        if known is None:
            positions = list(reached.positions)
            for (number, _), each in zip(moving, done, strict=False):
                positions[number] = each.reached
            rows, size = sum(each.rows for each in done), sum(each.bytes for each in done)
            known = Reached(tuple(positions), reached.rows + rows, reached.bytes + size)
            failpoint("replay.staged")
            self.checkpoint.end(epoch, known)
        failpoint("replay.ended")
        publish(options, [each.message for each in done], "")
        failpoint("replay.published")
        return known

    def _share(self, lanes: int) -> Share:
        rows = self.options.epoch_rows
        if self.options.rows_per_second is not None:
            rows = min(rows, max(int(self.options.rows_per_second * PACE_S), 1))
        return share_of(lanes, rows, self.options.epoch_bytes)

    def _run_tasks(self, work: Work) -> list[Done]:
        context = self.spark.sparkContext
        shared = context.broadcast(work)

        def write(numbers: Iterable[int]) -> Iterator[Done | Failed]:
            for number in numbers:
                yield _write(shared.value, number)

        try:
            # Fails if a worker died, or the broker was not reachable for too long.
            results: list[Done | Failed] = collected(
                context.parallelize(range(len(work.starts)), len(work.starts)).mapPartitions(write)
            )
        finally:
            shared.destroy()
        for each in results:
            if isinstance(each, Failed):
                raise error(each.code, each.text, each.details)
        return [each for each in results if isinstance(each, Done)]

    def _sink_options(self, run_id: str, epoch: int) -> SinkOptions:
        ids = {"queryId": self.plan.query_id, "runId": run_id, "batchId": str(epoch)}
        given = {**self.options.sink, **ids, **self.options.target_option, "sinkId": self.options.sink_id}
        return parse_sink_options(given, is_stream=False)

    def _report(self, epoch: int, reached: Reached, rows_before: int, run_before: int, seconds: float) -> None:
        if self.on_progress is None:
            return
        rate = (reached.rows - run_before) / seconds if seconds else 0.0
        left = max(self.plan.rows - reached.rows, 0)
        self.on_progress(
            Progress(
                self.options.id,
                epoch,
                reached.rows - rows_before,
                reached.rows,
                self.plan.rows,
                round(rate, 1),
                round(left / rate, 1) if rate else None,
            )
        )

    def _pace(self, rows: int, seconds: float, *, is_last: bool) -> None:
        """Wait until the rows of an epoch have taken as long as the limit asks for."""
        limit = self.options.rows_per_second
        if limit is not None and not is_last:
            time.sleep(max(rows / limit - seconds, 0.0))


def check_partitions(options: TransferOptions, lanes: Sequence[Lane], partitions: int) -> None:
    """Refuse a target without the partitions of the source, if rows keep theirs.

    Raises:
        UsageError: it has too few.
    """
    most = max((lane.partition for lane in lanes), default=-1)
    if most >= partitions and not options.repartition:
        text = (
            f"stream {options.to} has {partitions} partitions, and the source has records of partition {most}: set "
            f"{spelled('repartition')} to choose partitions by key, or create the target with as many as the source"
        )
        raise usage(text, stream=options.to, partitions=partitions)
