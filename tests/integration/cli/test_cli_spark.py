"""`bascule spark` against a real broker."""

from pathlib import Path

import pytest
from bascule.cli import main
from bascule.testing import TestBroker

from tests.integration.cli.conftest import Run


def test_ddl_prints_a_table_for_each_stream(
    cli: Run, here: TestBroker, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("stream", "create", stream)
    address = here.url.rpartition("://")[2]
    (found,) = cli("spark", "ddl", "--pattern", stream, "--option", "columns=value", "--table", f"{stream}=t1")
    assert (found["stream"], found["table"]) == (stream, "t1")
    assert f"`columns` 'value', `stream` '[\"{stream}\"]')" in found["sql"]
    assert main(["spark", "ddl", "--pattern", stream, "--database", "mine"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("CREATE TABLE IF NOT EXISTS `mine`.")
    assert address in printed
    assert printed.endswith(");\n")
    assert "did you mean columns?" in cli("spark", "ddl", "--pattern", stream, "--option", "colums=x", code=2)
    assert "must be NAME=VALUE" in cli("spark", "ddl", "--option", "columns", code=2)
    assert "gives a twice" in cli("spark", "ddl", "--table", "a=b", "--table", "a=c", code=2)
    assert "not a regular expression" in cli("spark", "ddl", "--pattern", "(", code=2)
    assert cli("spark", "ddl", "--pattern", "no such stream") == []


def test_a_new_project_says_which_of_its_streams_do_not_exist(
    cli: Run, stream: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cli("stream", "create", stream)
    assert main(["spark", "init", str(tmp_path / "one"), "--stream", stream]) == 0
    said = capsys.readouterr().err
    assert f"stream {stream} does not exist" not in said
    assert f"stream {stream}_dlq does not exist; create it before the project runs: bascule stream create" in said
    assert main(["spark", "init", str(tmp_path / "two"), "--stream", f"{stream}-x", "--dead-letters", stream]) == 0
    assert f"stream {stream}-x does not exist" in capsys.readouterr().err
    assert main(["spark", "init", str(tmp_path / "three"), "--stream", stream, "--url", "bascule://127.0.0.1:1"]) == 0
    assert "whether its streams exist was not checked: broker at 127.0.0.1:1" in capsys.readouterr().err


def test_doctor_answers_for_each_check_and_fails_with_a_remedy(
    cli: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = {finding["check"]: finding for finding in cli("spark", "doctor")}
    assert {finding["outcome"] for finding in findings.values()} == {"ok"}
    assert {"Java", "pyspark", "pandas", "pyarrow", "broker", "Python of the workers"} <= findings.keys()
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    assert main(["spark", "doctor"]) == 1
    assert "set PYSPARK_PYTHON=" in capsys.readouterr().out
