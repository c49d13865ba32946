"""A driver that dies at any step of a commit leaves a table that the next run completes, exactly."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from bascule.errors import StateError, UsageError
from bascule.failpoints import VARIABLE, Name
from bascule.lake.commit import commit_epoch
from bascule.lake.delta import DeltaTarget
from bascule.lake.epochs import Append, decide
from bascule.lake.layout import table_name, table_path
from bascule.lake.options import FORMATS, ArchiveOptions, TableFormat
from bascule.lake.tables import open_table
from bascule.lake.tasks import write_rows

from tests.failpoints import ARCHIVE
from tests.unit.lake.query import SCHEMA, Query, batch, data_files, expected, options_of, pa, read

FOLDERS: tuple[TableFormat, ...] = ("delta", "parquet")


@pytest.fixture(params=FORMATS)
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Query:
    return Query(options_of(request.param, tmp_path, "date"))


@pytest.fixture
def points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "points"
    folder.mkdir()
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def test_epochs_are_appended_in_turn(query: Query) -> None:
    assert query.epoch(0, [batch(0, 3)], [batch(0, 2, 1)])
    assert query.epoch(1, [batch(3, 5)])
    assert query.rows() == expected((0, 0, 5), (1, 0, 2))


@pytest.mark.parametrize("point", ARCHIVE)
def test_a_run_that_dies_at_any_step_is_continued(query: Query, points: Path, point: Name) -> None:
    if point == "archive.between_moves" and query.options.table_format != "parquet":
        pytest.skip("only files of Parquet tables are moved")
    query.epoch(0, [batch(0, 3)])
    (points / point).write_text("fail")
    with pytest.raises(OSError, match=point):
        query.epoch(1, [batch(3, 5)], [batch(0, 2, 1)])
    seen = query.rows()
    query.restart()
    if point in ("archive.files_written", "archive.before_commit"):
        assert seen == expected((0, 0, 3)), "no row of an epoch that is not decided"
    query.epoch(1, [batch(3, 5), batch(0, 2, 1)])
    assert query.rows() == expected((0, 0, 5), (1, 0, 2))
    query.epoch(2, [batch(5, 6)])
    assert query.rows() == expected((0, 0, 6), (1, 0, 2))


@pytest.mark.parametrize("point", ["archive.before_commit", "archive.after_commit", "archive.before_answer"])
def test_a_run_that_dies_in_its_first_epoch_is_continued(query: Query, points: Path, point: Name) -> None:
    (points / point).write_text("fail")
    with pytest.raises(OSError, match=point):
        query.epoch(0, [batch(0, 3)])
    query.restart()
    query.epoch(0, [batch(0, 3)])
    assert query.rows() == expected((0, 0, 3))


def test_of_two_attempts_that_both_commit_one_is_in_the_table(query: Query) -> None:
    query.epoch(0, [batch(0, 3)])
    zombie = query.write([[batch(3, 5)]])
    earlier = query.run_id
    query.restart()
    assert query.epoch(1, [batch(3, 5)])
    query.run_id = earlier
    assert not query.commit(1, *zombie)
    assert query.rows() == expected((0, 0, 5))


def test_a_commit_whose_answer_was_lost_is_recognised(query: Query) -> None:
    attempt = query.write([[batch(0, 3)]])
    assert query.commit(0, *attempt)
    assert query.commit(0, *attempt)
    assert query.rows() == expected((0, 0, 3))


def test_files_of_a_repetition_are_deleted(query: Query, tmp_path: Path) -> None:
    query.epoch(0, [batch(0, 3)])
    before = data_files(tmp_path)
    query.restart()
    assert not query.epoch(0, [batch(0, 3)])
    assert data_files(tmp_path) == before


def test_a_new_checkpoint_is_refused_with_where_to_continue(query: Query) -> None:
    query.epoch(0, [batch(0, 3), batch(0, 2, 1)])
    other = Query(query.options, "new")
    with pytest.raises(StateError, match="has a new checkpoint") as refused:
        other.epoch(0, [batch(0, 3), batch(0, 2, 1)])
    assert 'startingOffsets {"s": {"0": 3, "1": 2}}' in str(refused.value)
    assert query.rows() == expected((0, 0, 3), (1, 0, 2))
    assert other.epoch(0, [batch(3, 4)]), "and with the remedy it continues"


def test_a_query_that_gives_records_late_is_not_refused(query: Query) -> None:
    """As a join with a watermark does. An archive of whole streams never does."""
    query.epoch(0, [batch(2, 5)])
    assert query.epoch(1, [batch(0, 2)])
    assert query.rows() == expected((0, 0, 5))
    whole = Query(replace(query.options, complete=True))
    with pytest.raises(StateError, match="its earlier epochs have them"):
        whole.epoch(2, [batch(1, 2)])


def test_an_older_checkpoint_is_refused(query: Query) -> None:
    query.epoch(0, [batch(0, 3)])
    query.epoch(1, [batch(3, 5)])
    query.restart()
    with pytest.raises(StateError, match="an older copy of the checkpoint was restored"):
        query.epoch(0, [batch(0, 4)])
    with pytest.raises(StateError, match="that the table lacks") as refused:
        query.epoch(1, [batch(3, 9)])
    assert 'startingOffsets {"s": {"0": 5}}' in str(refused.value)
    assert 'The epoch begins at {"s": {"0": 3}}: this table may lack' in str(refused.value)
    assert query.rows() == expected((0, 0, 5))


def test_a_copy_of_a_checkpoint_is_refused_although_it_has_the_same_rows(query: Query) -> None:
    """It has planned the epoch at another time; a restart has the same plan."""
    query.offsets_hash = "a" * 64
    query.epoch(0, [batch(0, 3)])
    query.restart()
    assert not query.epoch(0, [batch(0, 3)])
    copied = Query(query.options)
    copied.offsets_hash = "b" * 64
    with pytest.raises(
        StateError, match="planned the epoch at another time: it is a copy of the checkpoint"
    ) as refused:
        copied.epoch(0, [batch(0, 3)])
    assert refused.value.code == "sink_replay_differs"
    copied.offsets_hash = ""
    assert not copied.epoch(0, [batch(0, 3)]), "a checkpoint that cannot be read is compared by its rows alone"
    assert query.rows() == expected((0, 0, 3))


def test_two_writes_of_one_epoch_need_two_names(query: Query) -> None:
    query.epoch(0, [batch(0, 3)])
    with pytest.raises(StateError, match="a name of its own with the option target"):
        query.epoch(0, [batch(0, 3, 1)])
    named = replace(query.options, target="other")
    second = Query(named)
    second.run_id = query.run_id
    assert second.epoch(0, [batch(0, 3, 1)])
    assert query.rows() == expected((0, 0, 3), (1, 0, 3))


def test_two_queries_write_different_streams_to_one_table(query: Query) -> None:
    other = Query(query.options, "other")
    attempts = query.write([[batch(0, 3)]]), other.write([[batch(0, 2, 7)]])
    assert query.commit(0, *attempts[0])
    assert other.commit(0, *attempts[1])
    query.restart()
    assert not query.epoch(0, [batch(0, 3)])
    assert other.epoch(1, [batch(2, 4, 7)])
    assert query.rows() == expected((0, 0, 3), (7, 0, 4))


def test_two_queries_of_one_stream_are_not_both_in_the_table(query: Query) -> None:
    other = Query(query.options, "other")
    attempts = query.write([[batch(0, 3)]]), other.write([[batch(0, 3)]])
    assert other.commit(0, *attempts[1])
    with pytest.raises(StateError, match="another query archives the same stream"):
        query.commit(0, *attempts[0])
    assert query.rows() == expected((0, 0, 3))


def test_a_table_that_another_query_creates_and_fills_meanwhile_is_its_own(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, table = Query(query.options, "other"), query.table
    create = getattr(table, "_create")  # noqa: B009 - no other door between the look and the creation

    def create_late(schema: Any) -> None:
        assert other.epoch(0, [batch(0, 3)])
        create(schema)

    monkeypatch.setattr(table, "_create", create_late)
    table.prepare(query.shape.table)
    assert query.rows() == expected((0, 0, 3))
    with pytest.raises(StateError, match="another query archives the same stream"):
        query.epoch(0, [batch(0, 3)])


@pytest.mark.parametrize("overtaken_by", ["q", "other"])
def test_a_commit_on_a_snapshot_that_was_overtaken_is_refused(query: Query, overtaken_by: str) -> None:
    """By the table itself, so that a paused driver cannot repeat an epoch, and no second query its records."""
    other = Query(query.options, overtaken_by)
    token, parts = query.write([[batch(0, 3)]])
    epoch = query.described(0, token, parts)
    table = query.table
    table.prepare(query.shape.table)
    state, handle = table.snapshot(epoch)
    decision = decide("table", state, epoch)
    assert isinstance(decision, Append)
    assert other.epoch(0, [batch(0, 3)])
    assert not table.append(handle, decision, epoch, parts[0].files)
    assert query.rows() == expected((0, 0, 3))


def test_a_stream_that_was_created_again_is_another_one(query: Query) -> None:
    query.epoch(0, [batch(0, 3)])
    assert query.epoch(1, [batch(0, 2, incarnation=9)])
    assert query.rows() == sorted(expected((0, 0, 3)) + expected((0, 0, 2)))


def test_files_that_disappear_before_the_commit_fail_the_epoch(query: Query, tmp_path: Path) -> None:
    query.epoch(0, [batch(0, 3)])
    token, parts = query.write([[batch(3, 5)]])
    data_files(tmp_path, parts[0].files[0].staged)[0].unlink()
    with pytest.raises(StateError, match="is missing: something deletes files"):
        query.commit(1, token, parts)
    query.restart()
    assert query.epoch(1, [batch(3, 5)])
    assert query.rows() == expected((0, 0, 5))


def test_another_schema_or_partitioning_is_refused_by_name(query: Query) -> None:
    query.epoch(0, [batch(0, 3)])
    is_iceberg = query.options.table_format == "iceberg"
    by_day = r"it is partitioned by day\(timestamp\)"
    unpartitioned = Query(replace(query.options, partition_by=()))
    with pytest.raises(StateError, match=by_day if is_iceberg else "it has a column date, which the rows lack"):
        unpartitioned.epoch(1, [batch(3, 4)])
    by_partition = Query(replace(query.options, partition_by=("date", "partition")))
    with pytest.raises(StateError, match=by_day if is_iceberg else "it is partitioned by date"):
        by_partition.epoch(1, [batch(3, 4)])


def test_a_delta_table_that_forgets_epochs_is_refused(tmp_path: Path) -> None:
    query = Query(ArchiveOptions(str(tmp_path / "table")))
    query.epoch(0, [batch(0, 3)])
    table = query.table
    assert isinstance(table, DeltaTarget)
    table.open().alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 day"})
    with pytest.raises(StateError, match="setTransactionRetentionDuration"):
        query.epoch(1, [batch(3, 4)])


def test_formats_do_not_mix_in_one_folder(tmp_path: Path) -> None:
    for number, (one, two) in enumerate([FOLDERS, FOLDERS[::-1]]):
        path = str(tmp_path / str(number))
        Query(ArchiveOptions(path, one)).epoch(0, [batch(0, 3)])
        with pytest.raises(StateError, match="is another table"):
            Query(ArchiveOptions(path, two)).epoch(0, [batch(0, 3)])


def test_other_columns_are_refused_with_what_a_job_can_do(query: Query) -> None:
    """A folder of Parquet files has no schema to change."""
    query.epoch(0, [batch(0, 3)])
    rows = SCHEMA.append(pa.field("extra", pa.int64()))
    with pytest.raises(StateError, match="it has no column extra") as refused:
        query.table.prepare(rows)
    assert ("onSchemaChange: evolve" in str(refused.value)) is (query.options.table_format != "parquet")


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_stream_of_any_name_has_a_table(tmp_path: Path, table_format: TableFormat) -> None:
    options = options_of(table_format, tmp_path)
    query = Query(replace(options, path="lake.{stream}" if table_format == "iceberg" else f"{tmp_path}/{{stream}}"))
    streams = ("größe/日本", "__groups", "a b", "%5Fx", "~5Fx", "_x", "'")
    for stream in streams:
        rows = batch(0, 3, stream=stream)
        parts = write_rows([rows], query.options, query.shape, (uuid4().hex, "0"))
        epoch = query.described(0, uuid4().hex, list(parts.values()))
        assert commit_epoch(open_table(query.options, stream), query.shape.table, epoch, list(parts[stream].files))
    for stream in streams:
        place = table_path(query.options.path, stream) if table_format != "iceberg" else f"lake.{table_name(stream)}"
        assert set(read(replace(query.options, path=place))["stream"].to_pylist()) == {stream}


def test_a_folder_that_deltalake_does_not_find_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not find a table in a folder with %20 in its name"):
        ArchiveOptions(f"{tmp_path}/my%20lake")
    assert ArchiveOptions(f"{tmp_path}/100%").path.endswith("100%")
    assert ArchiveOptions(f"{tmp_path}/my%20lake", "parquet").table_format == "parquet"
