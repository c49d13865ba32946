"""`bascule hold release` over a client that answers from a script."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from bascule._admin_pb import message
from bascule.cli import main
from bascule.cli.commands import hold as holds
from bascule.cli.connection import Connection
from bascule.client import Client

from tests.unit.client.fakes import FakeNative, client_of, failure

ANSWER: dict[str, Any] = {
    "positions": [{"partition": 0, "incarnation": 3, "next": 20}, {"partition": 1, "incarnation": 4, "next": 0}],
    "hold_left_ms": 59_500,
}
RELEASE = ["hold", "release", "totals", "orders"]


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> FakeNative:
    found = FakeNative()

    @contextmanager
    def opened(_: Connection) -> Generator[Client]:
        yield client_of(found)

    monkeypatch.setattr(Connection, "open", opened)
    found.answers = [message("ReleaseHoldResponse")(**ANSWER).SerializeToString()] * 2
    return found


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions, answered with yes."""
    asked: list[str] = []
    monkeypatch.setattr(holds, "ask", lambda question, **_: asked.append(question))
    return asked


def made(native: FakeNative) -> list[tuple[str, str, str, str, bool]]:
    """What was asked of the broker."""
    found: list[tuple[str, str, str, str, bool]] = []
    for name, body in native.requests:
        asked: Any = message(f"{name}Request").FromString(body)
        found.append((name, asked.query, asked.namespace, asked.stream, asked.dry_run))
    return found


def test_a_dry_run_shows_what_is_held_and_asks_nothing(
    native: FakeNative, questions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*RELEASE, "--dry-run", "--namespace", "other", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "query": "totals", "stream": "orders", "partitions": {"0": 20, "1": 0}, "hold_seconds": 59.5, "dry_run": True,
    }  # fmt: skip
    assert made(native) == [("ReleaseHold", "totals", "other", "orders", True)]
    assert questions == []


def test_a_release_asks_first(native: FakeNative, questions: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RELEASE, "--output", "json"]) == 0
    assert questions == [
        "Records of 2 partitions of stream orders that query totals has not processed may be removed. Go ahead?"
    ]
    assert [call[-1] for call in made(native)] == [True, False]
    assert json.loads(capsys.readouterr().out)["dry_run"] is False


def test_a_query_that_still_reports_is_refused(
    native: FakeNative, questions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    native.answers = [failure("query_active", "query totals reported 3 s ago and would hold its records again")]
    assert main([*RELEASE, "--yes"]) == 6
    assert "reported 3 s ago" in capsys.readouterr().err
    assert questions == []
