"""The writers that Spark calls: tasks on executors, commit and abort on the driver.

Spark makes a writer for the tasks of each epoch, and another one for its commit: only the messages of the tasks
connect them.
"""

import logging
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from bascule.errors import BrokerError, StateError
from bascule.failpoints import failpoint
from bascule.spark.checkpoint_copies import offsets_hash
from bascule.spark.sentences import sentence_first
from bascule.spark.sink.calls import Epoch, SinkCalls, Target
from bascule.spark.sink.checking import DIGEST_MODULUS
from bascule.spark.sink.options import SinkOptions
from bascule.spark.sink.refusals import total
from bascule.spark.sink.tasks import TaskMessage, write_task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger("bascule.spark")


class BasculeStreamWriter(DataSourceStreamArrowWriter):
    """Writes the epochs of a streaming query."""

    def __init__(self, options: SinkOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._token = secrets.token_hex(16)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Store the rows of one task where no reader sees them; in a task."""
        return _write(self._options, self._token, iterator, is_stream=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish the epoch; on the driver."""
        with sentence_first():
            publish(self._options, _complete(messages), offsets_hash(self._options.checkpoint, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002 - Spark's names
        """Give the epoch up, if it is not published; what fails here expires at the broker."""
        abort(self._options, messages)


class BasculeWriter(DataSourceArrowWriter):
    """Writes a batch job, or a write within `foreachBatch`."""

    def __init__(self, options: SinkOptions, schema: "StructType") -> None:
        self._options = options
        self._schema = schema
        self._token = secrets.token_hex(16)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Store the rows of one task where no reader sees them; in a task."""
        return _write(self._options, self._token, iterator, is_stream=False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the rows; on the driver."""
        with sentence_first():
            complete = _complete(messages)
            writer = complete[0].writer if complete else None
            checkpoint = self._options.checkpoint if writer is not None and writer.kind == "foreach" else ""
            found = offsets_hash(checkpoint, writer.epoch) if checkpoint and writer is not None else ""
            publish(self._options, complete, found)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Give the write up; what fails here expires at the broker."""
        abort(self._options, messages)


def _write(options: SinkOptions, token: str, batches: Iterator[Any], *, is_stream: bool) -> TaskMessage:
    from pyspark import TaskContext  # noqa: PLC0415 - only tasks have one

    context = TaskContext.get()
    with sentence_first():
        return write_task(options, token, batches, context, is_stream=is_stream)


def _complete(messages: Sequence[WriterCommitMessage | None]) -> list[TaskMessage]:
    found = [message for message in messages if isinstance(message, TaskMessage)]
    if len(found) != len(messages):
        raise StateError("failed_precondition", f"{len(messages) - len(found)} tasks of the write sent no message")
    return found


def publish(options: SinkOptions, messages: Sequence[TaskMessage], checkpoint_hash: str) -> None:
    """Decide the epoch that the tasks staged.

    Raises:
        StateError: the tasks are not of one epoch and generation.
        BrokerError: as `SinkCalls.publish`.
    """
    if options.delivery == "at_least_once" or not messages:
        _report(options, "the write", messages)
        return
    writers, sinks = {item.writer for item in messages}, {item.sink for item in messages}
    is_replay = {item.is_replay for item in messages}
    writer = messages[0].writer
    if len({sink_id for sink_id, _ in sinks}) > 1:
        raise StateError(
            "sink_expired",
            "the broker forgot the sink while tasks of the epoch ran, and made it again for the others: it was "
            "deleted, or the attempt expired; run the write again",
        )
    if len(writers) != 1 or len(sinks) != 1 or len(is_replay) != 1 or writer is None:
        raise StateError(
            "sink_fenced", "the tasks of the epoch wrote for several generations of the sink: another run took it over"
        )
    ordered = sorted(messages, key=lambda item: item.task)
    epoch = Epoch(
        sink=messages[0].sink,
        token=messages[0].token,
        winners=() if True in is_replay else tuple(item.attempt for item in ordered),
        targets=() if True in is_replay else merged(ordered),
        input_rows=sum(item.rows for item in ordered),
        input_digest=f"{sum(item.digest for item in ordered) % DIGEST_MODULUS:032x}",
        offsets_hash=checkpoint_hash,
    )
    failpoint("sink.before_publish")
    finished = SinkCalls(options).publish(writer, epoch)
    failpoint("sink.published")
    _report(options, f"epoch {writer.epoch} of sink {writer.name}", messages)
    if not finished:
        logger.warning("epoch %d of sink %s is decided and not readable everywhere yet", writer.epoch, writer.name)


def _report(options: SinkOptions, what: str, messages: Sequence[TaskMessage]) -> None:
    if refused := total(item.counts for item in messages).sentence(options):
        logger.warning("%s: %s", what, refused)


def merged(messages: Sequence[TaskMessage]) -> tuple[Target, ...]:
    """The rows of all tasks by target partition, in order.

    Raises:
        StateError: tasks staged to two incarnations of one partition.
    """
    found: dict[tuple[str, int], Target] = {}
    for target in (item for message in messages for item in message.targets):
        key = (target.stream, target.partition)
        known = found.get(key)
        if known is None:
            found[key] = target
            continue
        if known.incarnation != target.incarnation:
            text = f"partition {target.partition} of stream {target.stream} was purged or created again amid the epoch"
            raise StateError("incarnation_changed", text)
        digest = (int(known.digest, 16) + int(target.digest, 16)) % DIGEST_MODULUS
        found[key] = Target(*key, target.incarnation, known.rows + target.rows, f"{digest:032x}")
    return tuple(found[key] for key in sorted(found))


def abort(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Tell the broker that an attempt is given up. Never fails: an epoch that is published stays so."""
    known = next((item for item in messages if isinstance(item, TaskMessage)), None)
    if known is None or known.writer is None or known.is_replay:
        return
    try:
        SinkCalls(options).abort(known.writer, known.sink, known.token)
    except BrokerError as failure:
        logger.info("the attempt was not aborted: %s", failure)
