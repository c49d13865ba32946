"""Jobs whose target is merged by keys: rows, restarts, batch runs, changed columns, refusals."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import InternalError, StateError, UsageError
from bascule.failpoints import Name
from bascule.pipeline import Outcome, parse_job, plan, run
from harness import Streams

from tests.failpoints import Points

deltalake: Any = import_module("deltalake")

pytestmark = pytest.mark.spark

POINTS: tuple[Name, ...] = ("merge.before_commit", "merge.after_commit", "job.target_written")
POSITION = "stream, incarnation, partition, offset, timestamp"


class Customers:
    """A job that keeps the latest row of each customer, from change events."""

    def __init__(self, spark: Any, streams: Streams, folder: Path) -> None:
        self.spark, self.streams, self.folder = spark, streams, folder
        self.target: dict[str, Any] = {
            "format": "delta",
            "path": "customers",
            "merge": {"keys": "id", "deleteWhen": "op = 'd'"},
        }
        self.document: dict[str, Any] = {
            "name": "customers",
            "source": {"stream": "s", "address": streams.address, "longPollMs": 100, "maxOffsetsPerTrigger": 4},
            "decode": {"value": {"format": "json", "schema": {"inline": "id BIGINT, op STRING, name STRING"}}},
            "sql": f"SELECT {POSITION}, value.* FROM source",
            "targets": [self.target],
            "mode": "availableNow",
            "checkpoint": "checkpoint",
        }

    def put(self, *events: tuple[int | None, str, str]) -> None:
        rows = [{"id": number, "op": op, "name": name} for number, op, name in events]
        self.streams.put("s", [json.dumps(row).encode() for row in rows])

    def job(self) -> Any:
        return parse_job(self.document, base=self.folder)

    def run(self) -> Outcome:
        return run(self.job(), spark=self.spark)

    def table(self) -> Any:
        return deltalake.DeltaTable(str(self.folder / "customers"))

    def names(self) -> dict[int, str]:
        found = self.table().to_pyarrow_table().to_pylist()
        assert len({row["id"] for row in found}) == len(found), "one row for each key"
        return {row["id"]: row["name"] for row in found}


@pytest.fixture
def customers(spark: Any, streams: Streams, tmp_path: Path) -> Customers:
    streams.create("s")
    return Customers(spark, streams, tmp_path)


def test_a_job_keeps_the_latest_row_of_each_key(customers: Customers) -> None:
    customers.put((1, "c", "Ann"), (2, "c", "Ben"), (1, "u", "Anna"), (3, "c", "Cy"), (2, "d", ""), (4, "c", "Di"))
    assert [each.action for each in plan(customers.job(), spark=customers.spark).targets] == ["create"]
    assert customers.run() == Outcome(epochs=2, rows=6, dead=0, restarts=0, stopped=False)
    assert customers.names() == {1: "Anna", 3: "Cy", 4: "Di"}
    assert [each.action for each in plan(customers.job(), spark=customers.spark).targets] == ["merge"]
    customers.put((3, "u", "Cyd"))
    customers.run()
    assert customers.names() == {1: "Anna", 3: "Cyd", 4: "Di"}


def test_an_epoch_that_is_repeated_is_merged_once(customers: Customers, points: Points) -> None:
    customers.document["restarts"] = {"most": 0}
    customers.put((1, "c", "Ann"), (2, "c", "Ben"))
    customers.run()
    customers.put((1, "u", "Anna"), (2, "d", ""))
    for point in POINTS:
        points.arm(point, "fail")
        with pytest.raises(InternalError, match=point):
            customers.run()
    version = customers.table().version()
    assert customers.run().epochs == 1
    assert customers.table().version() == version
    assert customers.names() == {1: "Anna"}


def test_a_batch_run_over_the_same_range_merges_nothing_twice(customers: Customers) -> None:
    del customers.document["checkpoint"], customers.document["source"]["longPollMs"]
    del customers.document["source"]["maxOffsetsPerTrigger"]
    customers.document["mode"] = "batch"
    customers.put((1, "c", "Ann"), (2, "c", "Ben"), (1, "u", "Anna"))
    customers.run()
    version = customers.table().version()
    customers.run()
    assert customers.table().version() == version
    customers.put((2, "d", ""))
    with pytest.raises(StateError, match=r'Set startingOffsets \{"s": \{"0": 3\}\}'):
        customers.run()
    customers.document["source"]["startingOffsets"] = '{"s": {"0": 3}}'
    customers.run()
    assert customers.names() == {1: "Anna"}


def test_columns_that_a_job_adds_are_null_in_earlier_rows(customers: Customers) -> None:
    customers.put((1, "c", "Ann"), (2, "c", "Ben"))
    customers.run()
    customers.document["sql"] = f"SELECT {POSITION}, value.*, length(value.name) AS letters FROM source"
    customers.put((2, "u", "Benno"))
    with pytest.raises(StateError, match="it has no column letters"):
        customers.run()
    customers.target["onSchemaChange"] = "evolve"
    customers.run()
    rows = customers.table().to_pyarrow_table(columns=["name", "letters"]).to_pylist()
    assert sorted(rows, key=str) == [{"name": "Ann", "letters": None}, {"name": "Benno", "letters": 5}]


def test_a_null_key_ends_the_job_with_its_offset(customers: Customers) -> None:
    customers.put((1, "c", "Ann"), (None, "c", "Ben"))
    with pytest.raises(StateError, match=r"s/0 has a record whose key \(id\) is null at offset 1") as raised:
        customers.run()
    assert raised.value.code == "record_invalid"
    assert not deltalake.DeltaTable.is_deltatable(str(customers.folder / "customers"))


def test_rows_without_their_position_are_refused_before_a_record_is_read(customers: Customers) -> None:
    customers.document["sql"] = "SELECT value.* FROM source"
    with pytest.raises(UsageError, match="the rows have no column stream: a table of latest rows needs stream"):
        customers.run()
    assert "no column stream" in plan(customers.job(), spark=customers.spark).targets[0].action


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"partitionBy": "date"}, "partitionBy is for tables that are appended to, and this one has merge"),
        ({"compactEvery": 5}, "compactEvery is for tables that are appended to"),
        ({"format": "parquet"}, "merge is for Delta and Iceberg tables, and format is parquet: use delta or"),
        ({"merge": {"keys": []}}, "keys"),
        ({"merge": {"keys": ["id", "id"]}}, "keys names id twice"),
        ({"merge": {"keys": "offset"}}, "keys names offset, which is the position of a record"),
        ({"merge": {"keys": "id", "deletesWhen": "true"}}, "deleteWhen"),
        ({"path": "t-{stream}"}, r"a table of latest rows has one folder, without \{stream\}"),
    ],
)
def test_what_does_not_go_with_a_merge_is_refused(customers: Customers, target: dict[str, Any], said: str) -> None:
    customers.target |= target
    with pytest.raises(UsageError, match=said):
        customers.job()


def test_dead_letters_are_not_merged(customers: Customers) -> None:
    customers.document["decode"]["onDecodeError"] = "dlq"
    customers.document["deadLetters"] = {"format": "delta", "path": "dead", "merge": {"keys": "offset"}}
    with pytest.raises(UsageError, match="keys names offset"):
        customers.job()
    customers.document["deadLetters"]["merge"] = {"keys": "key"}
    with pytest.raises(UsageError, match="deadLetters has merge: dead letters are appended; remove it"):
        customers.job()
