"""One task of a write: from Spark's batches to pieces at the broker, and the message to the driver."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql.datasource import WriterCommitMessage

from bascule.errors import BrokerError, StateError
from bascule.spark.connection import Backoff
from bascule.spark.sink.calls import OpenedSink, SinkCalls, SinkStream, Target
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
    stager = Stager(options.address, options.namespace, None, options.request_timeout_ms / 1000)
    rows = 0
    partitions: dict[str, int] = {}
    try:
        for batch in batches:
            rows += batch.num_rows
            for stream, part in by_stream(batch, options):
                stager.send(stream, _partitioned(options, stream, part, partitions))
        stager.finish()
    except BaseException:
        stager.cancel()
        raise
    return TaskMessage(None, (0, 0), "", 0, 0, (), rows, 0, is_replay=False)


def _partitioned(options: SinkOptions, stream: str, batch: Any, known: dict[str, int]) -> Any:
    if options.partitioner == "key":
        return batch
    if stream not in known:
        from bascule.spark.connection import Broker, StatusRequest  # noqa: PLC0415 - only a partitioner asks

        broker = Broker(options.address, options.namespace, options.request_timeout_ms, options.retry_deadline_ms)
        known[stream] = len(broker.status([StatusRequest(stream)])[stream].partitions)
    return with_partition(batch, options, known[stream])


def _open(options: SinkOptions, calls: SinkCalls, writer: Writer) -> OpenedSink:
    key = (options.address, options.namespace, writer)
    found = _opened.get(key)
    if found is None:
        streams = (options.stream,) if options.stream is not None else ()
        found = _with_backoff(options, lambda: calls.open(writer, streams))
        if writer.epoch < (found.last_epoch if found.last_epoch is not None else 0):
            raise StateError(
                "sink_epoch",
                f"epoch {writer.epoch} is older than epoch {found.last_epoch}, the last one of sink {writer.name}: the "
                "checkpoint is older than the sink; restore the newer checkpoint, or begin with a new one and takeOver",
            )
        _opened.clear()
        _opened[key] = found
    return found


def _with_backoff(options: SinkOptions, call: Any) -> Any:
    backoff = Backoff(options.retry_deadline_ms)
    while True:
        try:
            return call()
        except BrokerError as failure:
            if not backoff.pause(failure, f"broker at {options.address}"):
                raise


@dataclass
class _Task:
    options: SinkOptions
    calls: SinkCalls
    writer: Writer
    sink: OpenedSink
    token: str
    _streams: dict[str, SinkStream] = field(default_factory=dict[str, SinkStream])
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
        options, sink = self.options, self.sink
        named = Attempt(sink.id, sink.generation, self.writer.epoch, self.token, task, attempt)
        stager = Stager(options.address, options.namespace, named, options.request_timeout_ms / 1000)
        digest = Digest()
        try:
            for batch in batches:
                for stream, part in by_stream(batch, options):
                    digest.add(part, stream)
                    stager.send(stream, self._partitioned(stream, part))
                self._renew()
            targets = stager.finish()
        except BaseException:
            stager.cancel()
            raise
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

    def _partitioned(self, stream: str, batch: Any) -> Any:
        if self.options.partitioner == "key":
            return batch
        if stream not in self._streams:
            opened = self.calls.open(self.writer, (stream,))
            self._streams.update({item.name: item for item in opened.streams})
        return with_partition(batch, self.options, self._streams[stream].partitions)

    def _renew(self) -> None:
        if time.monotonic() - self._renewed_s >= RENEW_S:
            self.calls.renew(self.writer, (self.sink.id, self.sink.generation), self.token)
            self._renewed_s = time.monotonic()
