"""The parts of `make bench` that run Spark, with a few records: what they store and judge, not whether it is fast."""

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BENCH = Path(__file__).parents[2] / "bench"
ROWS = 10_000
JUDGED = {
    "spark_read": 6,
    "spark_write": 2,
    "spark_archive": 4,
    "spark_replay": 1,
    "spark_tiered": 4,
    "spark_merge": 1,
    "spark_latency": 9,
    "spark_idle": 8,
}
"""Number of figures with a bar, by part."""


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    made = import_module("session").Bench(quick=True, profile="fast", folder=tmp_path)
    made.count, made.seconds = ROWS, 0.5
    yield made
    for name in set(sys.modules) - before:
        if (BENCH / f"{name}.py").is_file():
            del sys.modules[name]  # their names are common ones


@pytest.mark.long
@pytest.mark.parametrize("part", JUDGED)
def test_a_part_stores_its_figures_and_bars(bench: Any, part: str) -> None:
    getattr(import_module("spark_parts"), part)(bench)
    assert len(bench.bars) == JUDGED[part]
    assert len({bar["what"] for bar in bench.bars}) == JUDGED[part]
    assert all(bar["figure"] > 0 or "%" in bar["what"] for bar in bench.bars)
    assert json.loads(json.dumps(bench.figures)) == bench.figures


def test_memory_is_judged_after_all_scripts(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = import_module("spark_parts")
    scripts: list[str] = []

    def run(script: str, *_arguments: object) -> dict[str, Any]:
        scripts.append(script)
        return {}

    monkeypatch.setattr(parts, "run_spark", run)
    parts.spark_memory(bench)
    assert scripts == ["spark_read.py", "spark_write.py", "spark_archive.py"]
    (bar,) = bench.bars
    assert bar["figure"] == max(bench.figures["broker memory with Spark, 1024 B, MiB"].values()) > 0


def test_every_part_runs_in_make_bench(bench: Any) -> None:
    assert bench.figures == {}
    assert {*JUDGED, "spark_memory"} <= set(import_module("run").PARTS)
