"""`bascule sink` over a client that answers from a script."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from bascule._admin_pb import message
from bascule.cli import main
from bascule.cli.commands import sink as sinks
from bascule.cli.connection import Connection
from bascule.client import Client

from tests.unit.client.fakes import FakeNative, client_of, failure

PARTITIONS: list[dict[str, Any]] = [
    {"stream": "orders", "partition": 0, "rows": 5, "phase": "linked", "base_offset": 100},
    {"stream": "orders", "partition": 1, "rows": 6, "phase": "decided", "blocked": "the disk is full"},
    {"stream": "orders", "partition": 2, "rows": 7, "phase": "decided"},
]
SINK: dict[str, Any] = {
    "name": "daily-totals", "owner": "ada", "kind": "stream", "lifetime": "kept", "id": 7, "generation": 9,
    "query_id": "q", "run_id": "r", "last_epoch": 41, "input_rows": 18, "staged_bytes": 4096, "partitions": PARTITIONS,
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


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The questions, answered with yes."""
    asked: list[str] = []

    def ask(question: str, **_: object) -> None:
        asked.append(question)

    monkeypatch.setattr(sinks, "ask", ask)
    return asked


def answer(method: str, **fields: Any) -> bytes:
    return message(f"{method}Response")(**fields).SerializeToString()


def made(native: FakeNative) -> list[tuple[str, bool]]:
    """Method and dry run of each call."""
    return [(name, message(f"{name}Request").FromString(body).dry_run) for name, body in native.requests]


def test_the_list_shows_the_state_of_each(native: FakeNative, capsys: pytest.CaptureFixture[str]) -> None:
    done = {**SINK, "name": "done", "kind": "batch", "last_epoch": None, "partitions": PARTITIONS[:1]}
    native.answers = [answer("FetchSinks", sinks=[SINK, done, {**SINK, "name": "slow", "partitions": PARTITIONS[2:]}])]
    assert main(["sink", "list", "--output", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["sink"], row["last_epoch"], row["state"]) for row in rows] == [
        ("daily-totals", 41, "2 to link, 1 blocked"), ("done", None, "finished"), ("slow", 41, "1 to link"),
    ]  # fmt: skip


def test_one_sink_is_shown_with_its_partitions(native: FakeNative, capsys: pytest.CaptureFixture[str]) -> None:
    native.answers = [answer("FetchSinks", sinks=[SINK])] * 3
    assert main(["sink", "show", "daily-totals", "--namespace", "other"]) == 0
    text = capsys.readouterr().out
    assert "last epoch    41" in text
    assert text.splitlines()[-2].split() == ["orders", "1", "6", "decided", "the", "disk", "is", "full"]
    assert message("FetchSinksRequest").FromString(native.requests[0][1]).namespace == "other"
    assert main(["sink", "show", "daily-totals", "--output", "ndjson"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["partition"], row["base_offset"]) for row in rows] == [(0, 100), (1, None), (2, None)]
    assert main(["sink", "show", "daily-totals", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["quota_bytes"] == 0
    assert document["partitions"] == rows


def test_a_deletion_says_what_is_written_again(
    native: FakeNative, questions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    native.answers = [answer("DeleteSink", last_epoch=41)] * 2
    assert main(["sink", "delete", "s", "--output", "json"]) == 0
    warning = "Its last epoch is 41: a query that runs epoch 41 again writes its rows once more."
    assert questions == [f"Delete sink s? {warning} Go ahead?"]
    captured = capsys.readouterr()
    assert captured.err == f"bascule: {warning}\n"
    assert json.loads(captured.out) == {"sink": "s", "last_epoch": 41, "dry_run": False}
    assert made(native) == [("DeleteSink", True), ("DeleteSink", False)]


def test_a_dry_run_of_a_deletion_asks_and_changes_nothing(
    native: FakeNative, questions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    native.answers = [answer("DeleteSink")]
    assert main(["sink", "delete", "s", "--dry-run", "--output", "json"]) == 0
    assert questions == []
    captured = capsys.readouterr()
    assert captured.err == "bascule: It has no epoch of its current query, so no rows can be written twice.\n"
    assert json.loads(captured.out) == {"sink": "s", "last_epoch": None, "dry_run": True}
    assert made(native) == [("DeleteSink", True)]


def test_a_skip_says_how_many_rows_are_lost(
    native: FakeNative, questions: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    native.answers = [answer("SkipSink", rows=6000)] * 3
    assert main(["sink", "skip", "s", "orders", "1", "--output", "json"]) == 0
    assert questions == ["Lose 6,000 rows of sink s for partition 1 of stream orders?"]
    assert made(native) == [("SkipSink", True), ("SkipSink", False)]
    shown = {"sink": "s", "stream": "orders", "partition": 1, "rows": 6000, "dry_run": False}
    assert json.loads(capsys.readouterr().out) == shown
    native.requests.clear()
    assert main(["sink", "skip", "s", "orders", "1", "--dry-run", "--output", "json"]) == 0
    assert made(native) == [("SkipSink", True)]
    assert json.loads(capsys.readouterr().out) == {**shown, "dry_run": True}


@pytest.mark.parametrize("command", [["delete", "s"], ["skip", "s", "orders", "0"]])
def test_nothing_is_done_without_an_answer(
    native: FakeNative, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert main(["sink", *command]) == 2
    assert "there is no terminal to ask on: add --yes" in capsys.readouterr().err
    assert [dry_run for _, dry_run in made(native)] == [True]


def test_a_quota_has_units_and_shows_the_one_before(native: FakeNative, capsys: pytest.CaptureFixture[str]) -> None:
    known = answer("FetchSinks", sinks=[{**SINK, "quota_bytes": 5}])
    native.answers = [known, b"", known]
    assert main(["sink", "quota", "s", "32GiB", "--output", "json"]) == 0
    shown = {"sink": "s", "before": 5, "after": 32 << 30, "dry_run": False}
    assert json.loads(capsys.readouterr().out) == shown
    assert message("SetSinkQuotaRequest").FromString(native.requests[1][1]).quota_bytes == 32 << 30
    native.requests.clear()
    assert main(["sink", "quota", "s", "0", "--dry-run", "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"sink": "s", "before": 5, "after": 0, "dry_run": True}
    assert [method for method, _ in native.requests] == ["FetchSinks"]


def test_an_owner_shows_the_one_before(native: FakeNative, capsys: pytest.CaptureFixture[str]) -> None:
    native.answers = [answer("SetSinkOwner", before="")] * 2
    for options, dry_run in ((["--dry-run"], True), ([], False)):
        assert main(["sink", "owner", "s", "spark", *options, "--output", "json"]) == 0
        shown = {"sink": "s", "before": "", "after": "spark", "dry_run": dry_run}
        assert json.loads(capsys.readouterr().out) == shown
    assert made(native) == [("SetSinkOwner", True), ("SetSinkOwner", False)]


def test_rows_that_were_given_up_are_shown(native: FakeNative, capsys: pytest.CaptureFixture[str]) -> None:
    skip = {"epoch": 3, "stream": "orders", "partition": 1, "rows": 8, "by": "oncall"}
    native.answers = [answer("FetchSinks", sinks=[{**SINK, "skipped_rows": 9, "last_skip": skip}])] * 2
    assert main(["sink", "show", "daily-totals", "--output", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["skipped_rows"], document["last_skip"]) == (9, skip)
    assert main(["sink", "show", "daily-totals"]) == 0
    assert "oncall" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "said"),
    [("big", "'big' is not a size"), ("-1", "No such option"), ("9000000TiB", "is above 9223372036854775807 bytes")],
)
def test_a_quota_that_is_not_a_size_is_refused(
    native: FakeNative, size: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sink", "quota", "s", size]) == 2
    assert said in capsys.readouterr().err
    assert not native.requests


def test_a_sink_that_does_not_exist_ends_with_3(native: FakeNative, capsys: pytest.CaptureFixture[str]) -> None:
    native.answers = [failure("sink_not_found", "sink s does not exist in namespace default")]
    assert main(["sink", "show", "s"]) == 3
    assert capsys.readouterr().err == "bascule: sink s does not exist in namespace default (sink_not_found)\n"
