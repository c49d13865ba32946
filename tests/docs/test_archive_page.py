"""The page about archives, followed in one session from the first command to the last table."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from bascule.testing import TestBroker, broker

from tests.docs.snippets import ROOT, commands, snippets
from tests.docs.test_readme import python, shell

PAGE = ROOT / "docs" / "how-to" / "archive.md"
CHECKED = """
from pathlib import Path
from deltalake import DeltaTable
print("tables", sorted(path.parent.name for path in Path("lake").glob("*/_delta_log")))
print("words", DeltaTable("lake/words").to_pyarrow_table().to_pylist())
"""
VALUES = [b"first order", b"second order"]
PRODUCE = """
import subprocess, sys
for stream, key, value in (("orders", "customer-17", "second order"), ("refunds", "customer-17", "a refund")):
    subprocess.run([sys.executable, "-m", "bascule.cli", "produce", stream, value, "--key", key], check=True)
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
    assert [line.split()[1] for line in lines] == ["serve", "stream", "produce", *["archive"] * 3]
    for line in [*lines[1:3], "bascule stream create refunds --subject 'refunds.>'"]:
        shell(line.replace("bascule ", ".venv/bin/bascule ", 1), started, tmp_path)
    first, *page = snippets(PAGE, "python")
    assert len(page) == 12
    blocks = [first.text, page[0].text, PRODUCE, *(snippet.text for snippet in page[1:]), CHECKED]
    printed = python(first._replace(text="\n".join(blocks)), started, tmp_path)
    shown = printed.splitlines()
    assert "[{'stream': 'orders', 'partition': 0, 'offset': 0, 'value': b'first order'}]" in shown
    records = [{"partition": 0, "offset": number, "value": value} for number, value in enumerate(VALUES)]
    assert f"iceberg {records}" in shown
    assert "0 snapshots expired" in shown
    assert "2 files merged" in shown
    assert "0 files deleted" in shown
    assert "both tiers 2" in shown
    assert "united 2" in shown
    assert "streamed 2" in shown
    assert "erased 1" in shown
    assert any(line.startswith("not reached: stream orders") for line in shown)
    assert "tables ['orders', 'orders-by-day', 'refunds-by-day', 'words']" in shown
    assert "words [{'subject': 'orders.>', 'count': 3}]" in shown, "two orders and a tombstone"
    counted, erased, again = (
        shell(line.replace("bascule ", ".venv/bin/bascule ", 1), started, tmp_path) for line in lines[3:]
    )
    assert "0 records in 0 files" in counted
    assert "tombstone in partition 0, offset 3 of orders: published" in erased
    assert "not reached: stream orders itself" in again
