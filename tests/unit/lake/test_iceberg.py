"""Iceberg tables: partitions, columns, compaction and expiry, what other writers and readers of the table see."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from bascule.errors import CorruptionError, StateError, UsageError
from bascule.lake.iceberg.catalog import open_catalog
from bascule.lake.iceberg.open_errors import address_of, reason_of
from bascule.lake.iceberg.target import IcebergTarget
from bascule.lake.layout import table_name
from bascule.lake.options import ArchiveOptions
from bascule.lake.ranges import Source

from tests.unit.lake.query import SCHEMA, Query, batch, data_files, expected, options_of

pa: Any = import_module("pyarrow")


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(options_of("iceberg", tmp_path))


def opened(query: Query) -> Any:
    return open_catalog(query.options).load_table(query.options.path)


def test_partitions_are_the_transforms_of_the_table(tmp_path: Path) -> None:
    query = Query(options_of("iceberg", tmp_path, "date", "bucket(4)", "partition"))
    query.epoch(0, [batch(0, 6)], [batch(0, 3, 1)])
    assert query.rows() == expected((0, 0, 6), (1, 0, 3))
    partitions = opened(query).inspect.partitions().to_pylist()
    found = {(each["partition"]["timestamp_day"], each["partition"]["partition"]) for each in partitions}
    assert found == {(date(1970, 1, day + 1), 0) for day in range(6)} | {
        (date(1970, 1, day + 1), 1) for day in range(3)
    }
    keys = {each["partition"]["key_bucket"] for each in partitions}
    assert len(keys) > 1
    assert keys <= set(range(4))
    days = opened(query).scan(row_filter="timestamp >= '1970-01-05T00:00:00+00:00'")
    assert sorted(days.to_arrow()["offset"].to_pylist()) == [4, 5]
    assert len(list(days.plan_files())) == 2, "other days are not read"
    expressions = import_module("pyiceberg.expressions")
    one_key = opened(query).scan(row_filter=expressions.EqualTo("key", b"key-1"))
    assert sorted(one_key.to_arrow()["offset"].to_pylist()) == [1, 1, 4]
    assert len(list(one_key.plan_files())) < 9, "other buckets are not read"


def test_files_have_bounds_of_offsets_for_readers_that_skip(query: Query) -> None:
    query.epoch(0, [batch(0, 5)])
    query.epoch(1, [batch(5, 9)])
    tasks = list(opened(query).scan(row_filter="offset >= 6").plan_files())
    assert [task.file.record_count for task in tasks] == [4]


def test_expiry_of_snapshots_keeps_epochs_and_coverage(query: Query) -> None:
    for number in range(4):
        query.epoch(number, [batch(3 * number, 3 * number + 3)])
    assert len(bascule.lake.expire(query.options, retention_hours=0)) == 3
    assert len(opened(query).snapshots()) == 1
    query.restart()
    assert not query.epoch(3, [batch(9, 12)]), "the newest epoch is still known"
    source = Source("s", 1, 0)
    covered = bascule.lake.coverage(query.options, [source, Source("s", 1, 7)])
    assert {key: (each.first, each.end) for key, each in covered.items()} == {source: (0, 12)}
    with pytest.raises(StateError, match="has a new checkpoint"):
        Query(query.options, "new").epoch(0, [batch(0, 3)])
    assert query.rows() == expected((0, 0, 12))


def test_compaction_merges_small_files_and_keeps_rows_and_epochs(tmp_path: Path) -> None:
    query = Query(options_of("iceberg", tmp_path, "partition"))
    for number in range(4):
        query.epoch(number, [batch(3 * number, 3 * number + 3)], [batch(3 * number, 3 * number + 3, 1)])
    figures = bascule.lake.compact(query.options)
    assert (figures["numFilesRemoved"], figures["numFilesAdded"]) == (8, 2)
    assert len(list(opened(query).scan().plan_files())) == 2
    assert query.rows() == expected((0, 0, 12), (1, 0, 12))
    assert bascule.lake.compact(query.options)["numFilesRemoved"] == 0
    query.restart()
    assert not query.epoch(3, [batch(9, 12)], [batch(9, 12, 1)])
    assert query.epoch(4, [batch(12, 13)])
    assert query.rows() == expected((0, 0, 13), (1, 0, 12))


def test_a_commit_that_a_compaction_overtakes_is_decided_again(query: Query) -> None:
    for number in range(3):
        query.epoch(number, [batch(3 * number, 3 * number + 3)])
    attempt = query.write([[batch(9, 12)]])
    bascule.lake.compact(query.options)
    assert query.commit(3, *attempt)
    assert query.rows() == expected((0, 0, 12))


def overtake(monkeypatch: pytest.MonkeyPatch, commit: Callable[[], object]) -> None:
    """Let another commit come between the second opening of a table, which is for a commit, and that commit."""
    real, calls = IcebergTarget.open, list[int]()

    def overtaken(target: IcebergTarget) -> Any:
        table = real(target)
        calls.append(1)
        if len(calls) == 2:
            monkeypatch.setattr(IcebergTarget, "open", real)
            commit()
        return table

    monkeypatch.setattr(IcebergTarget, "open", overtaken)


def test_a_compaction_that_an_append_overtakes_is_committed_again(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        query.epoch(number, [batch(3 * number, 3 * number + 3)])
    overtake(monkeypatch, lambda: query.epoch(3, [batch(9, 12)]))
    assert bascule.lake.compact(query.options)["numFilesRemoved"] == 3
    assert query.rows() == expected((0, 0, 12))
    assert len(list(opened(query).scan().plan_files())) == 2


def test_two_compactions_at_once_keep_each_row_once(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        query.epoch(number, [batch(3 * number, 3 * number + 3)])
    overtake(monkeypatch, lambda: bascule.lake.compact(query.options))
    assert bascule.lake.compact(query.options)["numFilesRemoved"] == 0, "the other one has merged them"
    assert query.rows() == expected((0, 0, 9))


def test_a_property_for_retries_does_not_repeat_an_append(query: Query) -> None:
    """Other writers may want their commits retried: the property of the table stays as it is."""
    query.epoch(0, [batch(0, 3)])
    with opened(query).transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "10"})
    other = Query(query.options, "other")
    zombie, earlier = query.write([[batch(3, 5)]]), query.run_id
    query.restart()
    assert query.epoch(1, [batch(3, 5)])
    query.run_id = earlier
    assert not query.commit(1, *zombie)
    assert other.epoch(0, [batch(0, 2, 7)])
    assert query.rows() == expected((0, 0, 5), (7, 0, 2))
    assert opened(query).properties["commit.retry.num-retries"] == "10"


def test_the_history_shows_which_epoch_a_snapshot_has(query: Query) -> None:
    query.epoch(0, [batch(0, 3)])
    summary = opened(query).current_snapshot().summary
    assert (summary["bascule.query"], summary["bascule.epoch"]) == ("q", "0")
    assert summary["bascule.ranges"] == '{"s/0 (incarnation 1)": [0, 3]}'


def test_columns_that_another_writer_added_are_named(query: Query) -> None:
    query.epoch(0, [batch(0, 3)])
    with opened(query).update_schema() as schema:
        schema.union_by_name(pa.schema([pa.field("note", pa.string())]))
    with pytest.raises(StateError, match="it has a column note, which the rows lack"):
        query.epoch(1, [batch(3, 4)])


def test_a_property_that_is_damaged_is_named(query: Query) -> None:
    query.epoch(0, [batch(0, 3)])
    with opened(query).transaction() as transaction:
        transaction.set_properties({"bascule.covered.s/1/0": "[0]"})
    with pytest.raises(CorruptionError, match=r"the table property bascule\.covered\.s/1/0 is not valid"):
        query.epoch(1, [batch(3, 4)])


def test_orphan_files_are_left_to_the_engine_that_owns_the_table(query: Query) -> None:
    query.epoch(0, [batch(0, 3)])
    with pytest.raises(UsageError, match=r"CALL system\.remove_orphan_files"):
        bascule.lake.vacuum(query.options)


def test_expiry_is_for_iceberg_tables(tmp_path: Path) -> None:
    query = Query(options_of("delta", tmp_path))
    query.epoch(0, [batch(0, 3)])
    with pytest.raises(UsageError, match="expire is for Iceberg tables"):
        bascule.lake.expire(query.options)


def test_a_catalog_that_cannot_be_opened_is_named_without_its_secrets(tmp_path: Path) -> None:
    options = options_of("iceberg", tmp_path)
    (tmp_path / "catalog.json").write_text('{"type": "sql", "password": "hunter2"}')
    with pytest.raises(StateError, match="the Iceberg catalog default cannot be opened: URI missing") as refused:
        IcebergTarget("lake.table", options).exists()
    assert "hunter2" not in str(refused.value)


def test_the_reason_of_a_catalog_that_cannot_be_opened_has_no_secrets() -> None:
    properties = {
        "uri": "postgresql://me:p%40ss@db:1/x?sslpassword=hunter3",
        "token": "t1",
        "s3.secret-access-key": "quote'd\\key",
        "header": {"X-Api": "nested-secret"},
        "warehouse": "s3://bucket/lake",
        "unknown": "perhaps",
    }
    whole = f"Could not initialize catalog with the following properties: {properties}; p@ss\nmore"
    reason = reason_of(ValueError(whole), properties)
    for secret in ("p%40ss", "p@ss", "hunter3", "'t1'", "quote", "nested-secret", "perhaps", "more"):
        assert secret not in reason
    assert reason.startswith("Could not initialize catalog with the following properties: {")
    assert "s3://bucket/lake" in reason
    assert reason_of(KeyError(), {}) == "KeyError"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "orders"}, "an Iceberg table is named namespace.table"),
        ({"path": "s3://bucket/orders"}, "an Iceberg table is named namespace.table"),
        ({"path": "lake.orders", "region": "eu"}, "argument region is not for Iceberg tables"),
        ({"path": "lake", "table_format": "delta", "catalog": "prod"}, "it is for Iceberg tables"),
    ],
)
def test_options_that_a_format_does_not_use_are_refused(given: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"table_format": "iceberg", **given}
    with pytest.raises(UsageError, match=message):
        ArchiveOptions(**options)


def test_streams_have_tables_of_different_names() -> None:
    streams = ["orders", "orders.eu", "orders_2Eeu", "a-b_c", "ä", "a/b", "_2.", "__2E"]
    names = [table_name(stream) for stream in streams]
    assert names[:4] == ["orders", "orders_2Eeu", "orders_5F2Eeu", "a-b_c"]
    assert len(set(names)) == len(names)


def test_a_table_for_each_stream(tmp_path: Path) -> None:
    options = replace(options_of("iceberg", tmp_path), path="lake.{stream}")
    table = IcebergTarget("lake.orders_2Eeu", options)
    assert not table.exists()
    table.prepare(SCHEMA)
    assert table.exists()
    assert data_files(tmp_path) == []


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("http://user:hunter2@host:8181/api?token=x", "http://host:8181"),
        ("https://host/api", "https://host"),
        ("hunter2", "its address"),
        ("http://[hunter2", "its address"),
        ("http://host:hunter2", "its address"),
    ],
)
def test_the_address_of_a_catalog_has_no_secrets(uri: str, shown: str) -> None:
    assert address_of(uri) == shown


def test_a_name_that_a_sql_catalog_cannot_have_is_refused_before_a_query_starts(tmp_path: Path) -> None:
    nested = replace(options_of("iceberg", tmp_path), path="a.b.orders")
    with pytest.raises(StateError, match=r"no namespaces within others: name the table b\.orders"):
        IcebergTarget(nested.path, nested).compare(SCHEMA)
    with pytest.raises(StateError, match="cannot be created: a SQL catalog has no namespaces within others"):
        Query(nested).epoch(0, [batch(0, 3)])


def test_a_sql_catalog_without_a_warehouse_is_named(tmp_path: Path) -> None:
    options = options_of("iceberg", tmp_path)
    (tmp_path / "catalog.json").write_text(json.dumps({"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"}))
    with pytest.raises(StateError, match="set its property warehouse"):
        IcebergTarget("lake.table", options).compare(SCHEMA)
    catalog = open_catalog(options)
    catalog.create_namespace("lake", {"location": f"file://{tmp_path}/lake"})
    IcebergTarget("lake.table", options).compare(SCHEMA)
    assert Query(options).epoch(0, [batch(0, 3)])


def test_other_partitions_are_named(tmp_path: Path) -> None:
    Query(options_of("iceberg", tmp_path)).epoch(0, [batch(0, 3)])
    with pytest.raises(StateError, match=r"it is not partitioned, and partitionBy means day\(timestamp\)"):
        Query(options_of("iceberg", tmp_path, "date")).table.compare(SCHEMA)
