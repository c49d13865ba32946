"""The scoreboard shows exactly the stored results."""

import json

import pytest

from tests.torture import scoreboard


def test_the_page_shows_the_stored_results() -> None:
    assert scoreboard.PAGE.read_text() == scoreboard.page(), "run `make scoreboard`"


def test_every_result_has_a_rig() -> None:
    sources = "".join(path.read_text() for path in scoreboard.REPOSITORY.glob("tests/torture/rig_*.py"))
    for path in scoreboard.RESULTS.glob("*.json"):
        assert f'ROW = "{path.stem}"' in sources, f"{path.name} is of no rig"


def test_rows_are_in_the_order_of_their_numbers_and_a_failure_is_not_hidden(
    tmp_path: scoreboard.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = {
        "title": "what", "figure": "1 lost", "bar": "0", "seconds": 7300.0, "date": "2026-11-01",
        "version": "1", "commit": "c", "machine": "m",
    }  # fmt: skip
    for row in ("S11", "S3", "S15-slow", "S15"):
        (tmp_path / f"{row}.json").write_text(json.dumps(result | {"row": row, "passed": row != "S3"}))
    monkeypatch.setattr(scoreboard, "RESULTS", tmp_path)
    rows = [line.split(" | ") for line in scoreboard.page().splitlines() if line.startswith("| S")]
    assert [row[0] for row in rows] == ["| S3", "| S11", "| S15", "| S15-slow"]
    assert [row[4] for row in rows] == ["**no**", "yes", "yes", "yes"]
    assert rows[0][5] == "2.0 h"
