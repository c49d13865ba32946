"""The range of a batch run: fixed when the run starts, and with what the job does its identity.

Targets remember it, so that a run over the same records is recognised: after a crash between two targets it completes
the others. No clock and no counter is part of it.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from bascule.spark import options as names
from bascule.spark.resolving import whole_ranges

if TYPE_CHECKING:
    from bascule.pipeline.model.job import Job
    from bascule.spark.options import SourceOptions
    from bascule.spark.planning import Range

__all__ = ["BATCH_EPOCH", "POSITIONS", "BatchRange"]

BATCH_EPOCH: Final = 0
"""The epoch of a batch run: each range is written once."""
_CHOICE: Final = (names.STREAM, names.STREAM_PATTERN, names.ASSIGN)
_STARTS: Final = (names.STARTING_OFFSETS, names.STARTING_TIMESTAMP, names.STARTING_BY_TIMESTAMP, names.NO_MATCH)
_ENDS: Final = (names.ENDING_OFFSETS, names.ENDING_TIMESTAMP, names.ENDING_BY_TIMESTAMP)
POSITIONS: Final = frozenset(option.name for option in (*_CHOICE, *_STARTS, *_ENDS))
"""The options of the source that say which records are read, except for `subject`."""
_NO_STREAM: Final = "(?!)"
"""A pattern that matches nothing."""


@dataclass(frozen=True)
class BatchRange:
    """What a batch run reads, and what it does with it.

    Attributes:
        ranges: offsets of each partition, in order; some may be empty.
        does: the parts of the job that decide which rows the targets get, as JSON.
    """

    ranges: tuple["Range", ...]
    does: str

    @classmethod
    def of(cls, job: "Job") -> "BatchRange":
        """The range of a job, now.

        Raises:
            BrokerError: the broker cannot be asked, or a start is outside a partition; see `resolve_ranges`.
        """
        source = job.source_keys.parsed()
        return cls(tuple(whole_ranges(source)), _does(job, source))

    @cached_property
    def id(self) -> str:
        """Stands for range and job: 32 hexadecimal digits, the same for the same records and the same job."""
        places = [(each.stream, each.incarnation, each.partition, each.start, each.end) for each in self.ranges]
        return blake2b(json.dumps([places, self.does]).encode(), digest_size=16).hexdigest()

    @property
    def positions(self) -> dict[str, str]:
        """The options of the source that read exactly this range, instead of those in `POSITIONS`."""
        if not self.ranges:
            return {names.STREAM_PATTERN.name: _NO_STREAM}
        return {
            names.ASSIGN.name: json.dumps(_by_stream([(each.stream, each.partition) for each in self.ranges])),
            names.STARTING_OFFSETS.name: self._offsets([each.start for each in self.ranges]),
            names.ENDING_OFFSETS.name: self._offsets([each.end for each in self.ranges]),
        }

    def _offsets(self, offsets: Sequence[int]) -> str:
        found: dict[str, dict[str, int]] = {}
        for each, offset in zip(self.ranges, offsets, strict=True):
            found.setdefault(each.stream, {})[str(each.partition)] = offset
        return json.dumps(found)

    def __str__(self) -> str:
        bounds = self.positions
        starts, ends = (bounds.get(option.name, "{}") for option in (names.STARTING_OFFSETS, names.ENDING_OFFSETS))
        return f"startingOffsets {starts}, endingOffsets {ends}"


def _by_stream(partitions: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for stream, number in partitions:
        found.setdefault(stream, []).append(number)
    return found


def _does(job: "Job", source: "SourceOptions") -> str:
    parts: dict[str, Any] = {
        "subject": source.subject,
        "columns": list(source.columns),
        "decode": job.decode.model_dump(mode="json"),
        "expectations": job.expectations.model_dump(mode="json"),
        "sql": job.sql,
    }
    if source.table is not None:  # without a table view the identity is that of versions before it
        parts["table"] = [source.table.key, source.table.on_missing_key]
    return json.dumps(parts, sort_keys=True)
