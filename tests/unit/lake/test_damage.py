"""One changed byte of an archived value is noticed when it is read."""

from dataclasses import replace
from pathlib import Path

import bascule.lake
import pytest
from bascule.errors import CorruptionError, StateError
from bascule.lake.archived import Wanted, read_archived
from bascule.lake.options import TableFormat
from bascule.lake.ranges import Source

from tests.unit.lake.query import Query, batch, data_files, options_of, pa


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_changed_byte_of_a_value_is_not_read_as_another_value(
    tmp_path: Path, table_format: TableFormat, compression: str
) -> None:
    query = Query(replace(options_of(table_format, tmp_path), compression=compression))
    query.epoch(0, [batch(0, 100)])
    (path,) = data_files(tmp_path)
    source = Source("s", 1, 0)
    wanted = Wanted(source, 0, 100)
    files = query.table.pinned([source]).files_of(wanted)
    whole = [offset for _, offset in read_archived(query.table.storage, files, wanted, ("value",))]
    assert whole == [100]
    content = path.read_bytes()
    place = content.index(b"0/5") if compression == "none" else len(content) // 4
    path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
    with pytest.raises(CorruptionError, match=f"{path.name} cannot be read") as refusal:
        list(read_archived(query.table.storage, files, wanted, ("value",)))
    assert refusal.value.details["file"].endswith(path.name)


@pytest.mark.parametrize("table_format", ["delta", "iceberg", "parquet"])
@pytest.mark.parametrize("content", [b"key-1", b"0/5"], ids=["a key", "a value of another record"])
def test_an_erasure_neither_misses_a_damaged_key_nor_gives_a_damaged_value_a_new_checksum(
    tmp_path: Path, table_format: TableFormat, content: bytes
) -> None:
    query = Query(replace(options_of(table_format, tmp_path), compression="none"))
    query.epoch(0, [batch(0, 9)])
    (path,) = data_files(tmp_path)
    whole = path.read_bytes()
    place = whole.index(content)
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    with pytest.raises(CorruptionError, match=r"cannot be read: .* its records cannot be searched"):
        bascule.lake.erase(query.options, stream="s", key=b"key-1")
    path.write_bytes(whole)
    assert bascule.lake.erase(query.options, stream="s", key=b"key-1").rows == 3


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_compaction_gives_a_damaged_value_no_new_checksum(tmp_path: Path, table_format: TableFormat) -> None:
    query = Query(replace(options_of(table_format, tmp_path), compression="none"))
    for number in range(3):
        query.epoch(number, [batch(number * 9, number * 9 + 9)])
    path = next(path for path in data_files(tmp_path) if b"0/12" in path.read_bytes())
    whole = path.read_bytes()
    place = whole.index(b"0/12")
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    before = data_files(tmp_path)
    with pytest.raises(CorruptionError, match=f"{path.name} cannot be read: .* a compaction would give its records"):
        bascule.lake.compact(query.options)
    assert data_files(tmp_path) == before
    path.write_bytes(whole)
    assert bascule.lake.compact(query.options)["numFilesRemoved"] == 3


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_column_that_older_files_lack_is_refused_by_name(tmp_path: Path, table_format: TableFormat) -> None:
    query = Query(options_of(table_format, tmp_path))
    query.epoch(0, [batch(0, 5)])
    query.table.add_columns(pa.schema([("reply", pa.string())]))
    source = Source("s", 1, 0)
    wanted, table = Wanted(source, 0, 5), query.table.pinned([source])
    assert "reply" in table.columns
    with pytest.raises(StateError, match="has no column reply, which was added to the table later"):
        list(read_archived(query.table.storage, table.files_of(wanted), wanted, ("value", "reply")))
