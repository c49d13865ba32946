"""A table whose rows another program wrote is refused; an empty one, and one that queries write to, is taken."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from bascule.errors import StateError
from bascule.lake.iceberg.catalog import open_catalog
from bascule.lake.options import TableFormat
from bascule.lake.tables import check_rows

from tests.unit.lake.query import SCHEMA, Query, batch, expected, options_of, pa


@pytest.fixture(params=["delta", "iceberg"])
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Query:
    table_format: TableFormat = request.param
    return Query(options_of(table_format, tmp_path))


def write(query: Query, *batches: Any) -> None:
    """What another program appends, which creates the table if it is missing."""
    rows = pa.Table.from_batches(batches, schema=SCHEMA)
    if query.options.table_format == "delta":
        import_module("deltalake").write_deltalake(query.options.path, rows, mode="append")
        return
    catalog = open_catalog(query.options)
    catalog.create_namespace_if_not_exists("lake")
    catalog.create_table_if_not_exists(query.options.path, SCHEMA).append(rows)


def test_rows_that_another_program_wrote_are_refused(query: Query) -> None:
    write(query, batch(0, 3))
    with pytest.raises(StateError, match="has rows that Bascule did not write"):
        check_rows(query.table, query.shape, query.options)
    with pytest.raises(StateError, match="has rows that Bascule did not write") as raised:
        query.epoch(0, [batch(0, 3)])
    assert raised.value.code == "sink_conflict"
    assert query.rows() == expected((0, 0, 3))


def test_the_way_that_the_error_names_keeps_all_rows_once(query: Query) -> None:
    """The query begins after the other program's rows, which are copied to its table afterwards."""
    query.epoch(0, [batch(3, 5)])
    write(query, batch(0, 3))
    check_rows(query.table, query.shape, query.options)
    assert query.epoch(1, [batch(5, 6)])
    assert Query(query.options, "other").epoch(0, [batch(0, 2, 1)])
    assert query.rows() == expected((0, 0, 6), (1, 0, 2))


def test_an_empty_table_of_another_program_is_taken(query: Query) -> None:
    write(query)
    check_rows(query.table, query.shape, query.options)
    assert query.epoch(0, [batch(0, 3)])
    check_rows(query.table, query.shape, query.options)
    assert query.epoch(1, [batch(3, 5)])
    assert query.rows() == expected((0, 0, 5))


def test_rows_without_offsets_may_join_those_of_another_program(query: Query) -> None:
    write(query, batch(0, 3))
    results = Query(query.options, has_offsets=False)
    check_rows(results.table, results.shape, results.options)
    assert results.epoch(0, [batch(3, 4)])


def test_a_table_that_was_compacted_and_expired_is_still_known(query: Query) -> None:
    for number in range(3):
        query.epoch(number, [batch(number, number + 1)])
    query.table.compact()
    if query.options.table_format == "delta":
        table = import_module("deltalake").DeltaTable(query.options.path)
        table.create_checkpoint()
    other = Query(query.options, "other")
    check_rows(other.table, other.shape, other.options)
    assert other.epoch(0, [batch(0, 2, 1)])
