"""Reading ranges on an executor: record batches as Spark wants them, across lost connections."""

import logging
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from bascule.errors import BrokerError
from bascule.spark.connection import Backoff, Broker, StatusRequest
from bascule.spark.idle import leave_when_closed
from bascule.spark.options import SourceOptions
from bascule.spark.planning import Range

logger = logging.getLogger("bascule.spark")


def broker_of(options: SourceOptions) -> Broker:
    """The broker that a read goes to."""
    return Broker(options.address, options.namespace, options.request_timeout_ms, options.retry_deadline_ms)


def read_ranges(options: SourceOptions, ranges: Sequence[Range], schema: Any) -> Iterator[Any]:
    """Record batches of all `ranges`, in their order, in order of offset.

    Args:
        options: the read's options.
        ranges: what to read.
        schema: Arrow schema that every batch must have; its names are the columns asked for.

    Raises:
        BrokerError: `offset_out_of_range` when records were removed before they were read (unless `onDataLoss` is
            `skip`), `incarnation_changed`, `damaged`, or the broker could not be reached within `retryDeadlineMs`.
    """
    leave_when_closed()
    broker = broker_of(options)
    for each in ranges:
        yield from _read_range(broker, options, each, schema)


def _read_range(broker: Broker, options: SourceOptions, whole: Range, schema: Any) -> Iterator[Any]:
    what = f"{whole.stream}/{whole.partition}"
    backoff = Backoff(options.retry_deadline_ms)
    start = whole.start
    while start < whole.end:
        ticket: dict[str, Any] = {
            "stream": whole.stream,
            "partition": whole.partition,
            "incarnation": whole.incarnation,
            "start": start,
            "end": whole.end,
            "columns": schema.names,
        }
        if options.subject is not None:
            ticket["subject"] = options.subject
        try:
            for batch, next_offset in broker.read(ticket):
                start = next_offset
                backoff.succeeded()
                yield conform(batch, schema)
        except BrokerError as failure:
            skipped = _skip(broker, options, failure, whole, start)
            if skipped is None and not backoff.pause(failure, what):
                raise
            if skipped is not None:
                logger.warning("%s: offsets [%d, %d) were removed before they were read; skipped", what, start, skipped)
                start = skipped
        else:
            return


def _skip(broker: Broker, options: SourceOptions, failure: BrokerError, whole: Range, start: int) -> int | None:
    """Where to go on after records were lost; None when that is not allowed or not what happened."""
    if options.on_data_loss != "skip" or failure.code != "offset_out_of_range":
        return None
    status = broker.status([StatusRequest(whole.stream, [whole.partition])])[whole.stream]
    log_start = status.partitions[whole.partition].log_start
    return min(log_start, whole.end) if log_start > start else None


def conform(batch: Any, schema: Any) -> Any:
    """`batch` with exactly `schema`: nullability is declared anew, fixed-size ids become binary; nothing else is
    copied.
    """
    if batch.schema.equals(schema):
        return batch
    pa: Any = import_module("pyarrow")
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
