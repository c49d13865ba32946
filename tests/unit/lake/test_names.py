"""A stream of any name is found again in its table, also with characters that JSON escapes as two surrogates."""

from dataclasses import replace
from pathlib import Path

import bascule.lake
import pytest
from bascule.lake.archived import Wanted, read_archived
from bascule.lake.options import TableFormat
from bascule.lake.ranges import Source
from bascule.spark.replaying.archives import ArchiveReader, opened
from bascule.spark.replaying.lanes import Part

from tests.unit.lake.query import Query, batch, options_of, read

NAMES = ("\U00020bb7野家", "z\U0010ffff", "orders-\U0001f600", "größe", 'a"b\\c')


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@pytest.mark.parametrize("name", NAMES)
def test_the_records_of_a_stream_of_any_name_are_read_and_erased(
    tmp_path: Path, name: str, table_format: TableFormat
) -> None:
    query = Query(replace(options_of(table_format, tmp_path), complete=True))
    query.epoch(0, [batch(0, 6, stream=name)])
    source = Source(name, 1, 0)
    version = query.table.pinned([source])
    wanted = Wanted(source, 0, 6)
    files = version.files_of(wanted)
    assert version.covered[source].end == 6
    assert version.incarnations(name) == {1}
    assert sum(each.num_rows for each, _ in read_archived(query.table.storage, files, wanted, ("offset",))) == 6
    replay = ArchiveReader(query.options, "", opened(query.options, "").files, ("offset", "value"))
    assert sum(each.num_rows for each in replay.read(Part(source, 0, 6))) == 6
    assert bascule.lake.erase(query.options, stream=name, key=b"key-1").rows == 2
    assert b"key-1" not in read(query.options)["key"].to_pylist()
