"""`bascule pipeline run`: the broker that it uses, and its exit code. Spark does not run."""

import json
from pathlib import Path

import bascule.pipeline
import pytest
from bascule.cli import main
from bascule.pipeline.plans import PlannedTarget, RunPlan
from bascule.pipeline.runs import Outcome

JOB = """
name: orders
source: {stream: orders ADDRESS}
targets: [{format: delta, path: lake}]
mode: MODE
checkpoint: checkpoint
"""
URL = "liftbridge://10.0.0.1:9292"


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BASCULE_CONTEXTS", str(tmp_path / "contexts.yaml"))
    monkeypatch.delenv("BASCULE_URL", raising=False)
    monkeypatch.delenv("BASCULE_CONTEXT", raising=False)
    monkeypatch.setattr(bascule.pipeline, "run", lambda *_, **__: Outcome(1, 1, 0, 0, stopped=True))
    return tmp_path


def written(folder: Path, address: str = "", mode: str = "continuous") -> str:
    file = folder / "job.yaml"
    file.write_text(JOB.replace(" ADDRESS", address).replace("MODE", mode))
    return str(file)


def test_a_job_without_an_address_is_refused_where_another_broker_is_chosen(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BASCULE_URL", URL)
    for command in ("run", "plan"):
        assert main(["pipeline", command, "-f", written(place)]) == 2
        error = capsys.readouterr().err
        assert "job.yaml: source.address is missing, so the job would read from 127.0.0.1:9292; BASCULE_URL" in error
        assert f"names {URL}, which jobs do not use: write source.address in the file" in error
    monkeypatch.delenv("BASCULE_URL")
    assert main(["context", "add", "far", URL, "--use"]) == 0
    assert main(["pipeline", "run", "-f", written(place)]) == 2
    assert "the context far names" in capsys.readouterr().err
    assert main(["pipeline", "run", "-f", written(place, ", address: '10.0.0.9:9292'")]) == 0


@pytest.mark.parametrize(("mode", "code"), [("continuous", 0), ("availableNow", 130)])
def test_a_stopped_run_is_interrupted_unless_it_has_no_other_end(place: Path, mode: str, code: int) -> None:
    assert main(["pipeline", "run", "-f", written(place, mode=mode)]) == code


@pytest.mark.parametrize(
    ("action", "code"), [("create", 0), ("send the records to deadLetters: no column a", 0), ("fail: no column a", 1)]
)
def test_a_plan_of_a_run_that_would_fail_exits_with_1(
    action: str, code: int, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    planned = RunPlan("orders", "continuous", "", [], [], [PlannedTarget("table", "lake", action)], "once")
    monkeypatch.setattr(bascule.pipeline, "plan", lambda _: planned)
    assert main(["pipeline", "plan", "-f", written(place), "--output", "json"]) == code
    assert action in capsys.readouterr().out


def test_validate_lists_what_only_a_plan_checks(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = place / "job.yaml"
    more = "sql: SELECT (((\nexpectations: {expect: {positive: 'id >'}}\ndecode: {value: string}\n"
    for text, parts in ((JOB, []), (JOB + more, ["sql", "expectations", "schemas"])):
        file.write_text(text.replace(" ADDRESS", "").replace("MODE", "continuous"))
        assert main(["pipeline", "validate", "-f", str(file), "--output", "json"]) == 0
        assert json.loads(capsys.readouterr().out)["unchecked"] == ["streams", "tables", *parts]
