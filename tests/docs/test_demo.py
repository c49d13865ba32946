"""What `make demo` compares and refuses, and the job that it runs."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bascule.pipeline import from_file
from bascule.pipeline.model.targets import Table

from tests.docs.snippets import ROOT

EXAMPLES = ROOT / "examples"
ROWS = [{"carrier": "UA", "delay": 3}, {"carrier": "AA", "delay": None}]


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def table() -> Iterator[Any]:
    yield load("flights_table")
    del sys.modules["flights_table"]


def test_the_job_is_valid_and_its_broker_is_replaced(table: Any, tmp_path: Path) -> None:
    table.FlightsJob(tmp_path, "127.0.0.1:4711")
    job = from_file(tmp_path / "job.yaml")
    assert job.source.options()["address"] == "127.0.0.1:4711"
    (target,) = job.targets
    assert isinstance(target, Table)
    assert target.path == str(tmp_path / "flights")
    assert job.checkpoint == str(tmp_path / "flights-checkpoint")


@pytest.mark.parametrize(
    "others",
    [
        ROWS[::-1],
        ROWS[:1],
        [*ROWS, ROWS[1]],
        [ROWS[0], {"carrier": "AA", "delay": 0}],
        [ROWS[0], {**ROWS[1], "carrier": "A"}],
    ],
    ids=["order", "lost", "twice", "null", "changed"],
)
def test_each_difference_changes_the_summary(table: Any, others: list[dict[str, object]]) -> None:
    columns = ("carrier", "delay")
    assert table.summary_of(ROWS, columns) == table.summary_of([dict(row) for row in ROWS], columns)
    assert table.summary_of(ROWS, columns) != table.summary_of(others, columns)


def test_rows_with_the_same_offset_are_counted(table: Any, tmp_path: Path) -> None:
    delta: Any = pytest.importorskip("deltalake")
    arrow: Any = pytest.importorskip("pyarrow")
    columns = {"offset": [1, 0, 1], "carrier": ["AA", "UA", "AA"], "delay": [None, 3, None]}
    delta.write_deltalake(str(tmp_path / "flights"), arrow.table(columns))
    summary, duplicates = table.read_table(tmp_path / "flights", ("carrier", "delay"))
    assert duplicates == 1
    assert summary == table.summary_of([*ROWS, ROWS[1]], ("carrier", "delay"))


def test_a_kill_that_left_nothing_to_do_fails_the_demo(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    demo = load("flights")
    demo.say_kill(table.Kill(finished=3, begun=3, is_written=True, rows=160), 336)
    assert "160 of 336 flights are in the table" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="had written everything"):
        demo.say_kill(table.Kill(finished=9, begun=9, is_written=True, rows=336), 336)
