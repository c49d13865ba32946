"""Every command that prints a result prints the same in every format, and every command that changes something has a
dry run."""

import csv
import io
import json
from pathlib import Path

import bascule
import pytest
import yaml
from bascule.cli import main
from bascule.testing import TestBroker, broker

from tests.integration.cli.conftest import Run
from tests.integration.cli.groups import join
from tests.unit.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parents[3]
SILENT = {("serve",), ("completion",), ("config", "import")}
"""They do not print a result but a log, a script or a file."""
DRY = {
    ("stream", "create"): ["another"],
    ("stream", "edit"): ["{s}", "--codec", "lz4"],
    ("stream", "pause"): ["{s}"],
    ("stream", "resume"): ["{s}"],
    ("stream", "readonly"): ["{s}"],
    ("stream", "delete"): ["{s}"],
    ("stream", "trim"): ["{s}", "0", "--before", "1"],
    ("stream", "purge"): ["{s}"],
    ("produce",): ["{s}", "one", "two"],
    ("cursor", "set"): ["{s}-c", "{s}", "2"],
    ("cursor", "forget"): ["{s}-c", "{s}"],
    ("group", "reset"): ["{s}-idle", "--to", "latest"],
    ("group", "delete"): ["{s}-idle"],
    ("context", "add"): ["other", "liftbridge://127.0.0.1:2"],
    ("context", "use"): ["here"],
    ("context", "remove"): ["here"],
}
"""Commands with `--dry-run`."""
LOOK = {
    ("status",): [],
    ("stream", "list"): [],
    ("stream", "show"): ["{s}"],
    ("consume",): ["{s}", "--start", "earliest", "--stop", "latest"],
    ("cursor", "get"): ["{s}-c", "{s}"],
    ("cursor", "list"): ["{s}-c"],
    ("group", "list"): [],
    ("group", "show"): ["{s}-g"],
    ("group", "members"): ["{s}-g"],
    ("lag",): [],
    ("context", "list"): [],
    ("context", "show"): ["here"],
    ("config", "show"): [],
    ("config", "check"): ["{here}/broker.yaml"],
    ("version",): [],
}
MOVING = {("status",), ("stream", "list"), ("group", "list"), ("lag",), ("log", "verify")}
"""Their results contain times, or effects of other tests."""
ELSEWHERE = {
    **dict.fromkeys(
        [("sink", name) for name in ("list", "show", "delete", "skip", "owner", "quota")],
        "tests/unit/cli/test_cli_sinks.py",
    ),
    **dict.fromkeys(
        [
            *(("iggy", "users", name) for name in ("list", "create", "delete", "password", "status", "permissions")),
            *(("iggy", "tokens", name) for name in ("list", "create", "delete")),
        ],
        "tests/integration/cli/test_cli_iggy.py",
    ),
    **dict.fromkeys([("spark", "doctor"), ("spark", "ddl")], "tests/integration/cli/test_cli_spark.py"),
    **dict.fromkeys([("spark", name) for name in ("replay", "copy", "redrive")], "tests/docs/test_replay_page.py"),
    **dict.fromkeys([("spark", "init"), ("spark", "run")], "tests/spark/test_declarative.py"),
    ("hold", "release"): "tests/unit/cli/test_cli_hold.py",
    ("cluster", "status"): "tests/integration/cluster/brokers.py",
    ("archive", "erase"): "tests/integration/cli/test_cli_archive.py",
    **dict.fromkeys(
        [("pipeline", "run"), ("pipeline", "plan"), ("pipeline", "validate"), ("pipeline", "schema")],
        "tests/spark/test_pipeline_process.py",
    ),
}
"""Commands with tests of their own."""
OFFLINE = {("log", "verify"): [], ("log", "inspect"): [], ("log", "repair"): ["--dry-run"]}
"""Commands on the directory of a stopped broker."""


def check(capsys: pytest.CaptureFixture[str], command: list[str], *, moving: bool = False) -> None:
    """All formats have the same content. A nested result is complete in JSON and YAML; other formats have its rows."""

    def printed(form: str) -> str:
        assert main([*command, "--output", form]) == 0, (command, capsys.readouterr().err)
        return capsys.readouterr().out

    document = json.loads(printed("json"))
    from_yaml = yaml.safe_load(printed("yaml"))
    lines = [json.loads(line) for line in printed("ndjson").splitlines()]
    cells = list(csv.DictReader(io.StringIO(printed("csv"))))
    assert document, command
    assert lines, command
    assert printed("table").strip(), command
    assert set(cells[0]) == set(lines[0]), command
    if not moving:
        assert from_yaml == document, command
        assert len(cells) == len(lines), command


@pytest.fixture
def place(cli: Run, here: TestBroker, stream: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A stream with records, a cursor, a group with a member, one without, a context and a configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broker.yaml").write_text("broker.port: 1\n")
    cli("stream", "create", stream)
    cli("produce", stream, *"abc")
    cli("cursor", "set", f"{stream}-c", stream, "1")
    cli("context", "add", "here", here.url)
    with bascule.connect(here.url) as client:
        join(client, f"{stream}-g", "member", stream)
        client.set_cursor(bascule.group_cursor(f"{stream}-idle"), stream, 0)
    return {"s": stream, "here": str(tmp_path)}


def test_every_command_is_tested_here() -> None:
    tried = {*DRY, *LOOK, *OFFLINE, *SILENT, *ELSEWHERE, ("bench",)}
    assert tried == {tuple(command) for command in COMMANDS}
    for command, path in ELSEWHERE.items():
        assert f'"{command[0]}"' in (ROOT / path).read_text(), path


def test_every_format_of_every_reading_command(place: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    for command, arguments in LOOK.items():
        words = [*command, *(word.format_map(place) for word in arguments)]
        check(capsys, words, moving=command in MOVING)


def test_every_format_of_every_dry_run_changes_nothing(
    place: dict[str, str], cli: Run, here: TestBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    before = cli("stream", "show", place["s"])
    with bascule.connect(here.url) as client:
        for command, arguments in DRY.items():
            words = [*command, *(word.format_map(place) for word in arguments), "--dry-run"]
            check(capsys, words)
        assert client.fetch_cursor(f"{place['s']}-c", place["s"]) == 1
        assert client.fetch_cursor(bascule.group_cursor(f"{place['s']}-idle"), place["s"]) == 0
    assert cli("stream", "show", place["s"]) == before
    assert [row["name"] for row in cli("context", "list")] == ["here"]


def test_every_format_of_log_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with broker(directory=tmp_path) as running, bascule.connect(running.url) as client:
        client.create_stream("s")
        client.publish_many("s", [b"x"] * 10)
    for command, more in OFFLINE.items():
        check(capsys, [*command, str(tmp_path / "data"), *more], moving=command in MOVING)
