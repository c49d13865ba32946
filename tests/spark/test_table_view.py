"""`view=table`: the latest record of each key. Most tests need no Spark session."""

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from bascule.errors import BrokerError, UsageError
from bascule.spark import scan, table_view
from bascule.spark.columns import arrow_schema
from bascule.spark.options import SourceOptions, parse_options
from bascule.spark.planning import Packing, Range, plan_whole
from bascule.spark.reading import plan_tasks, read_ranges
from bascule.spark.resolving import resolve_ranges
from bascule.spark.source import BasculeSource
from bascule.spark.table_options import TableView
from bascule.spark.table_view import latest_records
from bascule.spark.tables import schema_with_options
from harness import Streams
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.spark

pa: Any = import_module("pyarrow")
ALL = ("key", "value", "offset", "subject")
keys = st.sampled_from([b"", b"a", b"b", b"c"])
records = st.lists(st.tuples(keys, st.one_of(st.none(), st.binary(max_size=3))), max_size=60)


def batches(rows: Sequence[tuple[bytes | None, bytes | None]], size: int) -> Iterator[Any]:
    schema = arrow_schema(ALL)
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        columns = {
            "key": [key for key, _ in part],
            "value": [value for _, value in part],
            "offset": list(range(start, start + len(part))),
            "subject": ["s"] * len(part),
        }
        yield pa.RecordBatch.from_pydict(columns, schema=schema)


def rows_of(found: Iterator[Any], schema: Any) -> list[dict[str, Any]]:
    listed = list(found)
    assert all(batch.schema.equals(schema) for batch in listed)
    return pa.Table.from_batches(listed, schema).to_pylist()


@given(records, st.integers(1, 9), st.integers(1, 200))
def test_a_view_is_a_dictionary_of_the_records_in_order_of_offset(
    rows: list[tuple[bytes, bytes | None]], size: int, fold_bytes: int
) -> None:
    latest = {key: (offset, value) for offset, (key, value) in enumerate(rows)}
    expected = sorted((offset, value) for offset, value in latest.values() if value is not None)
    schema = arrow_schema(("offset", "value"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(table_view, "FOLD_BYTES", fold_bytes)
        found = rows_of(latest_records(batches(rows, size), schema, TableView(), "s/0"), schema)
    assert [(row["offset"], row["value"]) for row in found] == expected


def test_batches_of_the_result_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_view, "BATCH_BYTES", 1000)
    schema = arrow_schema(ALL)
    rows: list[tuple[bytes | None, bytes | None]] = [(b"%d" % n, bytes(100)) for n in range(100)]
    found = list(latest_records(batches(rows, 100), schema, TableView(), "s/0"))
    assert len(found) > 10
    assert sum(batch.num_rows for batch in found) == 100


def test_a_record_without_a_key_is_refused_with_its_offset_or_left_out() -> None:
    schema = arrow_schema(("value",))
    rows: list[tuple[bytes | None, bytes | None]] = [(b"a", b"1"), (None, b"2"), (b"b", b"3")]
    with pytest.raises(BrokerError, match=r"s/0 has a record without a key at offset 1, .* set onMissingKey") as raised:
        list(latest_records(batches(rows, 3), schema, TableView(), "s/0"))
    assert raised.value.code == "record_invalid"
    skipping = TableView(on_missing_key="skip")
    assert rows_of(latest_records(batches(rows, 3), schema, skipping, "s/0"), schema) == [
        {"value": b"1"},
        {"value": b"3"},
    ]


def test_a_partition_of_tombstones_or_of_records_without_a_key_has_no_rows() -> None:
    schema = arrow_schema(("value",))
    gone: list[tuple[bytes | None, bytes | None]] = [(b"a", b"1"), (b"a", None), (None, b"2")]
    view = TableView(on_missing_key="skip")
    assert list(latest_records(batches(gone, 1), schema, view, "s/0")) == []
    assert list(latest_records(batches(gone[2:], 1), schema, view, "s/0")) == []


def test_more_bytes_than_the_limit_are_refused_but_not_many_changes_of_few_keys() -> None:
    schema = arrow_schema(("key", "value"))
    view = TableView(max_bytes=5000)
    few: list[tuple[bytes | None, bytes | None]] = [(b"%d" % (n % 10), bytes(100)) for n in range(1000)]
    assert len(rows_of(latest_records(batches(few, 20), schema, view, "s/0"), schema)) == 10
    many: list[tuple[bytes | None, bytes | None]] = [(b"%d" % n, bytes(100)) for n in range(1000)]
    with pytest.raises(
        UsageError, match=r"the table of s/0 has \d+ bytes .* tableMaxBytes is 5000: raise it"
    ) as raised:
        list(latest_records(batches(many, 20), schema, view, "s/0"))
    assert raised.value.code == "too_large"


@given(st.lists(st.integers(0, 3_000_000), max_size=20), st.integers(1, 8), st.sampled_from([0, 1, 5]))
def test_all_ranges_of_a_partition_are_in_one_task(sizes: list[int], slots: int, most: int) -> None:
    halves = [
        Range("s", number, start, end, 1)
        for number, size in enumerate(sizes)
        for start, end in pairwise((0, size // 2, size))
    ]
    tasks = plan_whole(halves, Packing(slots=slots, max_partitions=most))
    assert sorted(each for task in tasks for each in task) == sorted(each for each in halves if each.size)
    owners = [number for task in tasks for number in {each.partition for each in task}]
    assert len(owners) == len(set(owners))
    assert len(tasks) <= (most or 3 * slots)
    assert all(list(task) == sorted(task) for task in tasks)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tableKey": "subject"}, "option tableKey is for view=table"),
        ({"onMissingKey": "skip"}, "option onMissingKey is for view=table"),
        ({"tableMaxBytes": "1MiB"}, "option tableMaxBytes is for view=table"),
        ({"view": "tables"}, r"did you mean table\?"),
        ({"view": "table", "tableKey": "id"}, "must be one of key, subject"),
        ({"view": "table", "minPartitions": "4"}, "minPartitions does not go with view=table"),
        ({"view": "table", "maxRecordsPerPartition": "4"}, "maxRecordsPerPartition does not go with view=table"),
        ({"view": "table", "tableKey": "subject", "onMissingKey": "skip"}, "every record has a subject"),
        ({"view": "table", "tableMaxBytes": "1025MiB"}, "must be a size in bytes from 1 to 1073741824"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        parse_options({"stream": "s", **options})


def test_a_streaming_read_refuses_the_view_also_that_of_a_catalog_table() -> None:
    schema = schema_with_options(("value",), {"stream": "s", "view": "table"})
    with pytest.raises(UsageError, match="option view=table is for batch reads"):
        BasculeSource({}).streamReader(schema).initialOffset()
    BasculeSource({}).reader(schema)


def changes(streams: Streams) -> None:
    """Two partitions: updates, a tombstone, a key that returns, a key that is in both."""
    streams.create("s", 2)
    streams.put("s", [b"1", b"2", b"3"], key=[b"a", b"b", b"a"], subject=["s.x", "s.y", "s.x"])
    streams.put("s", [None, b"5"], key=[b"b", b"c"], subject=["s.y", "s.x"])  # pyright: ignore[reportArgumentType]
    streams.put("s", [b"6"], 1, key=[b"a"], subject=["s.x"])
    streams.put("s", [None, b"8"], 1, key=[b"d", b"d"], subject=["s.z", "s.z"])  # pyright: ignore[reportArgumentType]


def read(streams: Streams, schema: Any = None, **given: str) -> list[dict[str, Any]]:
    options: SourceOptions = parse_options({"stream": "s", "address": streams.address, "view": "table", **given})
    wanted = arrow_schema(options.columns) if schema is None else schema
    tasks = plan_tasks(options, resolve_ranges(options))
    return rows_of((batch for ranges in tasks for batch in read_ranges(options, ranges, wanted)), wanted)


def values(rows: list[dict[str, Any]]) -> list[bytes]:
    return sorted(row["value"] for row in rows)


def test_a_stream_has_one_row_for_each_partition_and_key(streams: Streams) -> None:
    changes(streams)
    found = read(streams, columns="partition,key,value,incarnation")
    assert sorted((row["partition"], row["key"], row["value"]) for row in found) == [
        (0, b"a", b"3"),
        (0, b"c", b"5"),
        (1, b"a", b"6"),
        (1, b"d", b"8"),
    ]
    assert {row["incarnation"] for row in found} == {1, 2}


def test_the_key_may_be_the_subject_and_columns_need_not_name_what_the_view_needs(streams: Streams) -> None:
    changes(streams)
    assert values(read(streams, columns="value", tableKey="subject")) == [b"5", b"6", b"8"]
    assert sorted(row["offset"] for row in read(streams, columns="offset")) == [0, 2, 2, 4]


def test_starts_ends_and_subjects_select_records_before_the_view(streams: Streams) -> None:
    changes(streams)
    assert values(read(streams, endingOffsets='{"s": {"0": 3, "1": 0}}')) == [b"2", b"3"]
    assert values(read(streams, startingOffsets='{"s": {"0": 3, "1": -1}}')) == [b"5"]
    assert values(read(streams, subject="s.y")) == []


def test_source_and_scan_read_a_table_with_spark(spark: Any, streams: Streams) -> None:
    changes(streams)
    options: dict[str, Any] = {"address": streams.address, "view": "table"}
    loaded = spark.read.format("bascule").options(stream="s", **options).load()
    assert sorted(bytes(row.value) for row in loaded.collect()) == [b"3", b"5", b"6", b"8"]
    assert sorted(bytes(row.value) for row in loaded.select("value").collect()) == [b"3", b"5", b"6", b"8"]
    scanned = scan(spark, "s", columns=["key"], **options)
    assert sorted(bytes(row.key) for row in scanned.collect()) == [b"a", b"a", b"c", b"d"]
    streams.put("s", [b"9"])
    again = spark.read.format("bascule").options(stream="s", **options).load()
    errors: Any = import_module("pyspark.errors")
    with pytest.raises(errors.PySparkException, match="s/0 has a record without a key at offset 5"):
        again.collect()
