"""Rows of specs/metrics.toml. That a broker exports each of them: `tests/integration/server/test_http.py`."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = tomllib.loads((ROOT / "specs/metrics.toml").read_text())


@pytest.mark.parametrize("name", TABLE)
def test_every_metric_is_complete(name: str) -> None:
    row = TABLE[name]
    assert set(row) - {"labels", "values"} == {"metric", "kind", "unit", "meaning"}
    assert row["kind"] in {"counter", "gauge", "histogram", "info"}
    assert row["metric"].startswith(("bascule_", "process_"))
    assert row["metric"].endswith("_total") == (row["kind"] == "counter")
    assert row["metric"].endswith("_info") == (row["kind"] == "info")
    assert ("_seconds" in row["metric"]) == (row["unit"] == "nanoseconds")
    assert "journal" not in row["metric"]
    assert row["meaning"]


def test_no_two_rows_are_exported_by_one_name() -> None:
    series = [(row["metric"], *row.get("values", {}).items()) for row in TABLE.values()]
    assert len(series) == len(set(series)) >= 60
