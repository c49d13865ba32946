"""Named connections: their file, the commands, and the choice of the broker."""

import json
import os
import stat
from pathlib import Path

import pytest
from bascule.cli import main
from bascule.cli.connection import DEFAULT_URL, choose
from bascule.cli.contexts import Context, Contexts, path
from bascule.errors import StateError, UsageError

A, B = "liftbridge://10.0.0.1:9292", "liftbridge://10.0.0.2"


@pytest.fixture(autouse=True)
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    found = tmp_path / "below" / "contexts.yaml"
    monkeypatch.setenv("BASCULE_CONTEXTS", str(found))
    monkeypatch.delenv("BASCULE_URL", raising=False)
    monkeypatch.delenv("BASCULE_CONTEXT", raising=False)
    return found


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> object:
    assert main([*arguments, "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_context_is_added_used_shown_and_removed(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert run(capsys, "context", "list") == []
    added = run(capsys, "context", "add", "a", A, "--dry-run")
    assert added == {"action": "add", "name": "a", "current": False, "file": str(file), "dry_run": True}
    assert not file.exists()
    run(capsys, "context", "add", "a", A, "--use")
    run(capsys, "context", "add", "b", B, "--timeout", "20", "--protected")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    assert run(capsys, "context", "show", "b") == {
        "name": "b", "current": False, "url": B, "timeout": 20.0, "protected": True,
    }  # fmt: skip
    run(capsys, "context", "use", "b")
    listed = run(capsys, "context", "list")
    assert isinstance(listed, list)
    assert [(row["name"], row["current"]) for row in listed] == [("a", False), ("b", True)]
    run(capsys, "context", "remove", "b", "--dry-run")
    run(capsys, "context", "remove", "b")
    assert Contexts.load() == Contexts("", {"a": Context(A)})


@pytest.mark.parametrize("command", ["show", "use", "remove"])
def test_a_missing_context_exits_with_3_and_lists_the_known_ones(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["context", "add", "a", A]) == 0
    capsys.readouterr()
    assert main(["context", command, "z"]) == 3
    error = capsys.readouterr().err
    assert error == 'bascule: context "z" does not exist: known are a; see bascule context add (not_found)\n'


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["add", "a", "http://x"], '"http://x" is not the URL of a broker'),
        (["add", "a", "bascules://x?what=1"], "what"),
        (["add", "a b", A], '"a b" is not the name of a context'),
        (["add", "", A], "is not the name of a context"),
        (["add", "a", A, "--timeout", "0"], "--timeout"),
    ],
)
def test_an_invalid_context_exits_with_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], file: Path
) -> None:
    assert main(["context", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert not file.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "must be a mapping"),
        ("contexts: [a]\n", "contexts must be a mapping"),
        ("contexts: {a: {}}\n", "contexts.a.url is None"),
        (f"contexts: {{a: {{url: '{A}', patience: 5}}}}\n", "unknown key patience; known are protected, timeout, url"),
        (f"contexts: {{a: {{url: '{A}', timeout: true}}}}\n", "contexts.a.timeout is True"),
        (f"contexts: {{a: {{url: '{A}', protected: 5}}}}\n", "contexts.a.protected is 5"),
        ("a: [", "it is not valid YAML"),
        (f"contexts: {{}}\ncurrent: a\ncontexts: {{a: {{url: {A}}}}}\n", "given twice, first in line 1"),
        ("\x00", "it is not valid YAML"),
    ],
)
def test_an_invalid_contexts_file_is_named_in_the_error(text: str, said: str, file: Path) -> None:
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(UsageError, match=said) as raised:
        Contexts.load()
    assert str(file) in str(raised.value)


def test_an_empty_file_holds_nothing(file: Path) -> None:
    file.parent.mkdir()
    file.write_text("")
    assert Contexts.load() == Contexts()


def test_the_most_specific_source_chooses_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose(None, None, None, 10).url == DEFAULT_URL
    Contexts("b", {"a": Context(A, 5), "b": Context(B, protected=True)}).save()
    current = choose(None, None, None, 10)
    assert (current.url, current.timeout, current.context, current.protected) == (B, 10, "b", True)
    monkeypatch.setenv("BASCULE_CONTEXT", "a")
    assert choose(None, None, None, 10).timeout == 5
    assert not choose(None, None, None, 10).waits
    waiting = choose(None, None, 7, 10)
    assert (waiting.timeout, waiting.waits) == (7, True)
    monkeypatch.setenv("BASCULE_URL", "liftbridge://c")
    assert choose(None, None, None, 10).url == "liftbridge://c"
    assert choose(None, "b", None, 10).url == B
    url = choose(A, None, None, 10)
    assert (url.url, url.protected) == (A, False)
    with pytest.raises(UsageError, match="cannot be combined"):
        choose(A, "b", None, 10)
    with pytest.raises(StateError, match='context "z" does not exist: known are a, b'):
        choose(None, "z", None, 10)


def test_the_file_lies_where_configuration_files_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("BASCULE_CONTEXTS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert path() == tmp_path / "bascule" / "contexts.yaml"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert path() == Path(os.path.expanduser("~")) / ".config" / "bascule" / "contexts.yaml"  # noqa: PTH111
