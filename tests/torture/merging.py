"""A stream of changes from which queries keep tables: of the latest record, and in Delta of all versions, of each key.

Each change says where it came from: its value is `<partition>/<number>`, every fifth one is a tombstone, and a key has
changes in one partition. So what each table must have follows from the records and their times.
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
from bascule.lake import Source, coverage

from tests.torture.copying import (
    ROWS_A_TRIGGER,
    SOURCE_PARTITIONS,
    Copy,
    Ledger,
    difference,
    put_batch,
    read_columns,
    read_table,
)

KEYS: Final = 23
"""Keys of a partition."""
_TOMBSTONE: Final = 5


def tables_of(copy: Copy) -> tuple[str, ...]:
    """The tables that are kept: Iceberg has none of all versions."""
    return ("latest",) if copy.table_format == "iceberg" else ("latest", "history")


def start_merge(spark: Any, copy: Copy, table: str) -> Any:
    """Start the query that keeps one of the tables."""
    return import_module("bascule.spark").keep_table(
        spark,
        to=copy.place(table),
        format=copy.table_format,
        checkpoint=f"{copy.folder}/{table}-checkpoint",
        stream=copy.source,
        address=copy.address,
        history=table == "history",
        longPollMs=100,
        maxOffsetsPerTrigger=ROWS_A_TRIGGER,
        **copy.catalog,
    )


class Changes(Ledger):
    """What was published, and what the tables must have."""

    counts = 0
    """Changes of each partition."""

    @property
    def count(self) -> int:
        """Number of records published."""
        return self.counts * SOURCE_PARTITIONS

    def publish(self, count: int, size: int = 0) -> None:
        """Publish `count` changes to each partition; values have at least `size` bytes."""
        for partition in range(SOURCE_PARTITIONS):
            numbers = range(self.counts, self.counts + count)
            columns = {
                "key": pa.array([b"%d-%d" % (partition, number * 7 % KEYS) for number in numbers], pa.binary()),
                "value": pa.array([_value(partition, number, size) for number in numbers], pa.binary()),
            }
            command = {"stream": self.copy.source, "partition": partition}
            put_batch(self.copy.address, command, pa.RecordBatch.from_pydict(columns))
        self.counts += count

    def merged(self) -> int:
        """Number of records that all tables cover now."""
        ends: list[int] = []
        for name in tables_of(self.copy):
            table = read_table(self.copy, name)
            rows = [] if table is None else table.select(["stream", "incarnation", "partition"]).to_pylist()
            sources = list({Source(row["stream"], row["incarnation"], row["partition"]) for row in rows})
            covered = coverage(self.copy.options_of(name), sources).values() if sources else ()
            ends.append(sum(each.end for each in covered))
        return min(ends)

    def fault(self) -> str | None:
        """How the tables differ from what must be there."""
        wanted = [version for partition in range(SOURCE_PARTITIONS) for version in self._versions(partition)]
        current = [version[:5] for version in wanted if version[5] is None]
        columns = ("partition", "offset", "key", "value", "timestamp")
        latest = [tuple(row[name] for name in columns) for row in self._rows("latest")]
        if (what := difference(Counter(current), Counter(latest))) is not None:
            return f"latest: {what}"
        if "history" not in tables_of(self.copy):
            return None
        columns = ("partition", "offset", "key", "value", "valid_from", "valid_to")
        rows = [row for row in self._rows("history") if row["is_current"] is (row["valid_to"] is None)]
        history = [tuple(row[name] for name in columns) for row in rows]
        what = difference(Counter(wanted), Counter(history))
        return None if what is None else f"history: {what}"

    def _rows(self, name: str) -> list[dict[str, Any]]:
        table = read_table(self.copy, name)
        return [] if table is None else table.to_pylist()

    def _versions(self, partition: int) -> list[tuple[Any, ...]]:
        """(partition, offset, key, value, from, to) of all versions, by the records that the broker has."""
        columns = ["offset", "timestamp", "key", "value"]
        records = read_columns(self.copy.address, self.copy.source, partition, columns).to_pylist()
        found: list[tuple[Any, ...]] = []
        current: dict[bytes, tuple[Any, ...]] = {}
        times = [row["timestamp"] for row in records]
        assert times == sorted(times), "the clock was set back: versions are not valid from the times of their records"
        for row, time in zip(records, times, strict=True):
            if (version := current.pop(row["key"], None)) is not None:
                found.append((*version, time))
            if row["value"] is not None:
                current[row["key"]] = (partition, row["offset"], row["key"], row["value"], time)
        return found + [(*version, None) for version in current.values()]


def _value(partition: int, number: int, size: int) -> bytes | None:
    return None if number % _TOMBSTONE == 0 else (b"%d/%d" % (partition, number)).ljust(size, b".")
