"""A broker with cursors, and commands that run against it in this process."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bascule.cli import main
from bascule.testing import TestBroker, broker

Run = Callable[..., Any]


@pytest.fixture(scope="session")
def running() -> Iterator[TestBroker]:
    """A standalone broker that all tests of the command line share; each test has its own stream."""
    with broker(settings={"cursors.partitions": 2, "groups.consumer_timeout_ms": 600_000}) as started:
        yield started


@pytest.fixture
def here(running: TestBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TestBroker:
    """The broker, set as the default of commands in this process."""
    monkeypatch.setenv("BASCULE_URL", running.url)
    monkeypatch.setenv("BASCULE_CONTEXTS", str(tmp_path / "contexts.yaml"))
    monkeypatch.setenv("COLUMNS", "240")
    monkeypatch.setenv("NO_COLOR", "1")
    return running


@pytest.fixture
def cli(here: TestBroker, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command and return its JSON output. `code`: expected exit code; if not 0, return the error text."""
    del here

    def run(*arguments: str, code: int = 0) -> Any:
        ended = main([*arguments, "--output", "json"])
        captured = capsys.readouterr()
        assert ended == code, (arguments, ended, captured.err)
        if code == 0:
            return json.loads(captured.out)
        assert captured.out == ""
        assert captured.err.startswith("bascule: ")
        assert captured.err.count("\n") == 1
        return captured.err

    return run
