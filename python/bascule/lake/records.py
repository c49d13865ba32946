"""Follows the records that a task writes: their offsets by source."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from bascule.lake.grouping import grouped
from bascule.lake.ranges import NO_INCARNATION, Source, Written, merge
from bascule.spark.usage import usage

KEYS: Final = {"stream": "string", "partition": "int", "offset": "bigint"}
"""Columns that identify a record, with Spark's names of their types."""
INCARNATION: Final = "incarnation"
"""A fourth column, for tables that keep what was in a stream before it was deleted and created again."""


def has_offsets(columns: Mapping[str, str]) -> bool:
    """Whether rows with these columns, by name with Spark's type, are identified by stream, partition and offset.

    Raises:
        UsageError: a column is there with another type, or `offset` without the others: then nothing could show which
            records a table has.
    """
    there = [name for name in KEYS if name in columns]
    for name, kind in {**KEYS, INCARNATION: "bigint"}.items():
        if columns.get(name, kind) != kind:
            raise usage(f"column {name} is {columns[name]}, not {kind}: cast it, or give it another name")
    if "offset" in there and len(there) < len(KEYS):
        missing = ", ".join(name for name in KEYS if name not in there)
        raise usage(
            f"the rows have a column offset and no {missing}: choose these too, from a source whose option columns has "
            "them, or give the column offset another name"
        )
    return len(there) == len(KEYS)


class Tracker:
    """The offsets that one task has seen, for one table."""

    def __init__(self) -> None:
        self._parts: dict[Source, Written] = {}

    @property
    def written(self) -> dict[Source, Written]:
        """Ranges so far, by source."""
        return dict(self._parts)

    def observe(self, batch: Any) -> None:
        """Add the rows of a record batch.

        Raises:
            UsageError: a row has no stream, partition, offset, or incarnation where there is such a column.
        """
        names = ["stream", "partition", *([INCARNATION] if INCARNATION in batch.schema.names else [])]
        for name in (*names, "offset"):
            if nulls := batch.column(name).null_count:
                raise usage(f"column {name} is null in {nulls} rows: every record has one")
        for (stream, partition, *rest), rows in grouped(batch, [batch.column(name) for name in names]):
            self._add(Source(stream, rest[0] if rest else NO_INCARNATION, partition), rows.column("offset"))

    def _add(self, source: Source, offsets: Any) -> None:
        pc: Any = import_module("pyarrow.compute")
        bounds = pc.min_max(offsets)
        first, last = bounds["min"].as_py(), bounds["max"].as_py()
        count = len(offsets)
        distinct = bool(count < 2 or pc.all(pc.less(offsets.slice(0, count - 1), offsets.slice(1))).as_py())
        part = Written(first, last + 1, count, distinct)
        before = self._parts.get(source)
        self._parts[source] = part if before is None else merge([(source, before), (source, part)])[source]
