"""The five-minute start of the README, from the first command to the last table."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from bascule.testing import TestBroker, broker

from tests.docs.snippets import ROOT, Snippet, commands, snippets

README = ROOT / "README.md"
SPARK = ROOT / "docs" / "how-to" / "spark.md"
COPIED = """
import pyarrow.parquet
print("copied", len(pyarrow.parquet.read_table("orders.parquet")))
"""
WRITTEN_ADDRESS = "127.0.0.1:9292"


@pytest.fixture
def started() -> Iterator[TestBroker]:
    """A broker as `bascule serve --standalone` starts it; a new one for each attempt, since the names are fixed."""
    with broker() as running:
        yield running


def run(command: list[str], running: TestBroker, cwd: Path) -> str:
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=cwd,
        env={**os.environ, "BASCULE_URL": running.url, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def shell(line: str, running: TestBroker, cwd: Path) -> str:
    """A command line, with `.venv/bin/bascule` as this interpreter's."""
    program = f"{sys.executable} -m bascule.cli"
    return run(["bash", "-c", line.replace(".venv/bin/bascule", program)], running, cwd)


def python(snippet: Snippet, running: TestBroker, cwd: Path) -> str:
    return run([sys.executable, "-c", snippet.text.replace(WRITTEN_ADDRESS, running.address)], running, cwd)


def test_the_five_minute_start(started: TestBroker, tmp_path: Path) -> None:
    # 1. streams, records: all commands but the one that starts the broker
    lines = [line for snippet in snippets(README, "sh") for line in commands(snippet) if "bascule" in line]
    printed = [shell(line, started, tmp_path) for line in lines if " serve " not in line]
    assert len(printed) == 3
    assert printed[-1] == "hello\nworld\n"
    # 2. from Python
    (plain,) = [snippet for snippet in snippets(README, "python") if "bascule.connect" in snippet.text]
    assert "pyarrow.RecordBatch" in python(plain, started, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_the_stream_is_a_spark_table_and_so_on_the_page_about_spark(started: TestBroker, tmp_path: Path) -> None:
    lines = [line for snippet in snippets(SPARK, "sh") for line in commands(snippet)]
    assert [line.split()[1] for line in lines] == ["serve", "stream", "produce", "spark"]
    for line in lines[1:]:
        shell(line.replace("bascule ", ".venv/bin/bascule ", 1), started, tmp_path)
    (table,) = [snippet for snippet in snippets(README, "python") if "bascule.spark" in snippet.text]
    page = [snippet.text for snippet in snippets(SPARK, "python")]
    assert len(page) == 7
    columns = "print('columns', len(orders.columns))"
    count = "print('since', late.count())"
    text = "\n".join([table.text, *page[:2], columns, page[2], columns, *page[3:6], count, page[6], COPIED])
    printed = python(table._replace(text=text), started, tmp_path)
    assert "hello spark" in printed
    found = [line for line in printed.splitlines() if line.startswith(("columns", "copied", "since"))]
    assert found == ["columns 6", "columns 2", "since 1", "copied 1"]
