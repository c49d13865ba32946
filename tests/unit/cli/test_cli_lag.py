"""`bascule lag` over a client that answers from a script."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from bascule._admin_pb import message
from bascule.cli import main
from bascule.cli.connection import Connection
from bascule.client import Client

from tests.unit.client.fakes import FakeNative, client_of

GROUP: dict[str, Any] = {
    "kind": "group", "reader": "billing", "stream": "orders", "partition": 0, "next": 90, "state": "stored",
    "lag": {"records": 10, "bytes": 4096, "age_ms": 1500},
}  # fmt: skip
QUERY: dict[str, Any] = {
    "kind": "query", "reader": "totals", "stream": "other/orders", "partition": 1, "next": 7, "state": "reporting",
    "owner": "ada", "report_age_ms": 250, "hold_left_ms": 59_500,
}  # fmt: skip


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> FakeNative:
    found = FakeNative()

    @contextmanager
    def opened(_: Connection) -> Generator[Client]:
        yield client_of(found)

    monkeypatch.setattr(Connection, "open", opened)
    monkeypatch.setenv("COLUMNS", "300")
    return found


def answer(*found: dict[str, Any]) -> bytes:
    return message("FetchLagsResponse")(lags=found).SerializeToString()


def test_groups_and_queries_are_shown_with_records_bytes_and_seconds(
    native: FakeNative, capsys: pytest.CaptureFixture[str]
) -> None:
    native.answers = [answer(GROUP, QUERY)]
    assert main(["lag", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == [
        {
            "kind": "group", "reader": "billing", "stream": "orders", "partition": 0, "next_offset": 90, "records": 10,
            "bytes": 4096, "seconds": 1.5, "state": "stored", "reported_seconds": None,
            "hold_seconds": None, "owner": "",
        },
        {
            "kind": "query", "reader": "totals", "stream": "other/orders", "partition": 1, "next_offset": 7,
            "records": None, "bytes": None, "seconds": None, "state": "reporting", "reported_seconds": 0.25,
            "hold_seconds": 59.5, "owner": "ada",
        },
    ]  # fmt: skip
    assert err == ""


def test_the_broker_is_asked_for_one_reader_and_one_stream(native: FakeNative) -> None:
    native.answers = [answer(GROUP)]
    assert main(["lag", "billing", "--stream", "orders"]) == 0
    ((method, body),) = native.requests
    asked = message("FetchLagsRequest").FromString(body)
    assert (method, asked.reader, asked.stream) == ("FetchLags", "billing", "orders")


def test_queries_that_report_nothing_are_named(native: FakeNative, capsys: pytest.CaptureFixture[str]) -> None:
    silent = [{**QUERY, "reader": f"q{number}", "state": "silent"} for number in range(6)]
    native.answers = [answer(*silent)]
    assert main(["lag"]) == 0
    assert capsys.readouterr().err == (
        "bascule: 6 readers reported nothing for a minute, so their lag may be older: q0, q1, q2, q3, q4 and others\n"
    )


def test_it_is_shown_again_until_it_is_interrupted(
    native: FakeNative, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    native.answers = [answer(GROUP), answer(GROUP, QUERY)]
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    # Not `time.sleep` itself: another thread of the process may sleep too.
    monkeypatch.setattr("bascule.cli.commands.lag.time", SimpleNamespace(sleep=sleep))
    assert main(["lag", "--watch", "2", "--output", "ndjson"]) == 130
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ([row["reader"] for row in rows], pauses) == (["billing", "billing", "totals"], [2.0, 2.0])


def test_two_formats_at_once_are_refused(native: FakeNative, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lag", "--json", "--output", "csv"]) == 2
    assert "--json and --output csv contradict each other" in capsys.readouterr().err
    assert not native.requests
