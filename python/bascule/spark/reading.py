"""Reading ranges on an executor: record batches as Spark wants them, across lost connections."""

import logging
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import chain, groupby
from typing import Any, Final

from bascule.errors import BrokerError
from bascule.spark.columns import INCARNATION, arrow_schema
from bascule.spark.connection import Backoff, Broker, StatusRequest
from bascule.spark.idle import leave_when_closed
from bascule.spark.options import SourceOptions
from bascule.spark.planning import Range, plan, plan_whole
from bascule.spark.sentences import sentence_first
from bascule.spark.table_view import latest_records

logger = logging.getLogger("bascule.spark")


def broker_of(options: SourceOptions) -> Broker:
    """The broker of a read."""
    return Broker(options.address, options.namespace, options.request_timeout_ms, options.retry_deadline_ms)


def read_ranges(options: SourceOptions, ranges: Sequence[Range], schema: Any) -> Iterator[Any]:
    """Record batches of all `ranges`, in their order, in order of offset; with `view=table` the latest of each key.

    Args:
        options: the read's options.
        ranges: what to read.
        schema: Arrow schema that every batch must have; its names are the columns asked for.

    Raises:
        BrokerError: as `latest_records`; `damaged`, or the broker could not be reached within `retryDeadlineMs`; with
            `onDataLoss=fail` `offset_out_of_range` when records were removed before they were read, `stream_not_found`
            and `incarnation_changed` when the stream was deleted, `history_changed` when its log was replaced.
    """
    leave_when_closed()
    broker = broker_of(options)
    with sentence_first():
        if options.table is None:
            for each in ranges:
                yield from _read_tier(broker, options, each, schema)
        else:
            yield from _read_tables(broker, options, ranges, schema)


def plan_tasks(options: SourceOptions, ranges: Iterable[Range]) -> list[tuple[Range, ...]]:
    """The ranges of each task of a batch read. A partition whose latest records are read is in one task."""
    return (plan if options.table is None else plan_whole)(ranges, options.packing)


def _read_tables(broker: Broker, options: SourceOptions, ranges: Sequence[Range], schema: Any) -> Iterator[Any]:
    """The table view of each partition; all ranges of a partition stand one after the other."""
    view = options.table
    assert view is not None
    pa: Any = import_module("pyarrow")
    missing = [name for name in view.columns if name not in schema.names]
    wide = pa.schema([*schema, *arrow_schema(missing)])
    for (stream, partition), parts in groupby(ranges, key=lambda each: (each.stream, each.partition)):
        records = chain.from_iterable(_read_tier(broker, options, each, wide) for each in parts)
        yield from latest_records(records, schema, view, f"{stream}/{partition}")


def _read_tier(broker: Broker, options: SourceOptions, whole: Range, schema: Any) -> Iterator[Any]:
    if whole.files is None:
        return _read_range(broker, options, whole, schema)
    return tiers().read_from_archive(options, whole, whole.files, schema)


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
            if options.on_data_loss == "archive" and failure.code == "offset_out_of_range":
                for piece in tiers().divide_after_loss(options, broker, failure, rest):
                    yield from _read_tier(broker, options, piece, schema)
                return
            remaining = _after_loss(broker, options, failure, rest)
            if remaining is None and not backoff.pause(failure, f"{rest.stream}/{rest.partition}"):
                raise _with_remedy(options, failure) from None
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


GONE: Final = frozenset({"stream_not_found", "partition_not_found", "incarnation_changed"})
"""Codes of partitions that were deleted, or deleted and created again."""

_LOSSES: Final = GONE | {"offset_out_of_range", "history_changed"}
"""Codes of a range that the broker has no longer, in whole or in part."""


def _with_remedy(options: SourceOptions, failure: BrokerError) -> BrokerError:
    """`failure`; of records that are lost, with the option that continues without them."""
    if failure.code not in _LOSSES or options.on_data_loss == "skip":
        return failure
    text = f"{failure}; set onDataLoss to skip to continue without these records"
    return type(failure)(failure.code, text, failure.details)


def _after_loss(broker: Broker, options: SourceOptions, failure: BrokerError, rest: Range) -> Range | None:
    """The range that can still be read after a loss that may be skipped; None = `failure` is another error."""
    if options.on_data_loss != "skip":
        return None
    if failure.code in GONE:
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
    read = f"those in [{remaining.start}, {remaining.end}) are" if remaining.size else "none is"
    logger.warning(
        "%s/%d: %s; onDataLoss is skip: of the offsets [%d, %d), %s read",
        *(rest.stream, rest.partition, failure),
        *(rest.start, rest.end, read),
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
            columns.append(_repeated(incarnation, field.type, batch.num_rows))
            continue
        column = next(served)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _repeated(number: int, kind: Any, count: int) -> Any:
    """An Arrow array of 64-bit numbers. From memory: pyarrow imports pandas, for most of a second of processor time in
    each worker, when it converts its first value of Python.
    """
    pa: Any = import_module("pyarrow")
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(array("q", [number]) * count)])
