"""`bascule spark` against a real broker."""

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


def test_doctor_answers_for_each_check_and_fails_with_a_remedy(
    cli: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = {finding["check"]: finding for finding in cli("spark", "doctor")}
    assert {finding["outcome"] for finding in findings.values()} == {"ok"}
    assert {"Java", "pyspark", "pandas", "pyarrow", "broker", "Python of the workers"} <= findings.keys()
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    assert main(["spark", "doctor"]) == 1
    assert "set PYSPARK_PYTHON=" in capsys.readouterr().out
