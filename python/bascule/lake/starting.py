"""Starts streaming queries that write tables: what all of them do between their sink and their start."""

import os
from typing import TYPE_CHECKING

from bascule.spark.checkpoint_copies import claim, overlap
from bascule.spark.checkpoints import clear_unfinished
from bascule.spark.usage import usage

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def start_query(  # noqa: PLR0913 - all by name
    frame: "DataFrame",
    sink: "Callable[[DataStreamWriter], DataStreamWriter]",
    *,
    folder: str | None,
    checkpoint: str | os.PathLike[str],
    name: str | None,
    available_now: bool,
    every: str | None,
) -> "StreamingQuery":
    """Start a query with a checkpoint that belongs to its table.

    Args:
        frame: streaming rows.
        sink: gives a writer of the rows its sink.
        folder: of the table; None = it has none that could hold the checkpoint.
        checkpoint: folder of the query's checkpoint.
        name: name of the query.
        available_now: process what is there now and end.
        every: time between micro-batches, as `10 seconds`; None = as soon as there is data.

    Returns:
        The running query.

    Raises:
        UsageError: `available_now` and `every` together, or the checkpoint is in the table's folder.
        StateError: the checkpoint is a copy of another one, or its folder cannot be written.
    """
    if available_now and every is not None:
        raise usage("available_now and every are both given: choose one")
    place = os.fspath(checkpoint)
    if folder is not None and (refusal := overlap(place, folder)) is not None:
        raise usage(refusal, checkpoint=place)
    claim(place)
    writer = sink(frame.writeStream).option("checkpointLocation", place)
    if name is not None:
        writer = writer.queryName(name)
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    clear_unfinished(frame.sparkSession, place)
    return writer.start()
