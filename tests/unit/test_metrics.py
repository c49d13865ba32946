"""Metrics: specs/metrics.toml and what the data plane counts are the same."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TABLE = tomllib.loads((ROOT / "specs/metrics.toml").read_text())


def counted() -> set[str]:
    """Names in the statistics of the broker: its cells, and what the engine adds to them."""
    cells = (ROOT / "crates/broker/src/statistics.rs").read_text()
    block = re.search(r"^statistics! \{(.*?)^\}", cells, re.DOTALL | re.MULTILINE)
    assert block is not None
    engine = (ROOT / "crates/broker/src/engine/life.rs").read_text()
    return {*re.findall(r"\w+", block.group(1)), *re.findall(r'values\.insert\(\s*"(\w+)"', engine)}


def test_both_name_the_same() -> None:
    found = counted()
    assert len(found) >= 20
    assert set(TABLE) == found


@pytest.mark.parametrize("name", TABLE)
def test_every_metric_is_complete(name: str) -> None:
    row = TABLE[name]
    assert set(row) == {"metric", "kind", "unit", "meaning"}
    assert row["kind"] in {"counter", "gauge"}
    assert row["metric"].startswith("bascule_")
    assert row["metric"].endswith("_total") == (row["kind"] == "counter")
    assert ("_seconds" in row["metric"]) == (row["unit"] == "nanoseconds")
    assert row["meaning"]
