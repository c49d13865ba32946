"""One task of a write: from Spark's batches to pieces at the broker, and the message to the driver."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from bascule.errors import StateError
from bascule.failpoints import failpoint
from bascule.spark.connection import Broker, StatusRequest
from bascule.spark.sink.calls import OpenedSink, SinkCalls, Target
from bascule.spark.sink.identity import CALLS, Writer, task_of, writer_of
from bascule.spark.sink.options import SinkOptions
from bascule.spark.sink.rows import by_stream, with_partition
from bascule.spark.sink.staging import Attempt, Digest, Stager

RENEW_S: Final = 300.0
"""How often a task that runs for long renews its epoch's time to live."""


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


_opened: dict[tuple[str, str, Writer], OpenedSink] = {}
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
        return _append(options, batches)
    task, spark_attempt = task_of(context)
    writer = writer_of(options, context, token, is_stream=is_stream)
    calls = SinkCalls(options)
    sink = _open(options, calls, writer)
    work = _Task(options, calls, writer, sink, token)
    if sink.last_epoch is not None and writer.epoch <= sink.last_epoch:
        return work.verified(batches, task)
    return work.staged(batches, task, spark_attempt * CALLS)


def _append(options: SinkOptions, batches: Iterator[Any]) -> TaskMessage:
    rows = 0

    def count(_stream: str, batch: Any) -> None:
        nonlocal rows
        rows += batch.num_rows

    _send(options, None, batches, lambda stream: _partitions(options, stream), count)
    return TaskMessage(None, (0, 0), "", 0, 0, (), rows, 0, is_replay=False)


def _partitions(options: SinkOptions, stream: str) -> int:
    broker = Broker(options.address, options.namespace, options.request_timeout_ms, options.retry_deadline_ms)
    return len(broker.status([StatusRequest(stream)])[stream].partitions)


def _send(
    options: SinkOptions,
    attempt: Attempt | None,
    batches: Iterator[Any],
    partitions: Callable[[str], int],
    before: Callable[[str, Any], None],
) -> list[Target]:
    """Send a task's rows.

    Args:
        options: of the write.
        attempt: as `Stager` has it.
        batches: Arrow record batches.
        partitions: number of partitions of a stream; asked once for each, by a partitioner alone.
        before: called with the stream and its rows before they are sent.

    Returns:
        What was stored, as `Stager.finish` does.

    Raises:
        BrokerError: the rows were not stored.
    """
    stager = Stager(options.address, options.namespace, attempt)
    counts: dict[str, int] = {}
    try:
        for batch in batches:
            for stream, rows in by_stream(batch, options):
                before(stream, rows)
                if options.partitioner != "key" and stream not in counts:
                    counts[stream] = partitions(stream)
                stager.send(stream, with_partition(rows, options, counts.get(stream, 0)))
                failpoint("sink.staging")
        return stager.finish()
    except BaseException:
        stager.cancel()
        raise


def _open(options: SinkOptions, calls: SinkCalls, writer: Writer) -> OpenedSink:
    key = (options.address, options.namespace, writer)
    found = _opened.get(key)
    if found is None:
        streams = (options.stream,) if options.stream is not None else ()
        found = calls.open(writer, streams)
        if writer.epoch < (found.last_epoch if found.last_epoch is not None else 0):
            raise StateError(
                "sink_epoch",
                f"epoch {writer.epoch} is older than epoch {found.last_epoch}, the last one of sink {writer.name}: the "
                "checkpoint is older than the sink; restore the newer checkpoint, or begin with a new one and takeOver",
            )
        _opened.clear()
        _opened[key] = found
    return found


@dataclass
class _Task:
    options: SinkOptions
    calls: SinkCalls
    writer: Writer
    sink: OpenedSink
    token: str
    _renewed_s: float = field(default_factory=time.monotonic)

    def verified(self, batches: Iterator[Any], task: int) -> TaskMessage:
        """Rows and digest of an epoch that is decided already; nothing is sent."""
        digest = Digest()
        for batch in batches:
            for stream, part in by_stream(batch, self.options):
                digest.add(part, stream)
        return self._message(task, 0, [], digest, is_replay=True)

    def staged(self, batches: Iterator[Any], task: int, attempt: int) -> TaskMessage:
        """Store the rows as pieces of this attempt."""
        sink, digest = self.sink, Digest()
        named = Attempt(sink.id, sink.generation, self.writer.epoch, self.token, task, attempt)

        def before(stream: str, rows: Any) -> None:
            digest.add(rows, stream)
            self._renew()

        targets = _send(self.options, named, batches, self._partitions, before)
        failpoint("sink.staged")
        return self._message(task, attempt, targets, digest, is_replay=False)

    def _message(
        self, task: int, attempt: int, targets: list[Target], digest: Digest, *, is_replay: bool
    ) -> TaskMessage:
        named = (self.sink.id, self.sink.generation)
        return TaskMessage(
            self.writer,
            named,
            self.token,
            task,
            attempt,
            tuple(targets),
            digest.rows,
            digest.value,
            is_replay=is_replay,
        )

    def _partitions(self, stream: str) -> int:
        return self.calls.open(self.writer, (stream,)).streams[0].partitions

    def _renew(self) -> None:
        if time.monotonic() - self._renewed_s >= RENEW_S:
            self.calls.renew(self.writer, (self.sink.id, self.sink.generation), self.token)
            self._renewed_s = time.monotonic()
