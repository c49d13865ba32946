"""Spark's writers of one epoch. Tasks write files, the driver commits; nothing of an epoch is visible before.

Spark makes a writer on the driver and pickles it to the tasks; for `commit` of a streaming query it makes another one,
so that all that `commit` needs travels in the messages of the tasks.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from bascule.errors import InternalError
from bascule.lake.commit import commit_epoch
from bascule.lake.disk_errors import disk_errors
from bascule.lake.epochs import Epoch, Writer, run_of
from bascule.lake.maintenance import compact_if_due
from bascule.lake.options import parse_archive_options
from bascule.lake.planned import planned_ranges, planned_sources, with_planned
from bascule.lake.progress import progress_of
from bascule.lake.ranges import Source, Written, merge
from bascule.lake.rows import shape_of
from bascule.lake.tables import open_table
from bascule.lake.tasks import TablePart, write_rows
from bascule.spark.checkpoint_copies import offsets_hash
from bascule.spark.idle import leave_when_closed
from bascule.spark.sentences import sentence_first
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("bascule.lake")

CHECKPOINT = "checkpointlocation"
"""Spark's option of a streaming query, in lower case; `write_epoch` gives it within `foreachBatch`."""
ONE_TABLE = "onetable"
"""Option of `write_epoch`, in lower case: see there."""
_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"
"""Local properties of tasks of a streaming query; the second one is the id of its run, unless the user set another."""


@dataclass(frozen=True)
class Wrote(WriterCommitMessage):
    """The message of one task: who it wrote for, and what, by stream (see `write_rows`)."""

    query_id: str | None
    run_id: str | None
    token: str
    parts: Mapping[str, TablePart]


class _Writing:
    """What the batch and the stream writer share."""

    def __init__(self, schema: "StructType", given: Mapping[str, str], *, overwrite: bool) -> None:
        self._options = parse_archive_options(given)
        self._checkpoint = next((text for name, text in given.items() if name.lower() == CHECKPOINT), "")
        self._one_table = True
        if overwrite:
            raise usage("bascule_archive appends: use the mode append, and not the output mode complete")
        self._shape = shape_of(schema, self._options)
        self._token = uuid4().hex

    @property
    def _remain(self) -> str:
        """What becomes of the files of an aborted attempt."""
        if self._options.table_format == "iceberg":
            return "its files remain until the engine that owns the table removes orphan files"
        return "its files remain until vacuum"

    def _write(self, batches: Iterator[Any]) -> Wrote:
        leave_when_closed()
        context = TaskContext.get()
        if context is None:
            raise InternalError("internal", "write was called outside of a task")
        with sentence_first(), disk_errors(self._options.path):
            task = f"{context.partitionId():05d}-{context.taskAttemptId()}"
            parts = write_rows(batches, self._options, self._shape, (self._token, task))
        properties = (context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_RUN_ID))
        return Wrote(*properties, self._token, parts)

    def _commit(self, messages: Sequence[Wrote | None], epoch: int, query_id: str | None, range_id: str = "") -> None:
        offsets = "" if range_id else offsets_hash(self._checkpoint, epoch)
        wrote = [message for message in messages if message is not None]
        writers = {(query_id or message.query_id, message.run_id, message.token) for message in wrote}
        if len(writers) != 1 or len(wrote) != len(messages):
            raise InternalError(
                "internal", f"{len(messages)} tasks reported {len(wrote)} times, as {len(writers)} writers"
            )
        (query, run, token) = writers.pop()
        if query is None:
            raise InternalError("internal", f"Spark did not set the local property {_QUERY_ID}")
        writer = Writer(query, self._options.target, range_id)
        follows_offsets = self._options.complete and self._shape.has_offsets and not range_id
        planned = planned_ranges(self._checkpoint, epoch) if follows_offsets else {}
        per_stream = self._options.has_table_per_stream
        tables = {stream for message in wrote for stream in message.parts}
        tables |= {source.stream if per_stream else "" for source in planned}
        for stream in sorted(tables):
            parts = [message.parts[stream] for message in wrote if stream in message.parts]
            ranges = merge(each for part in parts for each in part.ranges) if self._shape.has_offsets else None
            if ranges is not None:
                ranges = with_planned(ranges, planned, frozenset((stream,)) if per_stream else None)
            self._commit_table(stream, parts, ranges, (writer, epoch), (run_of(run) or token, token, offsets))

    def _commit_table(
        self,
        stream: str,
        parts: Sequence[TablePart],
        ranges: Mapping[Source, Written] | None,
        writing: tuple[Writer, int],
        attempt: tuple[str, str, str],
    ) -> None:
        """Commit what one table gets: rows, or only that there are no records in a planned range."""
        writer, number = writing
        files = [file for part in parts for file in part.files]
        rows = sum(file.rows for file in files)
        if not rows and not ranges:
            return
        run_id, token, offsets = attempt
        complete = self._options.complete
        epoch = Epoch(writer, number, run_id, token, rows, ranges, complete=complete, offsets_hash=offsets)
        table = open_table(self._options, stream)
        path = self._options.path
        progress = progress_of(self._checkpoint, writer, path, stream, one_table=self._one_table)
        if commit_epoch(table, self._shape.table, epoch, files, progress):
            compact_if_due(table, self._options, number)
        if self._options.report_to is not None and ranges:
            from bascule.lake.reporting import report_archived  # noqa: PLC0415 - executors lack protobuf

            streams = {source.stream for source in ranges}
            known = (source for source in planned_sources(self._checkpoint, number) if source.stream in streams)
            report_archived(table, self._options, {*ranges, *known})


class StreamEpochWriter(_Writing, DataSourceStreamArrowWriter):
    """One epoch of a streaming query."""

    def write(self, iterator: Iterator[Any]) -> Wrote:
        """Write the rows of one task, in the task."""
        return self._write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit the epoch to each table, on the driver. Returns when the tables have it."""
        with sentence_first(), disk_errors(self._options.path):
            self._commit(cast("list[Wrote | None]", messages), batchId, None)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """Leave the files: a commit whose answer was lost may have published them. Vacuum removes others."""
        logger.warning("epoch %d of %s was aborted; %s", batchId, self._options.path, self._remain)


class EpochWriter(_Writing, DataSourceArrowWriter):
    """One epoch of a query, written by a batch: inside `foreachBatch`, or by a job that may be repeated."""

    def __init__(self, schema: "StructType", given: Mapping[str, str], *, overwrite: bool) -> None:
        super().__init__(schema, given, overwrite=overwrite)
        self._query_id, self._epoch, self._range_id = parse_epoch(given)
        self._one_table = any(name.lower() == ONE_TABLE for name in given)

    def write(self, iterator: Iterator[Any]) -> Wrote:
        """Write the rows of one task, in the task."""
        return self._write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Commit the rows to each table, on the driver."""
        with sentence_first(), disk_errors(self._options.path):
            self._commit(cast("list[Wrote | None]", messages), self._epoch, self._query_id, self._range_id)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - Spark's
        """As `StreamEpochWriter.abort`."""
        logger.warning("a write to %s was aborted; %s", self._options.path, self._remain)


def parse_epoch(given: Mapping[str, str]) -> tuple[str, int, str]:
    """The query, the epoch and the range that a batch write belongs to; the range may be empty.

    Raises:
        UsageError: one of the first two is missing or is not valid, or the epoch is not 0 with a range.
    """
    lower = {name.lower(): value.strip() for name, value in given.items()}
    query_id, epoch = lower.get("queryid", ""), lower.get("epoch", "")
    if not query_id or not (epoch.isascii() and epoch.isdigit()) or int(epoch) >= 2**63:
        raise usage(
            f"a batch write needs the options queryId and epoch (now {query_id!r} and {epoch!r}), by which a "
            "repetition is recognised: in foreachBatch use bascule.lake.write_epoch, else a name of the job, and 0"
        )
    range_id = lower.get("rangeid", "")
    if range_id and int(epoch):
        raise usage(f"option epoch is {epoch}: with rangeId it is 0, because each range is written once")
    return query_id, int(epoch), range_id
