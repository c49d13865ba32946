"""Partition values of rows, and the names of their folders."""

import random
import zlib
from importlib import import_module
from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.lake.layout import parse_folder, partition_folder, stream_folder, table_name, table_path
from bascule.lake.partitioning import LONG_KEY, buckets, check_fields, split

from tests.unit.lake.query import DAY_US

pa: Any = import_module("pyarrow")


def test_a_bucket_is_the_partition_that_the_broker_gives_a_key() -> None:
    draw = random.Random(1)
    lengths = [0, 1, 5, 17, LONG_KEY, LONG_KEY + 1, 3000]
    keys = [draw.randbytes(draw.choice(lengths)) for _ in range(500)] + [None]
    found = buckets(pa.array([b"cut off", *keys], pa.binary()).slice(1), 7).to_pylist()
    assert found == [None if not key else zlib.crc32(key) % 7 for key in keys]


def test_buckets_of_no_keys() -> None:
    assert buckets(pa.array([], pa.binary()), 7).to_pylist() == []
    assert buckets(pa.array([None, b""], pa.binary()), 7).to_pylist() == [None, None]


def test_rows_are_split_by_all_fields_in_their_order() -> None:
    times = pa.array([0, DAY_US - 1, DAY_US, -1, 0], pa.timestamp("us", tz="UTC"))
    rows = pa.record_batch({"timestamp": times, "subject": ["a", "b", None, "a", "a"], "n": [0, 1, 2, 3, 4]})
    found = {values: part.column("n").to_pylist() for values, part in split(rows, ["date", "subject"])}
    assert found == {
        (("date", "1970-01-01"), ("subject", "a")): [0, 4],
        (("date", "1970-01-01"), ("subject", "b")): [1],
        (("date", "1970-01-02"), ("subject", None)): [2],
        (("date", "1969-12-31"), ("subject", "a")): [3],
    }


def test_rows_with_the_same_values_are_passed_on() -> None:
    rows = pa.record_batch({"subject": ["a", "a"]})
    [(values, part)] = split(rows, ["subject"])
    assert (values, part is rows) == ((("subject", "a"),), True)
    assert list(split(rows.slice(0, 0), ["subject"])) == []


@pytest.mark.parametrize("value", ["a", "a/b", "é %", "..", "x=y", None])
def test_folders_can_be_read_back(value: str | None) -> None:
    folder = partition_folder({"date": "2026-11-26", "subject": value})
    assert folder.count("/") == 1
    assert ".." not in folder
    assert parse_folder(folder) == {"date": "2026-11-26", "subject": value}


@pytest.mark.parametrize(
    ("stream", "folder"),
    [
        ("orders", "orders"),
        ("a/b", "a~2Fb"),
        ("..", "~2E."),
        ("__groups", "~5F_groups"),
        ("a.b-c_d", "a.b-c_d"),
        ("~é", "~7E~C3~A9"),
    ],
)
def test_a_table_of_a_stream_is_never_hidden_or_outside(stream: str, folder: str) -> None:
    assert stream_folder(stream) == folder
    assert table_path("lake/{stream}/t", stream) == f"lake/{folder}/t"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (["day"], "needs a column day"),
        (["value"], "column value is binary, which cannot be partitioned by"),
        (["bucket(4)"], "needs a column key"),
    ],
)
def test_fields_that_rows_lack_are_refused(fields: list[str], message: str) -> None:
    schema = pa.schema([("timestamp", pa.timestamp("us", tz="UTC")), ("value", pa.binary())])
    with pytest.raises(UsageError, match=message):
        check_fields(fields, schema)


LONG = ["a" * 2000, "é" * 700, "a/" * 300 + "x", "a/" * 300 + "y"]


def test_long_values_are_shortened_to_folders_of_their_own() -> None:
    folders = [partition_folder({"date": "2026-11-26", "subject": value}) for value in [*LONG, "a" * 200]]
    assert len(set(folders)) == len(folders)
    assert all(len(part.encode()) <= 255 for folder in folders for part in folder.split("/"))
    assert str(parse_folder(folders[0])["subject"]).startswith("a" * 100)
    assert folders[4].endswith("=" + "a" * 200), "and those that fit are as they are"
    several = partition_folder({f"column{number}": "s" * 500 for number in range(6)})
    assert len(several) < 700, "keys of S3 have at most 1,024 bytes"


@pytest.mark.parametrize("path", ["lake/{stream}", "lake/{stream}-by-day/t", "s3://b/{stream}.{stream}/{stream}"])
def test_long_streams_have_tables_of_their_own(path: str) -> None:
    tables = [table_path(path, stream) for stream in LONG]
    assert len(set(tables)) == len(tables)
    assert all(len(part.encode()) <= 255 for table in tables for part in table.split("/"))
    assert stream_folder("s" * 255) == "s" * 255
    assert stream_folder("_" * 255).startswith("~5F__")
    names = [table_name(stream) for stream in LONG]
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 255
    assert table_name("_5Aé_") == "_5F5A_C3_A9_"
