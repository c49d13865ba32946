"""The page about replays, followed in one session from the first command to the last copy."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bascule.testing import TestBroker, broker

from tests.docs.snippets import ROOT, commands, snippets
from tests.docs.test_readme import python, shell

PAGE = ROOT / "docs" / "how-to" / "replay.md"
SHOWN = """
def values(stream):
    reader = spark.read.format("bascule").option("address", "127.0.0.1:9292").option("stream", stream)
    return sorted(bytes(row.value).decode() for row in reader.load().collect())
print("restored", values("restored"), "wide", values("wide"))
"""


@pytest.fixture
def started() -> Iterator[TestBroker]:
    """A new broker for each attempt, since the names are fixed."""
    with broker() as running:
        yield running


@pytest.mark.spark
@pytest.mark.slow
def test_the_page_is_followed_to_its_end(started: TestBroker, tmp_path: Path) -> None:
    lines = [line for snippet in snippets(PAGE, "sh") for line in commands(snippet)]
    assert [line.split()[1] for line in lines] == ["serve", "stream", "stream", "stream", "produce"]
    for line in lines[1:]:
        shell(line.replace("bascule ", ".venv/bin/bascule ", 1), started, tmp_path)
    first, *page = snippets(PAGE, "python")
    blocks = [first.text, *(snippet.text for snippet in page), SHOWN]
    printed = python(first._replace(text="\n".join(blocks)), started, tmp_path).splitlines()
    assert "preview 1 []" in printed
    assert "kinds of headers: names become text, values become bytes" in printed
    assert "replayed 1 1" in printed
    assert "again 1 0" in printed
    assert "copied 1" in printed
    assert "restored ['first order'] wide ['first order', 'first order']" in printed
    lines = [line for snippet in snippets(PAGE, "text") for line in commands(snippet)]
    assert [line.split()[2] for line in lines] == ["replay", "copy", "redrive", "redrive"]
    planned = shell(lines[0].replace("bascule ", ".venv/bin/bascule ", 1), started, tmp_path)  # of "spark", the first
    assert "restored" in planned
    for line in lines[:2]:
        shell(line.replace("bascule ", ".venv/bin/bascule ", 1), started, tmp_path)
