"""What an epoch changes in a table of versions, against a model that takes one record after the other."""

import random
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any

import pytest
from bascule.lake.history import changes_of, history_schema
from bascule.lake.merge_options import CLOSES, DELETED, IS_CURRENT, VALID_FROM, VALID_TO

pa: Any = import_module("pyarrow")

TIME = pa.timestamp("us", tz="UTC")
ROWS = pa.schema(
    [
        *(("stream", pa.string()), ("incarnation", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64())),
        *(("timestamp", TIME), ("key", pa.binary()), ("value", pa.binary()), (DELETED, pa.bool_()), (VALID_FROM, TIME)),
    ]
)
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def record(key: bytes, offset: int, second: int, value: bytes | None = b"v", partition: int = 0) -> dict[str, Any]:
    place = {"stream": "s", "incarnation": 1, "partition": partition, "offset": offset}
    return {**place, "timestamp": BEGIN + timedelta(seconds=second), "key": key, "value": value}


class Table:
    """A table of versions, changed as the merge of an epoch changes it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def merge(self, *records: dict[str, Any]) -> None:
        changes = changes_of(_epoch(list(records)), self.arrow(), ["key"]).to_pylist()
        current = {row["key"]: row for row in self.rows if row[IS_CURRENT]}
        for row in changes:
            if row.pop(CLOSES):
                current[row["key"]] |= {VALID_TO: row[VALID_TO], IS_CURRENT: False}
            else:
                self.rows.append(row)

    def arrow(self) -> Any:
        return pa.Table.from_pylist(self.rows, schema=history_schema(ROWS))


def _epoch(records: list[dict[str, Any]]) -> Any:
    """As Spark gives the rows of an epoch."""
    starts: dict[Any, datetime] = {}
    for row in sorted(records, key=lambda row: row["offset"]):
        place = (row["key"], row["partition"])
        starts[place] = row[VALID_FROM] = max(row["timestamp"], starts.get(place, BEGIN))
        row[DELETED] = row["value"] is None
    ordered = sorted(records, key=lambda row: (row["key"], row[VALID_FROM], row["partition"], row["offset"]))
    return pa.Table.from_pylist(ordered, schema=ROWS)


def versions(table: Table, key: bytes) -> list[tuple[int, int, int | None, bool]]:
    """(offset, seconds from, seconds to, current) of each version of a key."""

    def seconds(time: datetime | None) -> int | None:
        return None if time is None else int((time - BEGIN).total_seconds())

    found = [
        (row["offset"], seconds(row[VALID_FROM]) or 0, seconds(row[VALID_TO]), row[IS_CURRENT])
        for row in table.rows
        if row["key"] == key
    ]
    return sorted(found)


def test_versions_of_one_epoch_and_of_several_follow_each_other() -> None:
    table = Table()
    table.merge(record(b"a", 0, 1), record(b"a", 1, 4), record(b"b", 2, 5))
    table.merge(record(b"a", 3, 9), record(b"c", 4, 9))
    assert versions(table, b"a") == [(0, 1, 4, False), (1, 4, 9, False), (3, 9, None, True)]
    assert versions(table, b"b") == [(2, 5, None, True)]


def test_a_tombstone_ends_a_version_and_the_key_may_come_back() -> None:
    table = Table()
    table.merge(record(b"a", 0, 1))
    table.merge(record(b"a", 1, 4, None), record(b"gone", 2, 4, None))
    assert versions(table, b"a") == [(0, 1, 4, False)]
    assert versions(table, b"gone") == []
    table.merge(record(b"a", 3, 9))
    assert versions(table, b"a") == [(0, 1, 4, False), (3, 9, None, True)]


def test_a_clock_that_was_set_back_does_not_turn_versions_round() -> None:
    table = Table()
    table.merge(record(b"a", 0, 10), record(b"a", 1, 7))
    table.merge(record(b"a", 2, 3))
    assert versions(table, b"a") == [(0, 10, 10, False), (1, 10, 10, False), (2, 10, None, True)]
    table.merge(record(b"a", 3, 20, None))
    table.merge(record(b"a", 4, 15))
    assert versions(table, b"a")[2:] == [(2, 10, 20, False), (4, 20, None, True)]


def test_a_record_of_another_partition_that_is_older_than_the_current_version_is_left_out() -> None:
    table = Table()
    table.merge(record(b"a", 0, 10))
    table.merge(record(b"a", 0, 9, partition=1), record(b"a", 1, 12, partition=1))
    assert versions(table, b"a") == [(0, 10, 12, False), (1, 12, None, True)]


def test_no_rows_change_nothing() -> None:
    changes = changes_of(_epoch([]), Table().arrow(), ["key"])
    assert len(changes) == 0
    table = Table()
    table.merge(record(b"a", 0, 10))
    late = changes_of(_epoch([record(b"a", 0, 9, partition=1)]), table.arrow(), ["key"])
    assert len(late) == 0
    assert {*late.column_names} == {*history_schema(ROWS).names, CLOSES}


@pytest.mark.parametrize("seed", range(20))
def test_random_epochs_give_the_versions_of_the_model(seed: int) -> None:
    chosen = random.Random(seed)
    table, model = Table(), Model()
    offset, second = 0, 0
    for _ in range(6):
        epoch: list[dict[str, Any]] = []
        for _ in range(chosen.randrange(12)):
            second = max(0, second + chosen.randrange(-2, 6))
            value = None if chosen.random() < 0.3 else b"%d" % offset
            epoch.append(record(b"k%d" % chosen.randrange(3), offset, second, value))
            offset += 1
        table.merge(*epoch)
        for row in epoch:
            model.take(row)
    for key in (b"k0", b"k1", b"k2"):
        assert versions(table, key) == model.versions(key)


class Model:
    """Versions by one record after the other, of keys in one partition."""

    def __init__(self) -> None:
        self._versions: dict[bytes, list[list[Any]]] = {}
        self._reached: dict[bytes, int] = {}

    def take(self, row: dict[str, Any]) -> None:
        key, second = row["key"], int((row["timestamp"] - BEGIN).total_seconds())
        known = self._versions.setdefault(key, [])
        reached = self._reached.get(key, 0)
        if known and known[-1][3]:
            second = max(second, reached)
            known[-1][2:] = [second, False]
            self._reached[key] = second
        if row["value"] is not None:
            self._reached[key] = second = max(second, self._reached.get(key, 0))
            known.append([row["offset"], second, None, True])

    def versions(self, key: bytes) -> list[tuple[Any, ...]]:
        return [tuple(each) for each in self._versions.get(key, [])]
