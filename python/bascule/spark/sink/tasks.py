"""One task of a write: from Spark's batches to pieces at the broker, and the message to the driver."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from bascule.errors import BrokerError, StateError
from bascule.failpoints import failpoint
from bascule.spark.sink.calls import OpenedSink, SinkCalls, SinkStream, Target
from bascule.spark.sink.identity import CALLS, Writer, query_ids, task_of, writer_of
from bascule.spark.sink.options import SinkOptions
from bascule.spark.sink.refusals import NO_COUNTS, Counts, RowCheck
from bascule.spark.sink.renewal import Renewal
from bascule.spark.sink.rows import by_stream, with_partition
from bascule.spark.sink.staging import Attempt, Stager


@dataclass(frozen=True)
class TaskMessage(WriterCommitMessage):
    """What a task did.

    Attributes:
        writer: who writes; the same in all tasks of an epoch. None for `at_least_once`.
        sink: id and generation.
        token: of the attempt to write the epoch.
        task: task partition.
        attempt: of the broker.
        targets: what was stored; empty for an epoch that is decided already.
        rows: that the task was given.
        digest: of these, below 2^128.
        is_replay: the epoch is decided already, so nothing was stored.
        counts: rows that were refused and did not fail the write.
    """

    writer: Writer | None
    sink: tuple[int, int]
    token: str
    task: int
    attempt: int
    targets: tuple[Target, ...]
    rows: int
    digest: int
    is_replay: bool
    counts: Counts = NO_COUNTS


@dataclass
class _Streams:
    """What streams accept; each is asked for once."""

    calls: SinkCalls
    known: dict[str, SinkStream | None] = field(default_factory=dict[str, SinkStream | None])

    def of(self, name: str) -> SinkStream | None:
        """None = it does not exist, or takes no rows of clients."""
        if name not in self.known:
            self.known[name] = self.calls.streams([name]).get(name)
        return self.known[name]


_opened: dict[tuple[str, str, Writer], tuple[OpenedSink, _Streams]] = {}
"""The sinks that this process has opened; a new run or epoch opens again."""


def write_task(
    options: SinkOptions, token: str, batches: Iterator[Any], context: Any, *, is_stream: bool
) -> TaskMessage:
    """Write one task's rows.

    Args:
        options: of the write.
        token: of the attempt to write the epoch.
        batches: Arrow record batches.
        context: Spark's task context.
        is_stream: whether a streaming query writes.

    Raises:
        BrokerError: the rows were not stored.
    """
    if options.delivery == "at_least_once":
        return _append(options, batches, context)
    task, spark_attempt = task_of(context)
    writer = writer_of(options, context, token, is_stream=is_stream)
    calls = SinkCalls(options)
    sink, streams = _open(options, calls, writer)
    check = RowCheck(options, task, streams.of, _origin(writer, task))
    work = _Task(options, calls, writer, sink, token, check)
    if sink.last_epoch is not None and writer.epoch <= sink.last_epoch:
        return work.verified(batches)
    try:
        return work.staged(batches, spark_attempt * CALLS)
    except BrokerError:
        _opened.clear()  # what streams accept may have changed
        raise


def _append(options: SinkOptions, batches: Iterator[Any], context: Any) -> TaskMessage:
    task, ids = int(context.partitionId()), options.ids or query_ids(context)
    origin = [("task", str(task))]
    if ids is not None:
        origin += [("query_id", ids.query_id), ("epoch", str(ids.epoch))]
    check = RowCheck(options, task, _Streams(SinkCalls(options)).of, tuple(origin))
    _send(options, None, batches, check)
    return TaskMessage(None, (0, 0), "", task, 0, (), check.rows, 0, is_replay=False, counts=check.counts)


def _origin(writer: Writer, task: int) -> tuple[tuple[str, str], ...]:
    query = (("query_id", writer.query_id),) if writer.query_id else ()
    return (("sink", writer.name), *query, ("epoch", str(writer.epoch)), ("task", str(task)))


def _send(
    options: SinkOptions,
    attempt: Attempt | None,
    batches: Iterator[Any],
    check: RowCheck,
    alive: Callable[[], None] = lambda: None,
) -> list[Target]:
    """Send a task's rows and dead letters.

    Args:
        options: of the write.
        attempt: as `Stager` has it.
        batches: Arrow record batches.
        check: of the rows.
        alive: called often.

    Returns:
        What was stored, as `Stager.finish` does.

    Raises:
        BrokerError: the rows were not stored, or the broker stored others than the task sent.
    """
    stager = Stager(options.address, options.namespace, attempt)
    check.letter_limits()
    try:
        for batch in batches:
            for stream, rows, numbers in by_stream(batch, options, check.rows):
                limits = check.limits(stream) if stream and options.partitioner != "key" else None
                if limits is not None:
                    rows = with_partition(rows, options, limits.partitions)  # noqa: PLW2901 - the same rows
                checked = check.sifted(stream, rows, numbers)
                if stream and checked.kept.num_rows:
                    stager.send(stream, checked.kept)
                for letters in checked.letters:
                    stager.send(str(options.dlq_stream), letters)
                alive()
                failpoint("sink.staging")
        targets = stager.finish()
    except BaseException:
        stager.cancel()
        raise
    if attempt is not None:
        check.compare(targets)
    return targets


def _open(options: SinkOptions, calls: SinkCalls, writer: Writer) -> tuple[OpenedSink, _Streams]:
    key = (options.address, options.namespace, writer)
    known = _opened.get(key)
    if known is None:
        streams = (options.stream,) if options.stream is not None else options.streams
        found = calls.open(writer, streams)
        if writer.epoch < (found.last_epoch if found.last_epoch is not None else 0):
            raise StateError(
                "sink_epoch",
                f"epoch {writer.epoch} is older than epoch {found.last_epoch}, the last one of sink {writer.name}: the "
                "checkpoint is older than the sink; restore the newer checkpoint, or begin with a new one and takeOver",
            )
        known = found, _Streams(calls, {stream.name: stream for stream in found.streams})
        _opened.clear()
        _opened[key] = known
    return known


@dataclass
class _Task:
    options: SinkOptions
    calls: SinkCalls
    writer: Writer
    sink: OpenedSink
    token: str
    check: RowCheck

    def verified(self, batches: Iterator[Any]) -> TaskMessage:
        """Rows and digest of an epoch that is decided already; nothing is sent."""
        for batch in batches:
            for stream, rows, _ in by_stream(batch, self.options):
                self.check.digested(stream, rows)
        return self._message(0, [], is_replay=True)

    def staged(self, batches: Iterator[Any], attempt: int) -> TaskMessage:
        """Store the rows as pieces of this attempt."""
        sink, task = self.sink, self.check.task
        named = Attempt(sink.id, sink.generation, self.writer.epoch, self.token, task, attempt)
        with Renewal(self._renew) as renewal:
            targets = _send(self.options, named, batches, self.check, renewal.check)
        failpoint("sink.staged")
        return self._message(attempt, targets, is_replay=False)

    def _message(self, attempt: int, targets: list[Target], *, is_replay: bool) -> TaskMessage:
        return TaskMessage(
            self.writer,
            (self.sink.id, self.sink.generation),
            self.token,
            self.check.task,
            attempt,
            tuple(targets),
            self.check.rows,
            self.check.digest,
            is_replay=is_replay,
            counts=self.check.counts,
        )

    def _renew(self) -> None:
        self.calls.renew(self.writer, (self.sink.id, self.sink.generation), self.token)
