"""A stream of changes from which two queries keep tables: of the latest record, and of all versions, of each key.

Each change says where it came from: its value is `<partition>/<number>`, every fifth one is a tombstone, and a key has
changes in one partition. So what each table must have follows from the records and their times.
"""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from bascule.lake import ArchiveOptions, Source, coverage

from tests.torture.copying import ROWS_A_TRIGGER, SOURCE_PARTITIONS, Copy, Ledger, difference, put_batch, read_columns

KEYS: Final = 23
"""Keys of a partition."""
TABLES: Final = ("latest", "history")
_TOMBSTONE: Final = 5


def start_merge(spark: Any, copy: Copy, table: str) -> Any:
    """Start the query that keeps one of `TABLES`."""
    return import_module("bascule.spark").keep_table(
        spark,
        to=f"{copy.folder}/{table}",
        checkpoint=f"{copy.folder}/{table}-checkpoint",
        stream=copy.source,
        address=copy.address,
        history=table == "history",
        longPollMs=100,
        maxOffsetsPerTrigger=ROWS_A_TRIGGER,
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
        """Number of records that both tables cover now."""
        place = Path(self.copy.folder, "history")
        if not all(Path(self.copy.folder, table, "_delta_log").exists() for table in TABLES):
            return 0
        rows = _rows(place, ["stream", "incarnation", "partition"])
        sources = list({Source(row["stream"], row["incarnation"], row["partition"]) for row in rows})
        ends = [coverage(ArchiveOptions(f"{self.copy.folder}/{table}"), sources).values() for table in TABLES]
        return min(sum(each.end for each in of_table) for of_table in ends)

    def fault(self) -> str | None:
        """How the tables differ from what must be there."""
        wanted = [version for partition in range(SOURCE_PARTITIONS) for version in self._versions(partition)]
        history = [
            (*(row[name] for name in ("partition", "offset", "key", "value", "valid_from", "valid_to")),)
            for row in _rows(Path(self.copy.folder, "history"))
            if row["is_current"] is (row["valid_to"] is None)
        ]
        latest = [
            (*(row[name] for name in ("partition", "offset", "key", "value", "timestamp")),)
            for row in _rows(Path(self.copy.folder, "latest"))
        ]
        current = [version[:5] for version in wanted if version[5] is None]
        for table, must, found in (("history", wanted, history), ("latest", current, latest)):
            if (what := difference(Counter(must), Counter(found))) is not None:
                return f"{table}: {what}"
        return None

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


def _rows(place: Path, columns: list[str] | None = None) -> list[dict[str, Any]]:
    return import_module("deltalake").DeltaTable(str(place)).to_pyarrow_table(columns=columns).to_pylist()
