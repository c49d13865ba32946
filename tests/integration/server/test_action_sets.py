"""The sets `reader` and `writer` of a policy allow exactly the commands of a reader and a writer."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import bascule
import pytest
from bascule.cli import main

from tests.conformance.mutual import ROOT, Mutual, mutual_broker, rule

Run = Callable[..., str]
DENIED = 4


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mutual]:
    with mutual_broker(tmp_path_factory.mktemp("sets"), **{"cursors.partitions": 1}) as running:
        running.allow(rule("rita", "reader", ["orders", "billing"]), rule("walt", "writer", "orders"))
        assert running.running is not None
        with bascule.connect(running.running.url, tls=running.tls(ROOT), timeout=30) as client:
            for name in ("orders", "secrets"):
                client.create_stream(name)
                client.publish(name, b"first")
        yield running


@pytest.fixture
def run(mutual: Mutual, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command as a client and return its output. `code`: expected exit code."""
    monkeypatch.setenv("BASCULE_CONTEXTS", str(tmp_path / "contexts.yaml"))

    def as_client(name: str, *arguments: str, code: int = 0) -> str:
        assert mutual.running is not None
        tls = mutual.tls(name)
        url = f"{mutual.running.url}?ca={tls.ca}&cert={tls.cert}&key={tls.key}"
        ended = main([*arguments, "--url", url])
        captured = capsys.readouterr()
        assert ended == code, (arguments, captured.err)
        return captured.out if code == 0 else captured.err

    return as_client


def test_a_reader_consumes_with_a_cursor_and_sees_groups(run: Run) -> None:
    read = ("consume", "orders", "--start", "earliest", "--stop", "latest", "--cursor", "billing")
    assert "first" in run("rita", *read)
    assert [row["cursor"] for row in json.loads(run("rita", "cursor", "list", "--output", "json"))] == ["billing"]
    run("rita", "group", "list", "--output", "json")
    run("rita", "stream", "list")
    run("rita", "stream", "show", "orders")


def test_a_writer_produces(run: Run) -> None:
    run("walt", "produce", "orders", "one", "two")
    run("walt", "produce", "orders", "three", "--key", "k")


@pytest.mark.parametrize(
    ("client", "command", "right"),
    [
        ("rita", ["produce", "orders", "x"], "Publish on resource orders"),
        ("rita", ["consume", "secrets", "--start", "earliest", "--count", "1"], "Subscribe on resource secrets"),
        ("rita", ["cursor", "set", "billing", "secrets", "0"], "FetchCursor on resource secrets"),
        ("rita", ["produce", "__cursors", "x"], "Publish on resource __cursors"),
        ("rita", ["stream", "delete", "orders", "--yes"], "DeleteStream on resource orders"),
        ("walt", ["consume", "orders", "--start", "earliest", "--count", "1"], "Subscribe on resource orders"),
        ("walt", ["produce", "secrets", "x"], "Publish on resource secrets"),
        ("walt", ["group", "list"], "FetchPartitionMetadata on resource __cursors"),
    ],
)
def test_readers_and_writers_have_no_other_rights(run: Run, client: str, command: list[str], right: str) -> None:
    assert f"not authorized to call {right}" in run(client, *command, code=DENIED)
