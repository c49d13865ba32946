"""Archives in a REST catalog, over HTTP: conflicts, lost answers, compaction, erasure, files of a tiered read."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import bascule.lake
import pytest
from bascule.errors import StateError, UnavailableError
from bascule.lake import ArchiveOptions
from bascule.lake.archived import Wanted, read_archived
from bascule.lake.ranges import Source

from tests.iceberg_rest import RestCatalog, rest_catalog
from tests.unit.lake.query import Query, batch, expected

SOURCE = Source("s", 1, 0)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RestCatalog]:
    with rest_catalog(tmp_path / "warehouse") as started:
        yield started


@pytest.fixture
def options(server: RestCatalog, tmp_path: Path) -> ArchiveOptions:
    (tmp_path / "catalog.json").write_text(json.dumps({"type": "rest", "uri": server.uri}))
    return ArchiveOptions("lake.table", "iceberg", ("partition",), credentials=str(tmp_path / "catalog.json"))


def before_the_first_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen after the first decision to append, and before its commit."""
    left = [act]

    def at(name: str) -> None:
        if name == "archive.before_commit" and left:
            left.pop()()

    monkeypatch.setattr("bascule.lake.commit.failpoint", at)


def test_epochs_are_appended_once_and_the_table_is_readable(options: ArchiveOptions, server: RestCatalog) -> None:
    query = Query(options)
    assert query.epoch(0, [batch(0, 6)], [batch(0, 3, 1)])
    query.restart()
    assert not query.epoch(0, [batch(0, 6)], [batch(0, 3, 1)])
    assert query.epoch(1, [batch(6, 9)])
    assert query.rows() == expected((0, 0, 9), (1, 0, 3))
    pinned = query.table.pinned([SOURCE])
    wanted = Wanted(SOURCE, 2, 8)
    read = read_archived(query.table.storage, pinned.files_of(wanted), wanted, ("offset",))
    assert [offset for rows, _ in read for offset in rows.column("offset").to_pylist()] == list(range(2, 8))
    assert server.commits == [200] * 3, "one creates the table, and there is one for each epoch"


def test_a_commit_on_a_version_that_another_query_has_overtaken_is_refused_and_decided_again(
    options: ArchiveOptions, server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, other = Query(options), Query(options, "other")
    query.epoch(0, [batch(0, 3)])
    before_the_first_commit(monkeypatch, lambda: other.epoch(0, [batch(0, 3, stream="t")]))
    assert query.epoch(1, [batch(3, 6)])
    assert server.commits[-3:] == [200, 409, 200]
    assert len(query.rows()) == 9
    found = bascule.lake.coverage(options, [SOURCE, Source("t", 1, 0)])
    assert [(each.first, each.end) for each in found.values()] == [(0, 6), (0, 3)]


def test_of_two_queries_of_one_stream_the_second_is_refused(
    options: ArchiveOptions, server: RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, other = Query(options), Query(options, "other")
    query.epoch(0, [batch(0, 3)])
    before_the_first_commit(monkeypatch, lambda: other.epoch(0, [batch(3, 6)]))
    with pytest.raises(StateError, match=r"has the records of s/0 before offset 6"):
        query.epoch(1, [batch(3, 6)])
    assert 409 in server.commits
    assert query.rows() == expected((0, 0, 6))


def test_a_lost_answer_to_a_commit_does_not_repeat_it(options: ArchiveOptions, server: RestCatalog) -> None:
    query = Query(options)
    query.epoch(0, [batch(0, 3)])
    server.loses_answers = 1
    assert query.epoch(1, [batch(3, 6)])
    assert server.commits[-1] == 504
    assert query.rows() == expected((0, 0, 6))


def test_compaction_expiry_and_erasure(options: ArchiveOptions) -> None:
    query = Query(options)
    for number in range(3):
        query.epoch(number, [batch(3 * number, 3 * number + 3)])
    assert bascule.lake.compact(options)["numFilesRemoved"] == 3
    assert bascule.lake.erase(options, stream="s", key=b"key-1").rows == 3
    assert len(bascule.lake.expire(options, retention_hours=0)) == 4
    assert query.rows() == [row for row in expected((0, 0, 9)) if row[1] % 3 != 1]
    assert query.epoch(3, [batch(9, 12)])
    covered = bascule.lake.coverage(options, [SOURCE])[SOURCE]
    assert (covered.first, covered.end) == (0, 12)


def test_a_catalog_that_does_not_answer_is_named(tmp_path: Path) -> None:
    properties: dict[str, Any] = {"type": "rest", "uri": "http://127.0.0.1:9", "token": "secret"}
    (tmp_path / "gone.json").write_text(json.dumps(properties))
    gone = replace(ArchiveOptions("lake.table", "iceberg"), credentials=str(tmp_path / "gone.json"))
    with pytest.raises(
        UnavailableError, match=r"the Iceberg catalog default cannot be opened: .*Connection refused"
    ) as raised:
        Query(gone).epoch(0, [batch(0, 3)])
    assert "http://127.0.0.1:9 does not answer: start it, or correct the property uri" in str(raised.value)
    assert "secret" not in str(raised.value)
