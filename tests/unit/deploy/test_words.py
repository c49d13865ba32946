"""The word list of `make verify`: what it counts, and that a count can only shrink."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

SCRIPT: Final = Path(__file__).parents[3] / "deploy" / "words.py"


@pytest.fixture
def words() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("The caller is told.", "told"),
        ("what a broker Tells", "told"),
        ("let told = 1;", "told"),
        ("fn set_aside() {}", "set aside"),
        ("it goes on", "goes on"),
        ("to be mended", "mend"),
        ("This is no JSON.", "is no"),
        ("a wish", "wish"),
        ("A batch that does not check.", "does not check"),
    ],
)
def test_a_word_is_counted(words: ModuleType, tmp_path: Path, line: str, word: str) -> None:
    (tmp_path / "page.md").write_text(f"fine\n{line}\n")
    counts, lines = words.scan(tmp_path, ["page.md"])
    assert counts == {".": {word: 1}}
    assert lines[".", word] == [f"page.md:2: {line}"]


@pytest.mark.parametrize(
    "line",
    [
        "There is no file.",
        "It is no longer used.",
        "soundness, amend, recommend",
        "looked up",
        "does not check the size",
    ],
)
def test_usual_english_is_not_counted(words: ModuleType, tmp_path: Path, line: str) -> None:
    (tmp_path / "page.md").write_text(line)
    assert words.scan(tmp_path, ["page.md"])[0] == {}


def test_specifications_and_history_are_exempt(words: ModuleType, tmp_path: Path) -> None:
    for name in ("docs/spec/a.md", "CHANGELOG.md", "docs/how-to/a.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("told")
    counts, _ = words.scan(tmp_path, ["docs/spec/a.md", "CHANGELOG.md", "docs/how-to/a.md"])
    assert counts == {"docs/how-to": {"told": 1}}


def test_counts_only_shrink(words: ModuleType) -> None:
    allowed = {"a": {"told": 3, "mend": 1}, "b": {"wish": 2}}
    assert words.lowered(allowed, {"a": {"told": 5}, "c": {"told": 1}}) == {"a": {"told": 3}}
    assert words.lowered(allowed, {"a": {"told": 2, "mend": 1}}) == {"a": {"told": 2, "mend": 1}}


def test_one_more_occurrence_fails(
    words: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ({"docs": {"told": 2}}, {("docs", "told"): ["docs/a.md:1: told", "docs/a.md:7: told"]})
    monkeypatch.setattr(words, "scan", lambda *_: found)
    monkeypatch.setattr(words, "BASELINE", tmp_path / "words.json")
    words.BASELINE.write_text(json.dumps({"docs": {"told": 1}}))
    assert words.main(["--update"]) == 1, "an update raises nothing"
    printed = capsys.readouterr().out
    assert "docs: “told” 2 times, 1 allowed" in printed
    assert "  docs/a.md:7: told" in printed
    words.BASELINE.write_text(json.dumps({"docs": {"told": 2}, "tests": {"told": 1}}))
    assert words.main(["--update"]) == 0
    assert json.loads(words.BASELINE.read_text()) == {"docs": {"told": 2}}
