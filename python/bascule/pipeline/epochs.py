"""What happens to the rows of one epoch: they are checked, selected and written to each target, or to the dead letters.

Runs on the driver, as the function of `foreachBatch` or once in a batch run. Each table has the epoch's rows exactly
once, by query and epoch, and so have all streams together; a replay after a crash may give one of these the rows of the
first attempt and another those of the second, which differ only if the SELECT does (`rand()`, the current time).
"""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bascule.failpoints import failpoint
from bascule.pipeline.dead_letters import Origin, decode_failed, letters
from bascule.pipeline.expectations import failed_any
from bascule.pipeline.sql import selected
from bascule.pipeline.stages import Stages
from bascule.pipeline.targets.streams import JobSink, StreamTarget
from bascule.pipeline.targets.table import TableTarget
from bascule.pipeline.targets.target import JobTarget
from bascule.pipeline.unknown_schemas import UnknownSchemas

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["EpochWriter", "Gate", "StopRequested", "Totals"]

QUERY_ID: Final = "sql.streaming.queryId"
"""Local property of Spark with the id of the running query."""
SCHEMA_CHANGED: Final = "SchemaChanged"


class StopRequested(Exception):  # noqa: N818 - not an error
    """The job shall stop; the epoch has not begun."""


class Gate:
    """Lets epochs begin until a stop is requested, and knows whether one is being written. Safe between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_stopping = False
        self._is_busy = False

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._is_stopping

    @property
    def is_busy(self) -> bool:
        """Whether an epoch is being written."""
        return self._is_busy

    def stop(self) -> None:
        """Let no further epoch begin. Idempotent."""
        with self._lock:
            self._is_stopping = True

    @contextmanager
    def open(self) -> Generator[None]:
        """Write an epoch while the context lasts.

        Raises:
            StopRequested: a stop was requested before.
        """
        with self._lock:
            if self._is_stopping:
                raise StopRequested
            self._is_busy = True
        try:
            yield
        finally:
            with self._lock:
                self._is_busy = False


@dataclass
class Totals:
    """What a run has written so far: epochs, dead letters, and the number of the last epoch."""

    epochs: int = 0
    dead: int = 0
    last_epoch: int | None = None


@dataclass
class EpochWriter:
    """Writes epochs.

    Attributes:
        stages: from the source to the checked rows.
        targets: of the job, in its order.
        dead_letters: where dead letters go, or None.
        sink: writes to the streams among them; None = there are none.
        range_id: of a batch run, see `Origin`; empty in a streaming run.
        gate: whether an epoch may begin.
        totals: counts of the epochs written.
        failure: what ended the last epoch that failed.
    """

    stages: Stages
    targets: Sequence[JobTarget]
    dead_letters: JobTarget | None
    sink: JobSink | None = None
    range_id: str = ""
    gate: Gate = field(default_factory=Gate)
    totals: Totals = field(default_factory=Totals)
    failure: Exception | None = None

    def check(self, schema: "StructType") -> None:
        """Refuse a job whose rows one of its targets could not take, before it reads any. Columns of a table that is
        there are compared for each epoch.

        Raises:
            UsageError: of the column that does not fit.
            StateError: a table is of another format, or has other rows.
        """
        for target in self.targets:
            target.check(schema)
        if isinstance(self.dead_letters, TableTarget):
            self.dead_letters.check_place()

    def check_continues(self) -> None:
        """Refuse tables that lack epochs which the job has written to them, before the query starts.

        Raises:
            StateError: a table was deleted, is another one, or an older copy of it was restored.
        """
        for target in (*self.targets, self.dead_letters):
            if isinstance(target, TableTarget):
                target.check_continues(str(self.stages.job.checkpoint))

    def __call__(self, batch: "DataFrame", epoch: int) -> None:
        """Write one epoch; see the module.

        Raises:
            StopRequested: a stop was requested; nothing was written.
            Exception: of a target or of Spark. Targets before the one that failed have the epoch.
        """
        try:
            with self.gate.open():
                self._write(batch, epoch)
        except Exception as failure:
            self.failure = failure
            raise

    def _write(self, batch: "DataFrame", epoch: int) -> None:
        origin = self._origin(batch, epoch)
        if self.dead_letters is None and len(self.targets) == 1:
            # Read once by the only write. A record that may not fail ends its task, and nothing is committed.
            self.targets[0].write(selected(self.stages.shown(batch), self.stages.job.sql), origin)
            failpoint("job.target_written")
        else:
            self._write_several(batch, origin)
        self.totals.epochs += 1
        self.totals.last_epoch = epoch

    def _origin(self, batch: "DataFrame", epoch: int) -> Origin:
        name = self.stages.job.name
        if self.range_id:
            return Origin(name, f"batch-{name}", epoch, self.range_id)
        query_id = str(batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID))
        return Origin(name, query_id, epoch, checkpoint=str(self.stages.job.checkpoint))

    def _write_several(self, batch: "DataFrame", origin: Origin) -> None:
        from pyspark.storagelevel import StorageLevel  # noqa: PLC0415 - heavy

        # Read, decoded and checked once, and completely before anything is written: a record that may not fail ends the
        # epoch here.
        is_framed = bool(self.stages.decoding.python)
        unknown = UnknownSchemas(origin.checkpoint if is_framed else None)
        kept = batch = unknown.as_before(batch, origin.epoch).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rows, dead = self._counted(batch)
            if dead and is_framed and self.stages.job.decode.on_decode_error == "dlq":
                batch = unknown.noted(batch, origin.epoch)
                dead = self._counted(batch)[1]
            self.totals.dead += dead + self._write_rows(batch, origin, rows, dead)
        finally:
            kept.unpersist()

    def _counted(self, batch: "DataFrame") -> tuple[int, int]:
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

        counts: Any = batch.agg(F.count(F.lit(1)), F.count_if(self._is_dead(batch))).collect()[0]
        return int(counts[0]), int(counts[1])

    def _is_dead(self, batch: "DataFrame") -> "Column":
        from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name, and heavy

        job = self.stages.job
        dead = decode_failed(batch.columns) if job.decode.on_decode_error == "dlq" else F.lit(False)
        names = list(job.expectations.expect_or_dlq)
        return dead | failed_any(names) if names else dead

    def _write_rows(self, batch: "DataFrame", origin: Origin, rows: int, dead: int) -> int:
        """Write an epoch; returns how many records no target could take, beside the `dead` ones."""
        is_dead = self._is_dead(batch)
        good = batch.where(~is_dead) if dead else batch
        left_out = [letters(batch.where(is_dead), origin)] if dead else []
        to_streams: list[tuple[StreamTarget, DataFrame]] = []
        rejected = 0
        if rows > dead:
            result = selected(self.stages.shown(good), self.stages.job.sql)
            for target in self.targets:
                if isinstance(target, StreamTarget):
                    to_streams.append((target, result))
                elif (reason := target.rejects(result.schema)) is None:
                    target.write(result, origin)
                    failpoint("job.target_written")
                else:
                    left_out.append(letters(good, origin, (SCHEMA_CHANGED, f"{target.place}: {reason}")))
                    rejected += rows - dead
        if left_out:
            assert self.dead_letters is not None  # the model demands it
            every = left_out[0]
            for more in left_out[1:]:
                every = every.unionByName(more)
            if isinstance(self.dead_letters, StreamTarget):
                to_streams.append((self.dead_letters, self.dead_letters.letters(every)))
            else:
                self.dead_letters.write(every, origin)
        if to_streams:
            assert self.sink is not None  # made with the streams
            self.sink.write(to_streams, origin)
        return rejected
