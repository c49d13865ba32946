"""What a commit rests on is on disk before it counts: a power cut must not keep an epoch without its rows."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import bascule.lake
import pytest
from bascule.errors import CorruptionError
from bascule.lake import delta
from bascule.lake.iceberg import target

from tests.unit.lake.query import SCHEMA, Query, batch, options_of, pa
from tests.unit.lake.test_merging import Merged

LOG = "_delta_log"


class Synced:
    """The files and folders that the process syncs, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[Path] = []
        monkeypatch.setattr(os, "fsync", lambda handle: self.paths.append(Path(f"/proc/self/fd/{handle}").readlink()))

    def check(self, table: Path, written: Callable[[], Any]) -> None:
        """Call a function that commits to a Delta table, and check that all is synced that the commits rest on."""
        before = {path.name for path in table.rglob("*") if path.is_file()}
        self.paths.clear()
        written()
        new = [path for path in table.rglob("*") if path.is_file() and path.name not in before]
        data = [path for path in new if path.suffix == ".parquet" and path.parent.name != LOG]
        entries = [path for path in new if path.parent.name == LOG]
        assert entries
        for path in [*data, *entries]:
            assert path in self.paths, path
            assert path.parent in self.paths[self.paths.index(path) :], "its place as well"
        named = [(path, table / name) for path in entries for name in _added(path)]
        assert {name for _, name in named} >= set(data)
        assert all(self.paths.index(name) < self.paths.index(path) for path, name in named), (
            "rows, then what names them"
        )


def _added(entry: Path) -> list[str]:
    """The files that an entry of the log adds."""
    if entry.suffix != ".json":
        return []
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    return [unquote(each["add"]["path"]) for each in actions if "add" in each]


def _opened(query: Query) -> Any:
    table: Any = query.table
    return table.open()


@pytest.mark.parametrize("kind", ["latest", "history"])
def test_the_rows_of_a_merge_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    synced, merged = Synced(monkeypatch), Merged(kind, tmp_path)
    merged.epoch(0, (0, b"a", b"1"), (1, b"b", b"2"))
    assert any(path.suffix == ".parquet" for path in synced.paths), "of the first merge"
    synced.check(tmp_path / "table", lambda: merged.epoch(1, (2, b"a", b"3"), (3, b"c", b"4")))


def test_an_epoch_that_a_dead_run_merged_is_synced_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, merged = Synced(monkeypatch), Merged("latest", tmp_path)
    merged.epoch(0, (0, b"a", b"1"))

    def killed_after_commit() -> None:
        merged.restart()
        monkeypatch.setattr(merged.table, "finish", lambda: None)
        assert merged.epoch(1, (1, b"a", b"2"))
        merged.restart()
        synced.paths.clear()
        assert not merged.epoch(1, (1, b"a", b"2"))

    synced.check(tmp_path / "table", killed_after_commit)


def test_a_merge_whose_rows_a_power_cut_has_lost_is_named_and_can_be_repeated(tmp_path: Path) -> None:
    merged = Merged("latest", tmp_path)
    merged.epoch(0, (0, b"a", b"1"))
    merged.epoch(1, (1, b"a", b"2"))
    entry = tmp_path / "table" / LOG / f"{2:020d}.json"
    (name,) = _added(entry)
    (tmp_path / "table" / name).write_bytes(b"")
    merged.restart()
    with pytest.raises(CorruptionError, match=rf"{name} of version 2 has 0 bytes.*delete {LOG}/0+2\.json") as refusal:
        merged.epoch(1, (1, b"a", b"2"))
    assert refusal.value.details["file"] == name
    entry.unlink()
    merged.restart()
    assert merged.epoch(1, (1, b"a", b"2"))
    assert merged.values() == {b"a": [b"2"]}


def test_the_rows_of_a_compaction_and_of_an_erasure_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, query = Synced(monkeypatch), Query(options_of("delta", tmp_path, "partition"))
    for number in range(3):
        query.epoch(number, [batch(3 * number, 3 * number + 3)], [batch(3 * number, 3 * number + 3, 1)])
    table = tmp_path / "table"
    synced.check(table, lambda: bascule.lake.compact(query.options))
    synced.check(table, lambda: bascule.lake.erase(query.options, stream="s", key=b"key-1"))


def test_a_checkpoint_of_the_log_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "CONFIGURATION", {**delta.CONFIGURATION, "delta.checkpointInterval": "2"})
    synced, query = Synced(monkeypatch), Query(options_of("delta", tmp_path))
    query.epoch(0, [batch(0, 3)])
    synced.check(tmp_path / "table", lambda: query.epoch(1, [batch(3, 6)]))
    assert any(path.name.endswith(".checkpoint.parquet") for path in synced.paths)
    assert any(path.name == "_last_checkpoint" for path in synced.paths)


def test_a_missing_file_of_an_older_version_that_was_compacted_stops_nothing(tmp_path: Path) -> None:
    query = Query(options_of("delta", tmp_path))
    for number in range(3):
        query.epoch(number, [batch(3 * number, 3 * number + 3)])
        bascule.lake.compact(query.options)
    kept = {Path(uri).name for uri in _opened(query).file_uris()}
    for path in (tmp_path / "table").glob("*.parquet"):
        if path.name not in kept:
            path.unlink()
    assert query.epoch(3, [batch(9, 12)])


@pytest.fixture
def iceberg(tmp_path: Path) -> Query:
    return Query(options_of("iceberg", tmp_path))


def check_metadata(synced: Synced, query: Query, changed: Callable[[], Any]) -> None:
    """Call a function that commits, and check that what the catalog and the snapshot name then is synced."""
    synced.paths.clear()
    changed()
    table = _opened(query)
    snapshot = table.current_snapshot()
    own = [each for each in snapshot.manifests(table.io) if each.added_snapshot_id == snapshot.snapshot_id]
    for name in (*(each.manifest_path for each in own), snapshot.manifest_list, table.metadata_location):
        path = Path(name.removeprefix("file://"))
        assert path in synced.paths, path
        assert path.parent in synced.paths[synced.paths.index(path) :], "its place as well"


def test_the_metadata_of_an_iceberg_table_is_synced_by_each_commit(
    iceberg: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = Synced(monkeypatch)
    iceberg.table.prepare(SCHEMA)
    created = Path(_opened(iceberg).metadata_location.removeprefix("file://"))
    assert {created, created.parent, created.parent.parent.parent} <= set(synced.paths)
    for number in range(3):
        check_metadata(
            synced, iceberg, lambda number=number: iceberg.epoch(number, [batch(3 * number, 3 * number + 3)])
        )
    check_metadata(synced, iceberg, lambda: bascule.lake.compact(iceberg.options))
    check_metadata(synced, iceberg, lambda: bascule.lake.erase(iceberg.options, stream="s", key=b"key-1"))
    check_metadata(synced, iceberg, lambda: bascule.lake.expire(iceberg.options, retention_hours=0))
    check_metadata(synced, iceberg, lambda: iceberg.table.add_columns(pa.schema([("reply", pa.string())])))


def test_an_epoch_that_a_dead_run_committed_to_an_iceberg_table_is_synced_by_the_next_run(
    iceberg: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.epoch(0, [batch(0, 3)])
    with monkeypatch.context() as dying:
        dying.setattr(target, "sync_version", lambda _table: None)
        iceberg.epoch(1, [batch(3, 6)])
    iceberg.restart()
    check_metadata(Synced(monkeypatch), iceberg, lambda: iceberg.epoch(1, [batch(3, 6)]))
