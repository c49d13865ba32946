"""Who writes: query, run, epoch, task and attempt, as Spark's task context shows them.

Spark gives streaming tasks their query's ids as local properties; the run's id is the job group, which user code may
change, so it is read before anything else runs and refused when it is not a UUID.
"""

from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID, uuid5

from bascule.errors import StateError
from bascule.spark.sink.options import QueryIds, SinkOptions
from bascule.spark.usage import usage

QUERY_ID: Final = "sql.streaming.queryId"
EPOCH: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"
MAX_TASKS: Final = 10_000
CALLS: Final = 64
"""Attempts of the broker for one of Spark's: each call that stages has one of its own."""


@dataclass(frozen=True)
class Writer:
    """The writer of one epoch, the same in all its tasks.

    Attributes:
        kind: `stream`, `foreach` or `batch`.
        lifetime: of the sink's record: `kept`, `month` or `hour`.
        name: of the sink.
        query_id: empty for batch jobs.
        run_id: of the run, or of the batch job's write.
        epoch: of the query; 0 for batch jobs.
    """

    kind: str
    lifetime: str
    name: str
    query_id: str
    run_id: str
    epoch: int


def query_ids(context: Any) -> QueryIds | None:
    """The ids of the streaming query whose task this is; None = it belongs to a batch job.

    Raises:
        StateError: the task belongs to a query whose run is not known.
    """
    query, epoch, run = (context.getLocalProperty(name) for name in (QUERY_ID, EPOCH, RUN_ID))
    if not query:
        return None
    try:
        return QueryIds(str(UUID(query)), str(UUID(run or "")), int(epoch))
    except (TypeError, ValueError):
        message = (
            f"the run of query {query} is not known: its job group is {run!r}, not the run's id; do not call "
            "setJobGroup within the query, or pass queryId, runId and batchId"
        )
        raise StateError("failed_precondition", message) from None


def writer_of(options: SinkOptions, context: Any, token: str, *, is_stream: bool) -> Writer:
    """The writer of this task's epoch.

    Args:
        options: of the write.
        context: Spark's task context.
        token: of the attempt to write the epoch; names a batch job without a key.
        is_stream: whether a streaming query writes.

    Raises:
        UsageError: a write within `foreachBatch` without `sinkId`, or a `sinkId` outside a query.
        StateError: as `query_ids`.
    """
    ids = options.ids or query_ids(context)
    if is_stream:
        if ids is None:
            raise StateError("failed_precondition", "the task has no streaming query, although one writes")
        name = options.sink_id or options.query_name or ids.query_id
        return Writer("stream", "month" if name == ids.query_id else "kept", name, ids.query_id, ids.run_id, ids.epoch)
    if ids is not None:
        if options.sink_id is None:
            raise usage("a write within foreachBatch needs option sinkId: a name that no other write has")
        return Writer("foreach", "kept", options.sink_id, ids.query_id, ids.run_id, ids.epoch)
    if options.sink_id is not None:
        raise usage(
            "option sinkId is for streaming queries, and no query can be seen here: within foreachBatch pass queryId, "
            "runId and batchId when the write runs in a thread of its own; for a batch job use idempotencyKey"
        )
    run_id = str(uuid5(UUID(hex=token), "run"))
    if options.idempotency_key is not None:
        return Writer("batch", "month", options.idempotency_key, "", run_id, 0)
    return Writer("batch", "hour", f"batch-{token}", "", run_id, 0)


def task_of(context: Any) -> tuple[int, int]:
    """(task partition, Spark's task attempt id).

    Raises:
        UsageError: the write has more tasks than an epoch may have.
    """
    task = int(context.partitionId())
    if task >= MAX_TASKS:
        raise usage(f"the write has more than {MAX_TASKS} tasks: coalesce it to fewer partitions")
    return task, int(context.taskAttemptId())
