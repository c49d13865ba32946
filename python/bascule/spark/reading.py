"""Reading ranges on an executor: record batches as Spark wants them, across lost connections."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from bascule.errors import BrokerError
from bascule.spark.columns import INCARNATION
from bascule.spark.connection import Backoff, Broker, StatusRequest
from bascule.spark.idle import leave_when_closed
from bascule.spark.options import SourceOptions
from bascule.spark.planning import Range
from bascule.spark.sentences import sentence_first

logger = logging.getLogger("bascule.spark")


def broker_of(options: SourceOptions) -> Broker:
    """The broker of a read."""
    return Broker(options.address, options.namespace, options.request_timeout_ms, options.retry_deadline_ms)


def read_ranges(options: SourceOptions, ranges: Sequence[Range], schema: Any) -> Iterator[Any]:
    """Record batches of all `ranges`, in their order, in order of offset.

    Args:
        options: the read's options.
        ranges: what to read.
        schema: Arrow schema that every batch must have; its names are the columns asked for.

    Raises:
        BrokerError: `damaged`, or the broker could not be reached within `retryDeadlineMs`; with `onDataLoss=fail`
            `offset_out_of_range` when records were removed before they were read, `stream_not_found` and
            `incarnation_changed` when the stream was deleted, `history_changed` when its log was replaced.
    """
    leave_when_closed()
    broker = broker_of(options)
    with sentence_first():
        for each in ranges:
            if each.files is None:
                yield from _read_range(broker, options, each, schema)
            else:
                yield from tiers().read_from_archive(options, each, each.files, schema)


def tiers() -> Any:
    """The module of reads from an archive: without the option `archivePath` nothing of a lake is imported."""
    return import_module("bascule.spark.tiers")


def _read_range(broker: Broker, options: SourceOptions, whole: Range, schema: Any) -> Iterator[Any]:
    backoff = Backoff(options.retry_deadline_ms)
    rest = whole
    while rest.size > 0:
        try:
            for batch, next_offset in broker.read(_ticket(options, rest, schema)):
                rest = replace(rest, start=next_offset)
                backoff.succeeded()
                yield conform(batch, schema, rest.incarnation)
        except BrokerError as failure:
            remaining = _after_loss(broker, options, failure, rest)
            if remaining is None and not backoff.pause(failure, f"{rest.stream}/{rest.partition}"):
                raise
            rest = remaining or rest
        else:
            return


def _ticket(options: SourceOptions, rest: Range, schema: Any) -> dict[str, Any]:
    ticket: dict[str, Any] = {
        "stream": rest.stream,
        "partition": rest.partition,
        "incarnation": rest.incarnation,
        "start": rest.start,
        "end": rest.end,
        "columns": [name for name in schema.names if name != INCARNATION],
    }
    if rest.history is not None:
        offset, link = rest.history
        ticket["expect"] = {"offset": offset, "link": link}
    if options.subject is not None:
        ticket["subject"] = options.subject
    return ticket


_GONE: Final = frozenset({"stream_not_found", "partition_not_found", "incarnation_changed"})


def _after_loss(broker: Broker, options: SourceOptions, failure: BrokerError, rest: Range) -> Range | None:
    """The range that can still be read after a loss that may be skipped; None = `failure` is another error."""
    if options.on_data_loss != "skip":
        return None
    if failure.code in _GONE:
        remaining = replace(rest, start=rest.end)
    elif failure.code == "history_changed":
        remaining = replace(rest, history=None)
    elif failure.code == "offset_out_of_range":
        status = broker.status([StatusRequest(rest.stream, [rest.partition])])[rest.stream]
        part = status.partitions[rest.partition]
        end = min(rest.end, part.high_watermark)
        is_short = part.high_watermark < rest.end
        history = None if is_short else rest.history
        start = min(max(rest.start, part.log_start), end)
        remaining = replace(rest, start=start, end=end, history=history)
        if (remaining.start, remaining.end) == (rest.start, rest.end):
            return None
    else:
        return None
    logger.warning(
        "%s/%d: %s; onDataLoss is skip: of the offsets [%d, %d), those in [%d, %d) are read",
        *(rest.stream, rest.partition, failure),
        *(rest.start, rest.end, remaining.start, remaining.end),
    )
    return remaining


def conform(batch: Any, schema: Any, incarnation: int) -> Any:
    """`batch` with the nullability that `schema` declares, fixed-size ids as binary, and the column `incarnation` if
    `schema` has it; nothing else is copied.
    """
    if batch.schema.equals(schema):
        return batch
    pa: Any = import_module("pyarrow")
    served = iter(batch.columns)
    columns: list[Any] = []
    for field in schema:
        if field.name == INCARNATION:
            columns.append(pa.repeat(pa.scalar(incarnation, field.type), batch.num_rows))
            continue
        column = next(served)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
