"""The examples in the help of all commands, run in a meaningful order."""

import re
import shlex
import shutil
from pathlib import Path
from uuid import uuid4

import bascule
import pytest
from bascule.cli import main
from bascule.cli.commands import cursor as cursors
from bascule.cli.commands import group as groups
from bascule.cli.commands import iggy, serve, stream_delete
from bascule.cli.commands import sink as sinks
from bascule.cli.commands import stream as streams
from bascule.testing import broker

from tests.conformance.api import Api
from tests.integration.cli.groups import join
from tests.unit.cli.commands import COMMANDS

LATER = {"log verify", "log inspect", "log repair"}
"""They need the directory of a stopped broker, so they run last."""
ELSEWHERE = {
    *("pipeline run", "pipeline plan", "pipeline validate", "pipeline schema"),
    *("spark replay", "spark copy", "spark redrive", "spark init", "spark run", "lag", "archive erase"),
}
"""They need Spark, or do not end; the pages about them are followed by tests (tests/docs)."""
REFUSED = {
    "sink skip": (2, "has nothing to link to partition 3 of stream totals"),
    "hold release": (3, "query totals holds no records of stream orders"),
}
"""Commands that have nothing to do on a healthy broker, with their exit code and error."""
ORDER = [
    "serve", "version", "completion", "context add", "context list", "context show", "context use", "context remove",
    "config show", "config check", "config import", "status", "cluster status", "stream create", "stream list",
    "stream show", "stream edit",
    "stream pause", "stream resume", "stream readonly", "produce", "consume", "cursor set", "cursor get", "cursor list",
    "cursor forget", "group list", "group show", "group members", "group reset", "group delete",
    "sink list", "sink show", "sink owner", "sink quota", "sink skip", "sink delete", "hold release",
    "iggy users create", "iggy users list", "iggy users password", "iggy users status", "iggy users permissions",
    "iggy tokens create", "iggy tokens list", "iggy tokens delete", "iggy users delete",
    "bench", "spark doctor", "spark ddl", "stream trim", "stream purge",
    "stream delete",
]  # fmt: skip


def examples(command: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    assert main([*command.split(), "--help"]) == 0
    text = capsys.readouterr().out.split("Examples:")[1].split("\n\n")[0]
    found = [shlex.split(line) for line in re.findall(r"bascule (.*)", text)]
    assert len(found) == 2, command
    return [words[: words.index(">")] if ">" in words else words for words in found]


def ready(command: str, client: bascule.Client, address: str) -> None:
    """Prepare what the examples of a command need."""
    group = bascule.group_cursor("billing")
    match command:
        case "stream list":
            client.delete_stream("orders")
            client.create_stream("orders", options=bascule.StreamOptions(partitions=3))
        case "produce":
            client.set_readonly("orders", readonly=False)
        case "cursor get":
            client.set_cursor("billing", "orders", 4711, partition=2)
        case "group list":
            join(client, "billing", "worker-1", "orders")
            client.set_cursor(group, "orders", 0)
        case "group reset":
            client.leave_group("billing", "worker-1")
        case "group delete":
            client.set_cursor(group, "orders", 0)
        case "sink list":
            client.create_stream("totals")
            run = {"kind": "batch", "lifetime": "kept", "run_id": str(uuid4())}
            with Api(address) as api:
                api.admin("OpenSink", name="daily-totals", streams=["totals"], **run)
        case "stream trim":
            client.publish_many("orders", [b"record"] * 1000, partition=0)
        case "stream delete":
            client.create_stream("orders", exist_ok=True)
        case _:
            pass


def test_every_command_has_its_place() -> None:
    assert {" ".join(command) for command in COMMANDS} == {*ORDER, *LATER, *ELSEWHERE}


def test_the_examples_of_the_help_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders.ndjson").write_text('{"key": "k", "value": {"id": 0}}\n' * 20)
    (tmp_path / "broker.yaml").write_text("broker.port: 1\n")
    (tmp_path / "password.txt").write_text("a password\n")
    (tmp_path / "liftbridge.yaml").write_text("listen: 127.0.0.1:9292\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BASCULE_CONTEXTS", str(tmp_path / "contexts.yaml"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(serve, "run_broker", lambda *_: 0)
    for module in (streams, stream_delete, cursors, groups, sinks, iggy):
        monkeypatch.setattr(module, "ask", lambda _question, **_: None)
    assert main(["context", "add", "staging", "liftbridge://127.0.0.1:1"]) == 0
    with broker(
        directory=tmp_path / "broker", settings={"cursors.partitions": 1, "iggy.listen": "127.0.0.1:0"}
    ) as running:
        monkeypatch.setenv("BASCULE_URL", running.url)
        with bascule.connect(running.url) as client:
            for command in ORDER:
                ready(command, client, running.address)
                for words in examples(command, capsys):
                    if command == "stream delete":
                        client.create_stream("orders", exist_ok=True)
                    past = [word.replace("2026-01-31", "2020-01-31") for word in words]
                    ended, said = main(past), capsys.readouterr().err
                    code, text = REFUSED.get(command, (0, ""))
                    assert (ended, text in said) == (code, True), (words, said)
            client.create_stream("orders", exist_ok=True)  # deleted last; `log inspect` selects it
    (tmp_path / "broker" / "data").rename(tmp_path / "bascule-data")
    shutil.copytree(tmp_path / "bascule-data", tmp_path / "backup" / "bascule-data")
    for command in sorted(LATER):
        for words in examples(command, capsys):
            assert main(words) == 0, (words, capsys.readouterr().err)
