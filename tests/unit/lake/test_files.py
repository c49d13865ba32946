"""Parquet files of a task: order, sizes, memory, codecs, statistics, and what remains of a failed one."""

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import UsageError
from bascule.lake.files import MOST_OPEN, DataFile, TableWriter
from bascule.lake.options import FORMATS, ArchiveOptions
from bascule.lake.plans import hive_plan
from bascule.lake.rows import Shape
from bascule.lake.statistics import file_statistics
from bascule.lake.storage import open_storage
from bascule.lake.tasks import write_rows

from tests.unit.lake.query import DAY_US, SCHEMA, Query, batch, options_of

pa: Any = import_module("pyarrow")
parquet: Any = import_module("pyarrow.parquet")


def written(folder: Path, batches: list[Any], **options: Any) -> list[DataFile]:
    writer = opened(folder, **options)
    for each in batches:
        writer.write(each)
    return writer.close()


def opened(folder: Path, **options: Any) -> TableWriter:
    made = ArchiveOptions(str(folder), **options)
    return TableWriter(hive_plan(open_storage(str(folder), made), made, SCHEMA), made, prefix="p")


def keys(folder: Path, file: DataFile) -> list[tuple[int, int]]:
    table = parquet.read_table(folder / file.name, partitioning=None)
    return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))


def test_rows_in_order_make_one_file(tmp_path: Path) -> None:
    [file] = written(tmp_path, [batch(0, 3), batch(3, 5), batch(0, 2, 1)])
    assert keys(tmp_path, file) == [(0, offset) for offset in range(5)] + [(1, 0), (1, 1)]
    assert (file.rows, file.bytes) == (7, (tmp_path / file.name).stat().st_size)


def test_rows_out_of_order_are_sorted_within_each_file(tmp_path: Path) -> None:
    mixed = pa.Table.from_batches([batch(5, 9, 1), batch(0, 4)]).combine_chunks().to_batches()[0]
    [file] = written(tmp_path, [mixed])
    assert keys(tmp_path, file) == [(0, n) for n in range(4)] + [(1, n) for n in range(5, 9)]


def test_a_row_group_that_breaks_the_order_begins_a_file(tmp_path: Path) -> None:
    large = [batch(first, first + 1000, number) for number, first in [(1, 0), (1, 1000), (0, 0)]]
    files = written(tmp_path, large, row_group_bytes=1 << 16)
    found = [keys(tmp_path, file) for file in files]
    assert all(each == sorted(each) for each in found)
    assert sorted(key for each in found for key in each) == sorted(
        (number, offset) for number, count in [(0, 1000), (1, 2000)] for offset in range(count)
    )
    assert len(files) == 2


def test_rows_without_offsets_may_have_null_in_columns_of_the_order(tmp_path: Path) -> None:
    """An aggregate may have a column `partition` of its own, with nulls."""
    numbers = [[1] * 1000, [None] * 1000, [None, 2] * 500, [0] * 1000]
    schema = pa.schema([("partition", pa.int32()), ("value", pa.binary())])
    batches = [
        pa.record_batch([pa.array(each, pa.int32()), pa.array([b"x" * 100] * 1000)], schema=schema) for each in numbers
    ]
    made = ArchiveOptions(str(tmp_path), row_group_bytes=1 << 16)
    writer = TableWriter(hive_plan(open_storage(str(tmp_path), made), made, schema), made, prefix="p")
    for each in batches:
        writer.write(each)
    files = writer.close()
    found = [parquet.read_table(tmp_path / file.name, partitioning=None)["partition"].to_pylist() for file in files]
    assert sorted((number for each in found for number in each), key=str) == sorted(
        (number for each in numbers for number in each), key=str
    )


def test_a_stream_without_a_name_has_no_table(tmp_path: Path) -> None:
    options = ArchiveOptions(f"{tmp_path}/{{stream}}")
    rows_ = pa.record_batch({"stream": ["s", None], "count": [1, 2]})
    with pytest.raises(UsageError, match=r"column stream is null in 1 rows: \{stream\} in the path needs a name"):
        write_rows([rows_], options, Shape(rows_.schema, rows_.schema, has_offsets=False), ("token", "0"))


def test_the_place_of_a_new_table_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder that was made for it, also by a task before, is synced into the one that it is in."""
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(Path(f"/proc/self/fd/{handle}").readlink()))
    for table_format in FORMATS:
        query = Query(options_of(table_format, tmp_path / "new" / "lake" / table_format))
        attempt = query.write([[batch(0, 3)]])
        synced.clear()
        query.commit(0, *attempt)
        assert {tmp_path, tmp_path / "new", tmp_path / "new" / "lake"} <= set(synced), table_format
        synced.clear()
        query.epoch(1, [batch(3, 5)])
        assert tmp_path not in synced, "once"


def test_a_file_is_closed_at_its_size(tmp_path: Path) -> None:
    noise = [rows(first, first + 300) for first in range(0, 3000, 300)]
    files = written(tmp_path, noise, file_bytes=1 << 20, row_group_bytes=1 << 18, compression="none")
    assert len(files) == 3
    assert all((1 << 20) <= file.bytes < (2 << 20) for file in files[:-1])


def rows(first: int, end: int) -> Any:
    made = batch(first, end)
    values = pa.array([bytes([offset % 251]) * 1000 for offset in range(first, end)], pa.binary())
    return made.set_column(made.schema.get_field_index("value"), "value", values)


def test_open_files_and_buffers_are_bounded(tmp_path: Path) -> None:
    writer = opened(tmp_path, partition_by=("date",), row_group_bytes=1 << 16)
    for first in range(0, 200, 50):
        writer.write(rows(first, first + 50))
    assert len({file.values for file in writer.files}) >= 200 - MOST_OPEN
    files = writer.close()
    assert sum(file.rows for file in files) == 200


def test_what_a_failed_task_wrote_is_deleted(tmp_path: Path) -> None:
    writer = opened(tmp_path, partition_by=("date",), row_group_bytes=1 << 16)
    for first in range(0, 200, 50):
        writer.write(rows(first, first + 50))
    assert list(tmp_path.rglob("*.parquet"))
    writer.discard()
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("compression", ["zstd", "zstd:1", "snappy", "lz4", "gzip:9", "none"])
def test_codecs_are_those_of_the_option(tmp_path: Path, compression: str) -> None:
    [file] = written(tmp_path, [batch(0, 3)], compression=compression)
    codec = parquet.ParquetFile(tmp_path / file.name).metadata.row_group(0).column(0).compression
    assert codec == {"none": "UNCOMPRESSED"}.get(compression, compression.split(":", maxsplit=1)[0].upper())


def test_statistics_are_those_of_all_row_groups(tmp_path: Path) -> None:
    shifted = batch(2000, 4000)
    times = pa.array([1001] * 2000, pa.timestamp("us", tz="UTC"))
    shifted = shifted.set_column(4, SCHEMA.field("timestamp"), times)
    [file] = written(tmp_path, [batch(0, 2000), shifted], row_group_bytes=1 << 16)
    assert parquet.ParquetFile(tmp_path / file.name).metadata.num_row_groups > 1
    found = json.loads(json.dumps(file.statistics))
    assert found["numRecords"] == 4000
    assert (found["minValues"]["offset"], found["maxValues"]["offset"]) == (0, 3999)
    assert found["minValues"]["timestamp"] == "1970-01-01T00:00:00.000Z"
    assert found["maxValues"]["timestamp"] == "1975-06-23T00:00:00.000Z"
    assert found["nullCount"]["stream"] == 0
    assert not {"key", "value"} & (found["minValues"].keys() | found["nullCount"].keys())


def test_the_greatest_time_is_rounded_up_to_milliseconds(tmp_path: Path) -> None:
    late = batch(0, 1).set_column(4, SCHEMA.field("timestamp"), pa.array([DAY_US + 1], SCHEMA.field("timestamp").type))
    [file] = written(tmp_path, [late])
    assert file.statistics["minValues"]["timestamp"] == "1970-01-02T00:00:00.000Z"
    assert file.statistics["maxValues"]["timestamp"] == "1970-01-02T00:00:00.001Z"


@pytest.mark.parametrize(
    ("unit", "zone", "value", "bounds"),
    [
        ("ms", "UTC", 1, ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.001Z")),
        ("us", None, -1, ("1969-12-31T23:59:59.999", "1970-01-01T00:00:00.000")),
        ("ns", "UTC", 1_000_001, ("1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z")),
        ("us", "UTC", -62_135_596_800_000_000, ("0001-01-01T00:00:00.000Z", "0001-01-01T00:00:00.000Z")),
        ("us", "UTC", 2**62, (None, None)),
    ],
)
def test_times_of_each_unit_have_bounds_unless_no_date_is_that_far(
    tmp_path: Path, unit: str, zone: str | None, value: int, bounds: tuple[str | None, str | None]
) -> None:
    schema = pa.schema([("at", pa.timestamp(unit, tz=zone))])
    parquet.write_table(pa.table({"at": pa.array([value], schema.field(0).type)}), tmp_path / "t.parquet")
    found = file_statistics(parquet.ParquetFile(tmp_path / "t.parquet").metadata, schema)
    assert (found["minValues"].get("at"), found["maxValues"].get("at")) == bounds
    assert found["nullCount"] == {"at": 0}
