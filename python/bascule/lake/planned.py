"""The offsets that a streaming query has planned for an epoch, as its checkpoint has them.

Rows alone do not show where the range of an epoch begins and ends: compaction and aborted transactions leave holes, and
an epoch of one table may have no rows at all. Spark writes `offsets/<epoch>` before it runs an epoch.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bascule.errors import StateError
from bascule.lake.ranges import Source, Written
from bascule.spark.checkpoint_copies import local_path
from bascule.spark.offsets import Key, Mark, from_document, ranges

__all__ = ["planned_ranges", "planned_sources", "with_planned"]


def planned_ranges(checkpoint: str, epoch: int) -> dict[Source, tuple[int, int]]:
    """First and end offset by source, of sources with a range that is not empty.

    Args:
        checkpoint: folder of the query's checkpoint.
        epoch: a micro-batch that Spark has planned.

    Returns:
        Nothing if the checkpoint is not in this machine's file system, or its query does not read streams alone.
    """
    folder = local_path(checkpoint)
    if folder is None:
        return {}
    end = _marks(folder / "offsets" / str(epoch))
    before: Mapping[Key, Mark] | None = _marks(folder / "offsets" / str(epoch - 1)) if epoch else {}
    if end is None or before is None:
        return {}
    return {
        Source(each.stream, each.incarnation, each.partition): (each.start, each.end) for each in ranges(before, end)
    }


def planned_sources(checkpoint: str, epoch: int) -> frozenset[Source]:
    """The partitions of a query that has planned an epoch; none as for `planned_ranges`."""
    folder = local_path(checkpoint)
    marks = None if folder is None else _marks(folder / "offsets" / str(epoch))
    return frozenset(Source(stream, mark.incarnation, number) for (stream, number), mark in (marks or {}).items())


def with_planned(
    written: Mapping[Source, Written], planned: Mapping[Source, tuple[int, int]], streams: frozenset[str] | None
) -> dict[Source, Written]:
    """What an epoch has written to a table, with what was planned; also sources of which there was no record.

    Args:
        written: rows by source.
        planned: first and end offset by source. A range that does not contain the rows is not used.
        streams: those of the table; None = all.
    """
    found = dict(written)
    for source, (first, end) in planned.items():
        if streams is not None and source.stream not in streams:
            continue
        rows = written.get(source)
        if rows is None:
            found[source] = Written(first, end, 0, planned=(first, end))
        elif first <= rows.first and rows.end <= end:
            found[source] = replace(rows, planned=(first, end))
    return dict(sorted(found.items()))


def _marks(path: Path) -> Mapping[Key, Mark] | None:
    """The marks of an entry of the checkpoint; None = it is not there, or has other sources.

    Its lines are a version, JSON about the query, and an offset for each source.
    """
    try:
        _, _, *sources = path.read_text().splitlines()
        (document,) = (json.loads(line) for line in sources)
        found: dict[str, Any] = document
        return from_document(found, str(found["namespace"]))[0]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, StateError):
        return None
