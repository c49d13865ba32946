"""The options of the sink: declarations, and checks of those that depend on each other."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast
from uuid import UUID

from bascule.spark.connection_options import ADDRESS, CONNECTION, NAMESPACE, REQUEST_TIMEOUT_MS, RETRY_DEADLINE_MS
from bascule.spark.kafka_names import kafka_sink_advice
from bascule.spark.names import parse_names
from bascule.spark.option_model import Given, OptionSet, choice, duration, number, parsed, text
from bascule.spark.usage import usage

MAX_NAME_BYTES: Final = 255
IN_JOB: Final = "bascule.job"
"""Set by jobs, for remedies that name keys of the job file."""


def _name(given: str) -> str:
    if len(given.encode()) > MAX_NAME_BYTES:
        raise ValueError(f"it must have at most {MAX_NAME_BYTES} bytes")
    return given


def _uuid(given: str) -> str:
    try:
        return str(UUID(given))
    except ValueError:
        raise ValueError("it must be a UUID, as Spark's ids of queries are") from None


def _function(given: str) -> str:
    if given.lower() == "key":
        return "key"
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", given):
        raise ValueError("it must be key, or module:function")
    return given


STREAM: Final = text("stream", "the stream of every row; else the column `stream` names it")
STREAMS: Final = parsed(
    "streams",
    "the streams that the column `stream` names, separated by commas or as a JSON list: the right to publish on these "
    "suffices then, else it is needed on all (`*`)",
    "names",
    lambda given: parse_names("streams", given),
)
SUBJECT: Final = text("subject", "the subject of rows that have none in the column `subject`")
DELIVERY: Final = choice(
    "delivery",
    "`exactly_once`: rows of an epoch are published together, once; `at_least_once`: at once, a repeated task or epoch "
    "stores them again",
    ("exactly_once", "at_least_once"),
    default="exactly_once",
)
SINK_ID: Final = parsed(
    "sinkId",
    "name under which the broker remembers what this query has written; within `foreachBatch` each write needs one",
    "name",
    _name,
    unset="the query's name, else its id",
)
TAKE_OVER: Final = parsed(
    "takeOver", "id of the query whose sink this one continues for ever, as the refusal prints it", "UUID", _uuid
)
IDEMPOTENCY_KEY: Final = parsed(
    "idempotencyKey",
    "name of a batch job: running it again within 30 days stores nothing twice",
    "name",
    _name,
    unset="every run stores its rows",
    only="batch",
)
QUERY_ID: Final = parsed(
    "queryId",
    "id of the query, for a write from a thread of your own within `foreachBatch`",
    "UUID",
    _uuid,
    only="batch",
)
RUN_ID: Final = parsed("runId", "id of the run, with `queryId`", "UUID", _uuid, only="batch")
BATCH_ID: Final = number("batchId", "id of the micro-batch, with `queryId`", only="batch")
PARTITIONER: Final = parsed(
    "partitioner",
    "`key`: by hash as Liftbridge's clients do; or `module:function` of an Arrow record batch and the number of "
    "partitions, which returns an int32 array. The column `partition` goes before it",
    "name",
    _function,
    default="key",
)
ON_OVERSIZE: Final = choice(
    "onOversize",
    "a row whose record is larger than `max_record_bytes` of its stream: end the query, leave the row out, or send it "
    "to `dlqStream`",
    ("fail", "drop", "dlq"),
    default="fail",
)
ON_INVALID: Final = choice(
    "onInvalid",
    "a row that its stream refuses for another reason (a stream or partition that does not exist, an invalid subject, "
    "reply, id, time or header): end the query, leave the row out, or send it to `dlqStream`",
    ("fail", "drop", "dlq"),
    default="fail",
)
DLQ_STREAM: Final = text(
    "dlqStream", "the stream for dead letters, which are stored in the same epoch as the rows; it must exist"
)
ON_REPLAY_DIFFERENCE: Final = choice(
    "onReplayDifference",
    "an epoch that is written again has other rows than the broker has stored: end the query, or keep what is stored",
    ("fail", "accept"),
    default="fail",
)
ACCEPT_GAP: Final = number(
    "acceptGap", "the epoch that may follow although epochs before it were written elsewhere", only="stream"
)
PUBLISH_TIMEOUT: Final = duration(
    "publishTimeoutMs",
    "how long an epoch waits until all partitions show it; it is decided before",
    default="60000",
    least=1,
    most=600_000,
)

SINK: Final = OptionSet(
    "Sink",
    'Options of `df.write.format("bascule")` and `df.writeStream.format("bascule")`.',
    (
        ADDRESS,
        NAMESPACE,
        STREAM,
        STREAMS,
        SUBJECT,
        DELIVERY,
        SINK_ID,
        TAKE_OVER,
        IDEMPOTENCY_KEY,
        QUERY_ID,
        RUN_ID,
        BATCH_ID,
        PARTITIONER,
        ON_OVERSIZE,
        ON_INVALID,
        DLQ_STREAM,
        ON_REPLAY_DIFFERENCE,
        ACCEPT_GAP,
        PUBLISH_TIMEOUT,
        *CONNECTION[2:],
    ),
    ignored=frozenset({"checkpointlocation", "queryname", IN_JOB}),
    advice=kafka_sink_advice,
)


OnRefusal = Literal["fail", "drop", "dlq"]


@dataclass(frozen=True)
class QueryIds:
    """The query, its run and its epoch."""

    query_id: str
    run_id: str
    epoch: int


@dataclass(frozen=True)
class SinkOptions:
    """All options, checked.

    Attributes:
        streams: those that rows name in the column `stream`, as far as the user says; empty = any.
        ids: as the user passed them; None = they are taken from the task.
        checkpoint: the query's checkpoint location; empty for batch writes.
        query_name: the query's name; empty = it has none.
        in_job: whether a job writes, whose file has these options as keys of `sink`.
    """

    address: str
    namespace: str
    stream: str | None
    streams: tuple[str, ...]
    subject: str | None
    delivery: Literal["exactly_once", "at_least_once"]
    sink_id: str | None
    take_over: str
    idempotency_key: str | None
    ids: QueryIds | None
    partitioner: str
    on_oversize: OnRefusal
    on_invalid: OnRefusal
    dlq_stream: str | None
    accept_difference: bool
    accept_gap: int
    publish_timeout_ms: int
    request_timeout_ms: int
    retry_deadline_ms: int
    checkpoint: str
    query_name: str
    in_job: bool


def parse_sink_options(given: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Check the options of a write.

    Args:
        given: names in any case.
        is_stream: whether a streaming query writes; else a batch job, or a write within `foreachBatch`.

    Raises:
        UsageError: an unknown option, a value outside its range, or options that exclude each other.
    """
    options = SINK.read(given)
    SINK.check_kind(options, "stream" if is_stream else "batch", "write")
    lower = {name.lower(): value for name, value in given.items()}
    parsed_options = SinkOptions(
        address=options.value(ADDRESS),
        namespace=options.value(NAMESPACE),
        stream=options.get(STREAM),
        streams=options.get(STREAMS) or (),
        subject=options.get(SUBJECT),
        delivery=cast('Literal["exactly_once", "at_least_once"]', options.value(DELIVERY)),
        sink_id=options.get(SINK_ID),
        take_over=options.get(TAKE_OVER) or "",
        idempotency_key=options.get(IDEMPOTENCY_KEY),
        ids=_ids(options),
        partitioner=options.value(PARTITIONER),
        on_oversize=cast("OnRefusal", options.value(ON_OVERSIZE)),
        on_invalid=cast("OnRefusal", options.value(ON_INVALID)),
        dlq_stream=options.get(DLQ_STREAM),
        accept_difference=options.value(ON_REPLAY_DIFFERENCE) == "accept",
        accept_gap=_or(options.get(ACCEPT_GAP), -1),
        publish_timeout_ms=options.value(PUBLISH_TIMEOUT),
        request_timeout_ms=options.value(REQUEST_TIMEOUT_MS),
        retry_deadline_ms=options.value(RETRY_DEADLINE_MS),
        checkpoint=lower.get("checkpointlocation", ""),
        query_name=lower.get("queryname", ""),
        in_job=IN_JOB in lower,
    )
    _check(parsed_options, is_stream=is_stream)
    return parsed_options


def _or(given: int | None, default: int) -> int:
    return default if given is None else given


def _ids(options: Given) -> QueryIds | None:
    query, run, batch = options.get(QUERY_ID), options.get(RUN_ID), options.get(BATCH_ID)
    if query is None and run is None and batch is None:
        return None
    if query is None or run is None or batch is None:
        raise usage("options queryId, runId and batchId are given together")
    return QueryIds(query, run, batch)


def _check(options: SinkOptions, *, is_stream: bool) -> None:
    if options.stream is not None and options.streams:
        raise usage("options stream (for every row) and streams (those of the column stream) exclude each other")
    if options.delivery == "at_least_once":
        exact = {
            "sinkId": options.sink_id,
            "takeOver": options.take_over,
            "idempotencyKey": options.idempotency_key,
            "queryId": options.ids,
            "streams": options.streams,
        }
        for name, value in exact.items():
            if value:
                raise usage(f"option {name} belongs to delivery exactly_once: remove it, or delivery")
    _check_letters(options)
    if options.sink_id is not None and options.idempotency_key is not None:
        raise usage("options sinkId (for streaming queries) and idempotencyKey (for batch jobs) exclude each other")
    if options.ids is not None and options.sink_id is None:
        raise usage("options queryId, runId and batchId need sinkId")
    if options.take_over and options.sink_id is None and not is_stream:
        raise usage("option takeOver needs sinkId")


def _check_letters(options: SinkOptions) -> None:
    wanted = [
        option.name
        for option, given in ((ON_OVERSIZE, options.on_oversize), (ON_INVALID, options.on_invalid))
        if given == "dlq"
    ]
    if wanted and options.dlq_stream is None:
        raise usage(f"option {wanted[0]} is dlq: set dlqStream to the stream for dead letters")
    if options.dlq_stream is not None and not wanted:
        raise usage("option dlqStream is never written: set onOversize or onInvalid to dlq, or remove it")
    if options.dlq_stream is not None and options.dlq_stream == options.stream:
        raise usage(f"options stream and dlqStream are both {options.stream!r}: name another stream for dead letters")
