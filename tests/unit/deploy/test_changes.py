"""The files of `changes/`: each is one line for the changelog, and a release moves them into it."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
OURS: Final = sorted(path for path in (ROOT / "changes").glob("*.md") if path.name != "README.md")


def build(where: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "towncrier", "build", "--version", "9.9.9", "--date", "2026-01-31", *arguments]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of what towncrier reads, with two changes."""
    (tmp_path / "changes").mkdir()
    for name in ("pyproject.toml", "CHANGELOG.md", "changes/template.jinja", "changes/README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "changes" / "lost.fixed.md").write_text("A record is not lost.\n")
    (tmp_path / "changes" / "filter.added.md").write_text("`--filter` filters.\n")
    return tmp_path


def test_a_release_moves_the_changes_into_the_changelog(project: Path) -> None:
    built = build(project, "--yes")
    assert built.returncode == 0, built.stdout + built.stderr
    text = (project / "CHANGELOG.md").read_text()
    release = "## 9.9.9 (2026-01-31)\n\nAdded\n\n- `--filter` filters.\n\nFixed\n\n- A record is not lost.\n"
    assert release in text
    before = (ROOT / "CHANGELOG.md").read_text()
    title, _, history = before.partition("<!-- towncrier inserts a release here -->\n")
    assert text.startswith(title)
    assert text.endswith(history.lstrip("\n"))
    assert sorted(path.name for path in (project / "changes").iterdir()) == ["README.md", "template.jinja"]


@pytest.mark.parametrize("name", ["a.new.md", "fixed.md", "plain.txt"])
def test_a_name_without_a_section_is_refused(project: Path, name: str) -> None:
    (project / "changes" / name).write_text("text\n")
    built = build(project, "--draft")
    assert built.returncode != 0
    assert f"Invalid news fragment name: {name}" in built.stdout + built.stderr


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_change_is_one_line_without_a_bullet(path: Path) -> None:
    text = path.read_text()
    assert text.strip()
    assert text.count("\n") == 1
    assert not text.startswith(("-", "*", " "))
    assert text.rstrip("\n").endswith((".", "`"))
