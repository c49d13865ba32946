"""A table that lacks epochs which its checkpoint has written is refused; one without any rows so far is not."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from bascule.errors import CorruptionError, StateError
from bascule.failpoints import VARIABLE
from bascule.lake.epochs import Noted, Writer
from bascule.lake.iceberg.catalog import open_catalog
from bascule.lake.options import FORMATS
from bascule.lake.progress import FOLDER, Progress, check_continues, progress_of

from tests.unit.lake.query import Query, batch, expected, options_of
from tests.unit.lake.test_merging import Merged

W = Writer("q", "archive")


@pytest.fixture(params=FORMATS)
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Query:
    query = Query(options_of(request.param, tmp_path))
    query.checkpoint = str(tmp_path / "checkpoint")
    return query


def drop(query: Query) -> None:
    """Delete the table, as an operator does."""
    if query.options.table_format == "iceberg":
        open_catalog(query.options).drop_table(query.options.path)
    else:
        shutil.rmtree(query.options.path)


def commit(query: Query, last: int) -> None:
    """What Spark writes to the checkpoint of a query that has committed epochs up to `last`."""
    folder = Path(query.checkpoint)
    (folder / "commits").mkdir(parents=True, exist_ok=True)
    (folder / "commits" / str(last)).touch()
    (folder / "metadata").write_text(json.dumps({"id": query.query_id}))


def check(query: Query) -> None:
    check_continues(query.table, query.checkpoint, query.options.target, query.options.path)


def test_a_table_that_was_deleted_is_refused_when_the_query_starts(query: Query) -> None:
    check(query)
    query.epoch(0, [batch(0, 3)])
    commit(query, 0)
    check(query)
    drop(query)
    with pytest.raises(StateError, match="has none of this query's epochs, and the checkpoint continues with epoch 1"):
        check(query)
    assert not query.table.exists()


def test_a_table_that_was_deleted_is_refused_by_its_next_epoch(query: Query) -> None:
    """Also after epochs without rows, and again after each restart, until the operator decides otherwise."""
    query.epoch(2, [batch(0, 3)])
    query.epoch(3, [batch(3, 5)])
    drop(query)
    with pytest.raises(StateError, match="after it has written epoch 3: the table was deleted"):
        query.epoch(7, [batch(5, 6)])
    query.restart()
    with pytest.raises(StateError, match="after it has written epoch 3: the table was deleted") as raised:
        query.epoch(7, [batch(5, 6)])
    assert raised.value.code == "sink_epoch"
    assert query.options.table_format == "iceberg" or not query.table.exists()
    (note,) = (Path(query.checkpoint) / FOLDER).iterdir()
    assert f"delete {note}" in str(raised.value)
    note.unlink()
    assert query.epoch(7, [batch(5, 6)])
    assert query.rows() == expected((0, 5, 6))


def test_another_path_with_the_old_checkpoint_is_refused(query: Query) -> None:
    query.epoch(0, [batch(0, 3)])
    other = Query(replace(query.options, path=f"{query.options.path}2"))
    other.checkpoint = query.checkpoint
    with pytest.raises(StateError, match="or this is another one"):
        other.epoch(1, [batch(3, 5)])
    elsewhere = Query(other.options, "elsewhere")
    elsewhere.epoch(0, [batch(0, 5)])
    with pytest.raises(StateError, match=re.escape('new checkpoint and startingOffsets {"s": {"0": 5}}')):
        other.epoch(1, [batch(5, 6)])


def test_an_older_copy_of_the_table_is_refused(query: Query, tmp_path: Path) -> None:
    if query.options.table_format == "iceberg":
        pytest.skip("its properties survive a rollback")
    query.epoch(0, [batch(0, 3)])
    shutil.copytree(query.options.path, tmp_path / "backup")
    query.epoch(1, [batch(3, 5)])
    drop(query)
    shutil.move(tmp_path / "backup", query.options.path)
    with pytest.raises(StateError, match="an older copy of it was restored") as raised:
        query.epoch(2, [batch(5, 6)])
    assert "has epoch 0 of this query, and the checkpoint continues with epoch 2" in str(raised.value)
    assert 'startingOffsets {"s": {"0": 3}}' in str(raised.value)
    commit(query, 1)
    with pytest.raises(StateError, match="continues with epoch 2 after it has written epoch 1"):
        check(query)


def test_a_first_epoch_with_rows_may_be_late(query: Query) -> None:
    commit(query, 4)
    check(query)
    assert query.epoch(5, [batch(0, 3)])
    assert query.rows() == expected((0, 0, 3))


@pytest.mark.parametrize("point", ["archive.before_commit", "archive.after_commit"])
def test_a_crash_in_the_first_epoch_is_continued(
    query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "points"))
    (tmp_path / "points").mkdir()
    (tmp_path / "points" / point).write_text("fail")
    with pytest.raises(OSError, match=point):
        query.epoch(4, [batch(0, 3)])
    commit(query, 3)
    check(query)
    query.restart()
    query.epoch(4, [batch(0, 3)])
    query.epoch(5, [batch(3, 5)])
    assert query.rows() == expected((0, 0, 5))


@pytest.mark.parametrize("kind", ["latest", "history", "iceberg"])
def test_a_kept_table_that_was_deleted_is_refused(tmp_path: Path, kind: str) -> None:
    merged = Merged(kind, tmp_path)
    merged.checkpoint = str(tmp_path / "checkpoint")
    merged.epoch(1, (0, b"k", b"v"))
    merged.epoch(2, (1, b"k", b"w"))
    assert merged.values()[b"k"][-1] == b"w"
    other = Merged(kind, tmp_path / "other")
    other.checkpoint = merged.checkpoint
    with pytest.raises(StateError, match="has none of this query's epochs"):
        other.epoch(3, (2, b"k", b"x"))
    assert not other.table.exists()


@pytest.mark.parametrize("is_single", [True, False])
def test_tables_of_streams_and_one_table_know_each_others_epochs(tmp_path: Path, *, is_single: bool) -> None:
    def noted(stream: str, path: str, *, one_table: bool = True) -> Progress:
        found = progress_of(str(tmp_path), W, path, stream, one_table=one_table)
        assert found is not None
        return found

    first, second = ("", "/t"), ("s", "/t/{stream}")
    if not is_single:
        first, second = second, first
    noted(*first).note(3)
    found = noted(*second).before(4)
    assert found is not None
    assert found.epoch == 3
    assert noted(*second).before(3) is None, "the epoch that is repeated is not one before it"
    if not is_single:
        assert noted("t", "/t/{stream}").before(4) is None, "the table of another stream may begin later"
    assert noted("", "/t2", one_table=False).before(4) is None, "epochs within foreachBatch may write several tables"


def test_a_repeated_epoch_keeps_the_note_of_the_one_before(tmp_path: Path) -> None:
    progress = progress_of(f"file://{tmp_path}", W, "/t", one_table=True)
    assert progress is not None
    for number in (2, 5, 5):
        progress.note(number)
    found = [progress.before(number) for number in (2, 5, 6)]
    assert [each and each.epoch for each in found] == [None, 2, 5]
    assert isinstance(found[1], Noted)
    Path(found[1].file).write_text("{}")
    with pytest.raises(CorruptionError, match="does not say which epochs the query has written"):
        progress.before(6)


@pytest.mark.parametrize("checkpoint", ["", "s3://bucket/checkpoint", "hdfs://host/checkpoint"])
def test_a_checkpoint_elsewhere_notes_nothing(checkpoint: str) -> None:
    assert progress_of(checkpoint, W, "/t", one_table=True) is None


def test_a_batch_job_has_no_checkpoint(tmp_path: Path) -> None:
    assert progress_of(str(tmp_path), Writer("q", "archive", "range"), "/t", one_table=True) is None
