"""A stream as the source of a copy."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from bascule.errors import StateError
from bascule.lake.ranges import Source
from bascule.spark.columns import arrow_schema
from bascule.spark.options import SourceOptions, parse_options
from bascule.spark.planning import Range
from bascule.spark.reading import read_ranges
from bascule.spark.replaying.lanes import Part
from bascule.spark.replaying.options import TransferOptions
from bascule.spark.replaying.preview import Found
from bascule.spark.resolving import resolve_ranges

COLUMNS: Final = (
    *("partition", "offset", "timestamp", "timestamp_ns", "subject", "key", "value", "headers"),
    *("reply", "id", "origin_time"),
)
"""Columns of a stream that a copy may keep."""
_REMOVED: Final = (
    "its records were removed before they were read, so this run cannot end: begin another one, with another id and "
    "checkpoint, for those that are there, and leave out by fromOffset or fromTime what is written already"
)
_OF_CONNECTION: Final = ("address", "namespace", "requestTimeoutMs", "retryDeadlineMs")


@dataclass(frozen=True)
class StreamReader:
    """Reads parts of a stream in tasks.

    Attributes:
        source: options of the read.
        columns: in order.
    """

    source: SourceOptions
    columns: tuple[str, ...]

    def read(self, part: Part) -> Iterator[Any]:
        """Record batches of a part, in order of offset.

        Raises:
            StateError: the stream was deleted or created again (`stream_not_found`, `incarnation_changed`), or records
                were removed before they were read (`offset_out_of_range`).
            BrokerError: the broker is not reachable.
        """
        source = part.source
        wanted = Range(source.stream, source.partition, part.first, part.end, source.incarnation)
        try:
            yield from read_ranges(self.source, (wanted,), arrow_schema(self.columns))
        except StateError as failure:
            if failure.code != "offset_out_of_range":
                raise
            # What else a sentence recommends are options of a streaming read.
            what = str(failure).partition(";")[0]
            raise StateError(failure.code, f"{what}; {_REMOVED}", failure.details) from failure


def source_options(stream: str, options: TransferOptions) -> SourceOptions:
    """Options of a read of a stream, at the broker of the target."""
    there = {name.lower(): text for name, text in options.sink.items()}
    given = {name: there[name.lower()] for name in _OF_CONNECTION if name.lower() in there}
    return parse_options({**given, "stream": json.dumps([stream]), "timeZone": "UTC"})


def contents(source: SourceOptions) -> list[Found]:
    """What a stream has now.

    Raises:
        BrokerError: there is no such stream, or the broker is not reachable.
    """
    return [
        Found(Source(each.stream, each.incarnation, each.partition), each.start, each.end, each.size)
        for each in resolve_ranges(source)
        if each.size
    ]
