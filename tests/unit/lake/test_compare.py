"""Tables that cannot take rows are refused before a query begins, and nothing is created."""

from dataclasses import replace
from pathlib import Path

import pytest
from bascule.errors import StateError
from bascule.lake.options import ArchiveOptions, TableFormat
from bascule.lake.tables import open_table

from tests.unit.lake.query import SCHEMA, Query, batch, options_of
from tests.unit.lake.test_merging import Merged

FORMATS: tuple[TableFormat, ...] = ("delta", "parquet", "iceberg")


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_table_that_is_missing_stays_missing(tmp_path: Path, table_format: TableFormat) -> None:
    options = options_of(table_format, tmp_path)
    open_table(options, "").compare(SCHEMA)
    assert not open_table(options, "").exists()
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize("table_format", FORMATS)
def test_other_columns_and_partitions_are_refused(tmp_path: Path, table_format: TableFormat) -> None:
    query = Query(options_of(table_format, tmp_path))
    query.epoch(0, [batch(0, 3)])
    table = open_table(query.options, "")
    table.compare(SCHEMA)
    with pytest.raises(StateError, match="is another table: it has a column value"):
        table.compare(SCHEMA.remove(SCHEMA.get_field_index("value")))
    with pytest.raises(StateError, match="partitioned"):
        open_table(replace(query.options, partition_by=("partition",)), "").compare(SCHEMA)


@pytest.mark.parametrize("kind", ["latest", "history", "iceberg"])
def test_an_archive_and_a_kept_table_refuse_each_other(tmp_path: Path, kind: str) -> None:
    merged = Merged(kind, tmp_path / "merged")
    merged.epoch(0, (0, b"k", b"v"))
    archive = replace(options_of("iceberg" if kind == "iceberg" else "delta", tmp_path / "merged"))
    with pytest.raises(StateError, match="not every record; write to a new table"):
        open_table(archive, "").compare(None)
    merged.table.compare(None)
    other = Merged(kind, tmp_path / "archived")
    Query(options_of("iceberg" if kind == "iceberg" else "delta", tmp_path / "archived")).epoch(0, [batch(0, 3)])
    with pytest.raises(StateError, match="it has every record, not"):
        other.table.compare(None)


def test_a_kept_table_with_other_keys_is_refused(tmp_path: Path) -> None:
    merged = Merged("latest", tmp_path)
    merged.epoch(0, (0, b"k", b"v"))
    merged.options = replace(merged.options, keys=("key", "value"))
    merged.restart()
    with pytest.raises(StateError, match="its keys are key, and keys is key, value"):
        merged.table.compare(None)


def test_a_folder_with_a_table_of_another_format_is_refused(tmp_path: Path) -> None:
    for there in FORMATS:
        query = Query(options_of(there, tmp_path / there))
        query.epoch(0, [batch(0, 3)])
    iceberg = next((tmp_path / "iceberg").rglob("metadata")).parent
    places = {"delta": tmp_path / "delta/table", "parquet": tmp_path / "parquet/table", "iceberg": iceberg}
    for there, wanted in (("parquet", "delta"), ("iceberg", "delta"), ("delta", "parquet"), ("iceberg", "parquet")):
        options = ArchiveOptions(str(places[there]), wanted)  # pyright: ignore[reportArgumentType]
        with pytest.raises(StateError, match="is another table: the folder contains"):
            open_table(options, "").compare(SCHEMA)
