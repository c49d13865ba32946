"""What one task does with its rows, and what it reports to the driver."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bascule.failpoints import failpoint
from bascule.lake.files import DataFile, TableWriter
from bascule.lake.grouping import grouped
from bascule.lake.options import ArchiveOptions
from bascule.lake.ranges import Source, Written
from bascule.lake.records import Tracker
from bascule.lake.rows import Shape
from bascule.lake.tables import open_table
from bascule.spark.usage import usage


@dataclass(frozen=True)
class TablePart:
    """What one task has written for one table."""

    files: tuple[DataFile, ...]
    ranges: tuple[tuple[Source, Written], ...]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(file.rows for file in self.files)


def write_rows(
    batches: Iterable[Any], options: ArchiveOptions, shape: Shape, attempt: tuple[str, str]
) -> dict[str, TablePart]:
    """Write the rows of one task.

    Args:
        batches: Arrow record batches.
        options: of the tables.
        shape: of the rows.
        attempt: token of the attempt at the epoch, and a name of this attempt at the task, unique for the token.

    Returns:
        What was written, by stream; by the empty string when all streams have one table. Nothing of a failed task
        remains, unless its process ended.

    Raises:
        UsageError: a row has no stream although each stream has a table, or see `Tracker.observe`.
    """
    streams: dict[str, tuple[TableWriter, Tracker]] = {}
    try:
        for batch in batches:
            for stream, rows in _by_table(batch, options):
                if stream not in streams:
                    streams[stream] = _opened(options, shape, attempt, stream)
                writer, tracker = streams[stream]
                if shape.has_offsets:
                    tracker.observe(rows)
                writer.write(rows)
        parts = {
            stream: TablePart(tuple(writer.close()), tuple(tracker.written.items()))
            for stream, (writer, tracker) in streams.items()
        }
    except BaseException:
        for writer, _ in streams.values():
            writer.discard()
        raise
    failpoint("archive.files_written")
    return parts


def _by_table(batch: Any, options: ArchiveOptions) -> Iterator[tuple[str, Any]]:
    if not options.has_table_per_stream:
        yield "", batch
        return
    names = batch.column("stream")
    if names.null_count:
        raise usage(f"column stream is null in {names.null_count} rows: {{stream}} in the path needs a name in each")
    for (stream,), rows in grouped(batch, [names]):
        yield stream, rows


def _opened(
    options: ArchiveOptions, shape: Shape, attempt: tuple[str, str], stream: str
) -> tuple[TableWriter, Tracker]:
    token, task = attempt
    plan = open_table(options, stream).plan(shape.table, token)
    return TableWriter(plan, options, prefix=f"{token}-{task}"), Tracker()
