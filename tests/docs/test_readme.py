"""The five-minute start of the README, from the first command to the last table."""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

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


def start_of_readme() -> list[str]:
    """The commands of the five-minute start, but for the one that starts the broker."""
    blocks = [snippet for snippet in snippets(README, "sh") if "pipeline" not in snippet.text]
    return [line for block in blocks for line in commands(block) if "bascule" in line and " serve " not in line]


def test_the_five_minute_start(started: TestBroker, tmp_path: Path) -> None:
    # 1. streams, records: all commands but the one that starts the broker
    printed = [shell(line, started, tmp_path) for line in start_of_readme()]
    assert len(printed) == 3
    assert printed[-1] == "hello\nworld\n"
    # 2. from Python
    (plain,) = [snippet for snippet in snippets(README, "python") if "bascule.connect" in snippet.text]
    assert "pyarrow.RecordBatch" in python(plain, started, tmp_path)


@pytest.mark.spark
@pytest.mark.slow
def test_the_stream_is_a_spark_table_and_so_on_the_page_about_spark(started: TestBroker, tmp_path: Path) -> None:
    lines = [line for snippet in snippets(SPARK, "sh") for line in commands(snippet)]
    assert [line.split()[1] for line in lines] == ["serve", "stream", "produce", "stream", "spark"]
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
    assert "harbour" in printed, "the header"
    found = [line for line in printed.splitlines() if line.startswith(("columns", "copied", "since"))]
    assert found == ["columns 6", "columns 2", "since 1", "copied 1"]


@pytest.mark.spark
@pytest.mark.slow
def test_the_job_of_the_readme(started: TestBroker, tmp_path: Path) -> None:
    for line in start_of_readme():
        shell(line, started, tmp_path)
    (job,) = snippets(README, "yaml")
    (tmp_path / "job.yaml").write_text(job.text.replace(WRITTEN_ADDRESS, started.address))
    (block,) = [snippet for snippet in snippets(README, "sh") if "pipeline" in snippet.text]
    for line in commands(block):
        shell(line, started, tmp_path)
    delta: Any = import_module("deltalake")
    tables = [delta.DeltaTable(str(tmp_path / "lake" / name)).to_pyarrow_table() for name in ("orders", "orders-dead")]
    assert tables[0].select(["offset", "id", "amount"]).to_pylist() == [{"offset": 2, "id": 1, "amount": 9.5}]
    assert sorted(tables[1]["value"].to_pylist()) == [b"hello", b"world"]
