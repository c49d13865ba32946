"""Confirmation of destructive commands, and completion."""

import os
import subprocess
import sys

import pytest
import typer
from bascule.cli import main
from bascule.cli.commands.completion import complete_stream
from bascule.cli.connection import Connection
from bascule.cli.prompt import ask
from bascule.errors import UsageError

PLAIN = Connection("liftbridge://a", 1.0)
PROTECTED = Connection("liftbridge://a", 1.0, "production", protected=True)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(typer, "prompt", lambda *_, **__: text)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: text == "y")


def test_yes_is_enough_where_nothing_is_protected() -> None:
    ask("Delete?", name="orders", connection=PLAIN, yes=True)


def test_without_a_terminal_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)
    with pytest.raises(UsageError, match="there is no terminal to ask on: add --yes"):
        ask("Delete?", name="orders", connection=PLAIN, yes=False)
    with pytest.raises(UsageError, match=r"context production is protected .* name the broker with --url"):
        ask("Delete?", name="orders", connection=PROTECTED, yes=True)


@pytest.mark.usefixtures("terminal")
def test_a_protected_context_asks_for_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, "orders")
    ask("Delete?", name="orders", connection=PROTECTED, yes=True)
    answer(monkeypatch, "order")
    with pytest.raises(UsageError, match='"order" is not "orders": nothing was done'):
        ask("Delete?", name="orders", connection=PROTECTED, yes=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_there_is_a_script_for_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_BASCULE_COMPLETE" in script
    assert "bascule" in script


def test_the_shell_is_offered_commands_and_no_option_edits_its_files() -> None:
    command = [sys.executable, "-m", "bascule.cli"]
    asked = {"_BASCULE_COMPLETE": "complete_bash", "COMP_WORDS": "bascule stream cr", "COMP_CWORD": "2"}
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["create"], done.stderr
    assert main(["--install-completion", "bash"]) == 2


def test_completion_never_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASCULE_URL", "http://nonsense")
    assert complete_stream("o") == []
