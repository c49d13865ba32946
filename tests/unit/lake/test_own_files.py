"""Documents of a table that are missing or damaged end what needs them, and the sentence says what to do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from bascule.errors import CorruptionError
from bascule.lake.commit_record import LAST, TABLE, record_name

from tests.unit.lake.query import Query, batch, expected, options_of


@pytest.fixture
def query(tmp_path: Path) -> Query:
    """A Parquet table with three epochs."""
    made = Query(options_of("parquet", tmp_path))
    for number in range(3):
        made.epoch(number, [batch(3 * number, 3 * number + 3)])
    return made


def test_no_epoch_is_committed_behind_a_missing_record(query: Query, tmp_path: Path) -> None:
    newest = tmp_path / "table" / record_name(2)
    content = newest.read_bytes()
    newest.unlink()
    for other in (query, Query(query.options, "other")):
        with pytest.raises(CorruptionError, match=rf"{record_name(2)} is missing, and .* up to 2: restore it from a"):
            other.epoch(3 if other is query else 0, [batch(9, 12)])
    newest.write_bytes(content)
    assert query.epoch(3, [batch(9, 12)])
    assert query.rows() == expected((0, 0, 12))


@pytest.mark.parametrize("last", [True, False], ids=["last.json", "no last.json"])
def test_a_table_without_its_first_records_is_not_taken_for_a_new_one(
    query: Query, tmp_path: Path, *, last: bool
) -> None:
    for number in range(3) if last else range(1):
        (tmp_path / "table" / record_name(number)).unlink()
    if not last:
        (tmp_path / "table" / LAST).unlink()
    before = sorted(tmp_path.rglob("*.json"))
    with pytest.raises(CorruptionError, match=rf"{record_name(2 if last else 0)} is missing"):
        Query(query.options, "other").epoch(0, [batch(9, 12)])
    assert sorted(tmp_path.rglob("*.json")) == before


def test_a_missing_record_hides_no_file_from_an_erasure(query: Query, tmp_path: Path) -> None:
    (tmp_path / "table" / record_name(1)).unlink()
    with pytest.raises(CorruptionError, match=f"{record_name(1)} is missing"):
        bascule.lake.erase(query.options, stream="s", key=b"key-1")


def test_last_json_may_be_deleted(query: Query, tmp_path: Path) -> None:
    (tmp_path / "table" / LAST).unlink()
    assert query.epoch(3, [batch(9, 12)])
    assert query.rows() == expected((0, 0, 12))


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[]", b'{"version": "x"}', b'{"format": 1}', b"\xff\xfe"])
@pytest.mark.parametrize(
    ("file", "remedy"),
    [(LAST, "delete it"), (TABLE, "restore it from a backup"), (record_name(2), "restore it from a backup")],
)
def test_a_damaged_document_is_named(query: Query, tmp_path: Path, file: str, remedy: str, content: bytes) -> None:
    path = tmp_path / "table" / file
    whole = path.read_bytes()
    path.write_bytes(content)
    with pytest.raises(CorruptionError, match=rf"{file} is not valid: .*; {remedy}") as refusal:
        query.epoch(3, [batch(9, 12)])
    assert refusal.value.details["file"] == file
    path.write_bytes(whole)
    assert query.epoch(3, [batch(9, 12)])


def test_a_damaged_table_json_ends_an_erasure_and_a_replay(query: Query, tmp_path: Path) -> None:
    (tmp_path / "table" / TABLE).write_bytes(b'{"format": 1}')
    readers: tuple[Callable[[], object], ...] = (
        lambda: bascule.lake.erase(query.options, stream="s", key=b"key-1"),
        query.table.opened,
    )
    for reads in readers:
        with pytest.raises(CorruptionError, match=f"{TABLE} is not valid: it has no columns"):
            reads()


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_damaged_property_of_an_iceberg_table_is_named(tmp_path: Path, content: str) -> None:
    query = Query(options_of("iceberg", tmp_path))
    query.epoch(0, [batch(0, 3)])
    target: Any = query.table
    with target.open().transaction() as transaction:
        transaction.set_properties({"bascule.holds": content})
    with pytest.raises(CorruptionError, match=r"the table property bascule\.holds is not valid"):
        query.table.pinned([])
