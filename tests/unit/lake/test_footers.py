"""A damaged footer of a data file is named, and neither hides rows nor is parsed."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from bascule.errors import CorruptionError
from bascule.lake import footers
from bascule.lake.archived import ArchivedFile, Wanted, read_archived
from bascule.lake.archived_times import first_at_or_after
from bascule.lake.matching import check_footer, check_pages
from bascule.lake.options import TableFormat
from bascule.lake.ranges import Source
from bascule.spark.options import parse_options
from bascule.spark.replaying.archives import ArchiveReader, FileContents, opened
from bascule.spark.replaying.lanes import Part

from tests.unit.lake.query import Query, batch, data_files, options_of, pa
from tests.unit.lake.test_merging import Merged

SOURCE = Source("s", 1, 0)
WANTED = Wanted(SOURCE, 0, 60)
FORMATS: tuple[TableFormat, ...] = ("delta", "iceberg", "parquet")


def footer_of(content: bytes) -> range:
    """Where the footer is, with its length and the magic after it."""
    return range(len(content) - 8 - int.from_bytes(content[-8:-4], "little"), len(content))


def flipped(content: bytes, place: int, bit: int = 1) -> bytes:
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def written(folder: Path, table_format: TableFormat = "delta") -> tuple[Query, Path]:
    """A table with one file of 60 records, and the file."""
    query = Query(options_of(table_format, folder))
    query.epoch(0, [batch(0, 60)])
    (path,) = data_files(folder)
    return query, path


def read_with(query: Query, files: tuple[ArchivedFile, ...]) -> int:
    """The number of records that a tiered read finds."""
    return sum(each.num_rows for each, _ in read_archived(query.table.storage, files, WANTED, ("offset", "value")))


def test_every_changed_byte_of_a_footer_is_noticed_before_it_is_parsed(tmp_path: Path) -> None:
    query, path = written(tmp_path)
    whole = path.read_bytes()
    (file,) = query.table.pinned([SOURCE]).files
    for place in footer_of(whole):
        path.write_bytes(flipped(whole, place, place % 8))
        with pytest.raises(CorruptionError, match=f"{path.name} cannot be read"):
            check_footer(query.table.storage, file)
    path.write_bytes(whole)
    assert read_with(query, (file,)) == 60


@pytest.mark.parametrize("table_format", FORMATS)
def test_each_reader_names_a_file_with_a_damaged_footer(tmp_path: Path, table_format: TableFormat) -> None:
    query, path = written(tmp_path, table_format)
    files = query.table.opened()[1].files
    whole = path.read_bytes()
    path.write_bytes(flipped(whole, footer_of(whole)[0] + 40))
    store = query.table.storage
    replay = ArchiveReader(query.options, "", opened(query.options, "").files, ("offset", "value"))
    readers: tuple[Callable[[], Any], ...] = (
        lambda: read_with(query, files),
        lambda: first_at_or_after(store, files, WANTED, 0),
        lambda: list(replay.read(Part(SOURCE, 0, 60))),
        lambda: FileContents(query.options, "")(files[0]),
        lambda: bascule.lake.erase(query.options, stream="s", key=b"key-1"),
        lambda: check_pages(store, files[0]),
    )
    for reads in readers:
        with pytest.raises(CorruptionError, match="its footer does not match its checksum") as refusal:
            reads()
        assert refusal.value.details["file"] == files[0].name
    path.write_bytes(whole)
    assert read_with(query, files) == 60


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_compaction_takes_no_damaged_footer(tmp_path: Path, table_format: TableFormat) -> None:
    query, path = written(tmp_path, table_format)
    query.epoch(1, [batch(60, 70)])
    whole = path.read_bytes()
    path.write_bytes(flipped(whole, footer_of(whole)[0] + 40))
    with pytest.raises(CorruptionError, match=f"{path.name} cannot be read: its footer does not match"):
        bascule.lake.compact(query.options)
    path.write_bytes(whole)
    assert bascule.lake.compact(query.options)["numFilesRemoved"] == 2
    assert len(query.rows()) == 70


@pytest.mark.parametrize("where", ["footer", "page"])
def test_a_merge_into_an_iceberg_table_takes_no_damaged_file(tmp_path: Path, where: str) -> None:
    merged = Merged("iceberg", tmp_path)
    merged.epoch(0, (0, b"a", b"1" * 99), (1, b"b", b"2" * 99))
    (path,) = data_files(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(flipped(whole, footer_of(whole)[0] + 40 if where == "footer" else footer_of(whole)[0] - 5))
    with pytest.raises(CorruptionError, match=f"{path.name} cannot be read.*a merge would lose its rows"):
        merged.epoch(1, (2, b"a", b"3"))
    path.write_bytes(whole)
    assert merged.epoch(1, (2, b"a", b"3"))
    assert merged.values() == {b"a": [b"3"], b"b": [b"2" * 99]}


def test_every_file_that_is_written_here_has_the_sum_and_says_so(tmp_path: Path) -> None:
    for table_format in FORMATS:
        query, _ = written(tmp_path / table_format, table_format)
        query.epoch(1, [batch(60, 70)])
        if table_format == "iceberg":
            bascule.lake.compact(query.options)
        if table_format != "delta":
            bascule.lake.erase(query.options, stream="s", key=b"key-1")
        for path in data_files(tmp_path / table_format):
            assert footers.has_checksum(path.name)
            with path.open("rb") as raw:
                metadata = footers.read_metadata(ArchivedFile(path.name, (), ()), raw)
            assert re.fullmatch(rb"[0-9a-f]{8}", metadata.metadata[footers.KEY.encode()])


@pytest.fixture
def without_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files as other writers leave them: their names say nothing about a checksum."""
    monkeypatch.setattr(footers, "_CHECKED", re.compile("(?!)"))


@pytest.mark.usefixtures("without_sums")
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_footer_without_a_checksum_is_compared_with_the_commit(tmp_path: Path, table_format: TableFormat) -> None:
    query, _ = written(tmp_path, table_format)
    (file,) = query.table.pinned([SOURCE]).files
    assert (file.rows, read_with(query, (file,))) == (60, 60)
    others = {name: (low, high) for name, low, high in file.bounds}
    changed = tuple((name, *others[name]) for name in others if name != "offset")
    refused = {
        "it has .* bytes, and the table's commit says": replace(file, bytes=file.bytes and file.bytes + 1),
        "its footer has 60 rows, and the table's commit says 61": replace(file, rows=61),
        "its footer has offset from 0 to 59, and the .* says from 0 to 58": replace(
            file, bounds=(*changed, ("offset", 0, 58))
        ),
    }
    for message, each in refused.items():
        with pytest.raises(CorruptionError, match=message):
            read_with(query, (each,))


@pytest.mark.usefixtures("without_sums")
def test_a_row_group_without_a_checksum_has_no_more_rows_than_offsets(tmp_path: Path) -> None:
    """A bound between those of the file is not noticed by the bounds of the file."""
    query = Query(replace(options_of("delta", tmp_path), row_group_bytes=1 << 16, compression="none"))
    first, middle, end = 1 << 40, (1 << 40) + 100, (1 << 40) + 200
    query.epoch(0, [_large(first, middle), _large(middle, end)])
    (path,) = data_files(tmp_path)
    (file,) = query.table.pinned([SOURCE]).files
    wanted = Wanted(SOURCE, middle, middle + 5)
    whole = path.read_bytes()
    begin = footer_of(whole)[0]
    bound = middle.to_bytes(8, "little")
    assert bound in whole[begin:]
    store = query.table.storage
    assert sum(each.num_rows for each, _ in read_archived(store, (file,), wanted, ("offset",))) == 5
    path.write_bytes(whole[:begin] + whole[begin:].replace(bound, (middle + 64).to_bytes(8, "little")))
    with pytest.raises(CorruptionError, match=f"its footer has 100 rows from offset {middle + 64} to {end - 1}"):
        list(read_archived(store, (file,), wanted, ("offset",)))


def _large(first: int, end: int) -> Any:
    made = batch(0, end - first)
    offsets, values = pa.array(range(first, end), pa.int64()), pa.array([b"x" * 1000] * (end - first), pa.binary())
    names = made.schema.names
    return made.set_column(names.index("offset"), "offset", offsets).set_column(names.index("value"), "value", values)


def test_a_footer_that_is_larger_than_the_first_read_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footers, "_FIRST_READ", 100)
    query, path = written(tmp_path)
    assert read_with(query, query.table.pinned([SOURCE]).files) == 60
    for content, message in (
        (b"", "does not end as a Parquet file"),
        (b"PAR1" + b"\xff" * 4 + b"PAR1", "does not fit"),
        (path.read_bytes()[:-1], "does not end as a Parquet file"),
    ):
        path.write_bytes(content)
        with pytest.raises(CorruptionError, match=message):
            read_with(query, query.table.pinned([SOURCE]).files)


def test_spark_reads_no_file_of_a_scan_with_a_damaged_footer(tmp_path: Path) -> None:
    from bascule.spark.native_archive import is_intact  # noqa: PLC0415 - Spark is not needed for this

    query, path = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(flipped(whole, footer_of(whole)[0] + 40))
    (file,) = query.table.pinned([SOURCE]).files
    options = parse_options({"stream": "s", "address": "127.0.0.1:9292"})
    assert not is_intact(query.table.storage, file, replace(options, on_data_loss="skip"))  # type: ignore[arg-type]
    with pytest.raises(CorruptionError, match="its footer does not match its checksum; restore it, or set onDataLoss"):
        is_intact(query.table.storage, file, options)  # type: ignore[arg-type]
