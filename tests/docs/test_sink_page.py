"""The page about the sink, followed in one session from the first command to the last write."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bascule.testing import TestBroker, broker

from tests.docs.snippets import ROOT, commands, snippets
from tests.docs.test_readme import python, shell

PAGE = ROOT / "docs" / "how-to" / "sink.md"
CHECKED = """
read = spark.read.format("bascule").option("address", "127.0.0.1:9292").option("stream", "large")
print("stored", sorted(bytes(row.value).decode() for row in read.load().collect()))
dead = spark.read.format("bascule").option("address", "127.0.0.1:9292").option("stream", "large-dead")
print("dead", [bytes(row.value).decode() == "x" * 2_000_000 for row in dead.load().collect()])
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
    assert [line.split()[1] for line in lines] == ["serve", "stream", "stream", "produce", "stream"]
    for line in lines[1:]:
        shell(line.replace("bascule ", ".venv/bin/bascule ", 1), started, tmp_path)
    first, *page = snippets(PAGE, "python")
    blocks = [first.text, *(snippet.text for snippet in page), CHECKED]
    printed = python(first._replace(text="\n".join(blocks)), started, tmp_path)
    order = '{"id": 1, "total": 250}'
    assert f"stored {sorted([order, order, '0', '1', '2', 'small'])}" in printed.splitlines()
    assert "dead [True]" in printed.splitlines()
