"""`bascule log inspect` names the logs in the data directory of a stopped broker."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import bascule
import pytest
from bascule.cli import main
from bascule.testing import broker

NAMED = {("orders", 0), ("orders", 1), ("payments", 0)}


@pytest.fixture(params=["stopped", "killed"])
def data(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Two streams and a deleted one; after a stop the names are in a snapshot, after a kill in the metadata log."""
    with broker(directory=tmp_path) as running:
        with bascule.connect(running.url) as client:
            client.create_stream("gone")
            client.create_stream("orders", options=bascule.StreamOptions(partitions=2))
            client.create_stream("payments")
            client.delete_stream("gone")
            for number in range(5):
                client.publish("orders", b"order %d" % number, partition=1)
        if request.param == "killed":
            running.kill()
        left = tmp_path / "data"
    snapshots = list((left / "metadata").glob("snapshot-*"))
    assert bool(snapshots) == (request.param == "stopped")
    return left


def inspect(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, list[dict[str, Any]], str]:
    code = main(["log", "inspect", *map(str, arguments), "--output", "json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out)["logs"] if captured.out else [], captured.err


def streams(logs: list[dict[str, Any]]) -> set[tuple[str, int]]:
    return {(log["stream"], log["partition"]) for log in logs if log["stream"] is not None}


def directory_of(data: Path, capsys: pytest.CaptureFixture[str], stream: str) -> Path:
    _, logs, _ = inspect(capsys, data, "--stream", stream, "--partition", "0")
    return Path(logs[0]["directory"])


def damage(files: Iterable[Path]) -> None:
    """Flip a bit in the last mention of the stream `payments`."""
    for file in files:
        content = bytearray(file.read_bytes())
        content[content.rindex(b'"payments"') + 2] ^= 1
        file.write_bytes(content)


def test_logs_have_the_names_of_their_streams(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, logs, _ = inspect(capsys, data)
    assert (code, streams(logs)) == (0, NAMED)
    assert {log["namespace"] for log in logs if log["stream"]} == {"default"}
    assert [log["unnamed"] for log in logs] == [None] * len(logs)
    (alone,) = inspect(capsys, directory_of(data, capsys, "payments"))[1]
    assert (alone["namespace"], alone["stream"], alone["partition"]) == ("default", "payments", 0)
    assert main(["log", "inspect", str(data)]) == 0
    captured = capsys.readouterr()
    assert "payments" in captured.out
    assert "no stream name" not in captured.err


def test_a_stream_and_a_partition_are_selected(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert streams(inspect(capsys, data, "--stream", "orders")[1]) == {("orders", 0), ("orders", 1)}
    code, (log,), _ = inspect(capsys, data, "--stream", "orders", "--partition", "1")
    assert (code, log["stream"], log["partition"]) == (0, "orders", 1)
    assert sum(batch["records"] for batch in log["batches"]) == 5
    assert main(["log", "inspect", str(data), "-s", "orders", "-p", "1", "--batches", "--output", "ndjson"]) == 0
    assert sum(json.loads(line)["records"] for line in capsys.readouterr().out.splitlines()) == 5


def test_a_wrong_selection_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    partition = directory_of(data, capsys, "payments")
    for arguments, code, said in [
        ([data, "--stream", "gone"], 3, "the metadata has no stream gone"),
        ([data, "--stream", "orders", "--partition", "2"], 3, "has no partition 2 here: its highest is 1"),
        ([data, "--partition", "0"], 2, "--partition 0 needs --stream"),
        ([data, "--stream", "orders", "--batches"], 2, "name one with --partition"),
        ([partition, "--stream", "orders"], 2, "--stream selects from a data directory"),
    ]:
        found = inspect(capsys, *arguments)
        assert (found[0], found[1]) == (code, [])
        assert said in found[2]


def test_a_copy_of_a_log_alone_is_shown_without_a_name(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = directory_of(data, capsys, "orders")
    (data / "metadata").rename(data / "elsewhere")
    code, (alone,), _ = inspect(capsys, log)
    assert (code, alone["incarnation"], alone["stream"]) == (0, int(log.name), None)
    assert "there is no metadata log in" in alone["unnamed"]


@pytest.mark.parametrize("data", ["stopped"], indirect=True)
def test_damaged_entries_in_the_log_are_reported(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file in (data / "metadata").glob("snapshot-*"):
        file.unlink()
    damage((data / "metadata" / "log").glob("*.seg"))
    _, logs, _ = inspect(capsys, data)
    assert streams(logs) == {("orders", 0), ("orders", 1)}
    (why,) = {log["unnamed"] for log in logs if log["unnamed"]}
    assert "of the metadata are damaged or missing" in why


def test_damaged_metadata_names_what_precedes_the_damage(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    payments = int(directory_of(data, capsys, "payments").name)
    files = list((data / "metadata").glob("snapshot-*"))
    damage(files or (data / "metadata" / "log").glob("*.seg"))
    code, logs, _ = inspect(capsys, data)
    assert code == 0
    unnamed = {log["incarnation"]: log["unnamed"] for log in logs if log["unnamed"]}
    if files:
        assert streams(logs) == set()
        assert "the metadata snapshot cannot be read" in unnamed[payments]
    else:
        assert streams(logs) == {("orders", 0), ("orders", 1)}
        assert "the metadata is lost or an old copy" in unnamed[payments]
    assert main(["log", "inspect", str(data)]) == 0
    captured = capsys.readouterr()
    assert f"bascule: no stream name for {', '.join(map(str, unnamed))}: " in captured.err
    code, _, said = inspect(capsys, data, "--stream", "payments")
    assert code == 3
    assert f"names may be missing: {unnamed[payments]}" in said
