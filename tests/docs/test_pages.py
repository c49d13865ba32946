"""Links of all pages have a target, commands and options exist, and Python blocks compile."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from bascule.cli import main as bascule
from bascule.cli.liftbridge import command

from tests.docs.snippets import PAGES, ROOT, commands, snippets
from tests.unit.cli.commands import COMMANDS

SHELL = [
    (snippet.page, line)
    for page in PAGES
    for language in ("sh", "bash", "shell", "console")
    for snippet in snippets(page, language)
    for line in commands(snippet)
]
MADE = {"bench/results"}
"""Directories that commands create; here `make bench`."""


def test_there_are_pages() -> None:
    assert len(PAGES) >= 8
    assert len(SHELL) >= 6


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_have_a_target(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if path.startswith(("http://", "https://")) or path in MADE:
            continue
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), f"{target} does not exist"
        if anchor and other.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", other.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{target}: no such heading"


def test_every_page_for_users_is_linked_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    pages = [
        page
        for folder in ("tutorial", "how-to", "reference", "explanation")
        for page in (ROOT / "docs" / folder).glob("*.md")
    ]
    assert not [page.name for page in pages if f"({page.relative_to(ROOT).as_posix()})" not in text]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_python_blocks_compile(page: Path) -> None:
    for snippet in snippets(page, "python"):
        ast.parse(snippet.text, f"{snippet.page}:{snippet.line}")


@pytest.mark.parametrize(("page", "line"), SHELL)
def test_commands_exist_with_their_options(page: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    for part in line.split(" | "):
        words = shlex.split(part, comments=True)
        name = Path(words[0]).name
        if name == "make":
            targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            assert {word for word in words[1:] if "=" not in word} <= set(targets), page
        elif name == "bascule":
            assert bascule([*_command(words[1:]), "--help"]) == 0, f"{page}: {line}: no such command"
            text = capsys.readouterr().out
            for option in re.findall(r"(?<=\s)--?[a-z][a-z-]*", part):
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), f"{page}: {line}: no option {option}"
        elif name == "liftbridge":
            command.parse(words[1:])


def _command(words: list[str]) -> list[str]:
    """The words that name the command; all, if there is none of this name."""
    named = (words[:count] for count in (3, 2, 1))
    return next((name for name in named if name in COMMANDS), words[:1] if words[0].startswith("-") else words)
