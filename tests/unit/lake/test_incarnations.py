"""The incarnations of a stream that a table shows without its rows: recorded ones, and those of files' statistics."""

from pathlib import Path

import pytest
from bascule.errors import CorruptionError
from bascule.lake.archived import Pinned
from bascule.lake.iceberg.state import sources_of
from bascule.lake.options import TableFormat
from bascule.lake.ranges import Source

from tests.unit.lake.query import Query, batch, options_of


def pinned(table_format: TableFormat, folder: Path, *partition_by: str) -> Pinned:
    """A table with two incarnations of two partitions of `s`, and a file that also has rows of `t`."""
    query = Query(options_of(table_format, folder, *partition_by))
    query.epoch(0, [batch(0, 3, incarnation=1)], [batch(0, 3, 1, incarnation=2)])
    query.epoch(1, [batch(0, 3, incarnation=5), batch(0, 3, 1, incarnation=6)])
    query.epoch(2, [batch(0, 3, incarnation=8), batch(0, 3, stream="t", incarnation=3)])
    return query.table.pinned([])


def test_a_delta_table_shows_those_of_files_with_rows_of_one_stream(tmp_path: Path) -> None:
    table = pinned("delta", tmp_path)
    assert table.sources == frozenset()
    assert table.incarnations("s") == {1, 2, 5, 6}
    assert table.incarnations("s", [0]) == {1}
    assert table.incarnations("t") == table.incarnations("s", []) == frozenset()


def test_a_delta_table_that_is_partitioned_by_stream_shows_all(tmp_path: Path) -> None:
    table = pinned("delta", tmp_path, "stream")
    assert table.incarnations("s") == {1, 2, 5, 6, 8}
    assert table.incarnations("t") == {3}


@pytest.mark.parametrize("partition_by", [(), ("stream",)])
def test_an_iceberg_table_records_all(tmp_path: Path, partition_by: tuple[str, ...]) -> None:
    table = pinned("iceberg", tmp_path, *partition_by)
    assert table.incarnations("s") == {1, 2, 5, 6, 8}
    assert table.incarnations("s", [1]) == {2, 6}
    assert table.incarnations("t") == {3}


def test_a_recorded_source_is_read_from_the_name_of_its_property() -> None:
    assert sources_of({"bascule.covered.a/b/7/2": "", "bascule.target.x": "", "owner": ""}) == {Source("a/b", 7, 2)}
    with pytest.raises(CorruptionError, match=r"property bascule\.covered\.s/1 must end with /incarnation/partition"):
        sources_of({"bascule.covered.s/1": "[0, 1, 2]"})
