"""The programs in `examples/`: each runs unchanged against a broker, and its output and records are as expected."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from bascule.cli import main
from bascule.testing import TestBroker, broker

from tests.docs.snippets import ROOT

EXAMPLES: Final = ROOT / "examples"
STREAM: Final = "orders"
PUBLISHED: Final = 1001
BY_KEY: Final = ["ada: 335", "ben: 333", "carl: 333"]
SMALL: Final = ["publish", "subscribe", "group", "arrow", "spark"]
MOST_LINES: Final = 60


def run(name: str, *arguments: str, cwd: Path) -> list[str]:
    """The lines that an example prints; it must succeed."""
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        cwd=cwd,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ended.returncode == 0, f"{name}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout.splitlines()


@pytest.fixture
def published(tmp_path: Path) -> Iterator[TestBroker]:
    """A broker as `make run` starts it, after `publish.py`; a new one for each test, since the names are fixed."""
    with broker(settings={"cursors.partitions": 1}) as running:
        stored, more = run("publish", running.address, cwd=tmp_path)
        assert re.fullmatch(r"stored in partition 0 at offset 0", stored)
        assert more == f"published {PUBLISHED - 1} more"
        yield running


def test_publish_stores_each_record_in_the_order_of_its_customer(published: TestBroker) -> None:
    with published.connect() as client:
        records = [
            record
            for number in (0, 1)
            for record in client.subscribe(STREAM, partition=number, start="earliest", stop="latest").records()
        ]
    first, *others = [record.value for record in records if record.key == b"ada"]
    assert first == b'{"item": "tea"}'
    assert others == [f'{{"item": "cup", "number": {number}}}'.encode() for number in range(0, 1000, 3)]
    assert len(records) == PUBLISHED


def test_subscribe_continues_where_it_stopped(published: TestBroker, tmp_path: Path) -> None:
    first = run("subscribe", published.address, cwd=tmp_path)
    assert first[-1] == f"read {PUBLISHED} records"
    assert {line.partition(":")[0] for line in first[:-1]} == {"partition 0", "partition 1"}
    assert run("subscribe", published.address, cwd=tmp_path) == ["read 0 records"]
    with published.connect() as client:
        client.publish(STREAM, "one more", partition=1)
    again = run("subscribe", published.address, cwd=tmp_path)
    assert again[-1] == "read 1 records"
    assert re.fullmatch(r"partition 1: offsets (\d+) to \1", again[0])


def test_a_group_processes_each_record_once(published: TestBroker, tmp_path: Path) -> None:
    first = run("group", published.address, cwd=tmp_path)
    assert first == ["assigned: [0, 1]", "revoked: [0, 1]", f"processed {PUBLISHED} records"]
    assert run("group", published.address, cwd=tmp_path)[-1] == "processed 0 records"


def test_arrow_reads_all_partitions_into_one_table(published: TestBroker, tmp_path: Path) -> None:
    title, *counts = run("arrow", published.address, cwd=tmp_path)
    assert title == f"{PUBLISHED} rows, columns partition, offset, timestamp, key, value"
    assert counts == BY_KEY


@pytest.mark.spark
@pytest.mark.slow
def test_spark_counts_and_copies_each_record_once(published: TestBroker, tmp_path: Path) -> None:
    first = run("spark", published.address, "lake", cwd=tmp_path)
    assert first == [*BY_KEY, f"{PUBLISHED} rows in {tmp_path / 'lake' / 'data'}"]
    with published.connect() as client:
        client.publish(STREAM, "one more", key="ben")
    *_, last = run("spark", published.address, "lake", cwd=tmp_path)
    assert last.startswith(f"{PUBLISHED + 1} rows in ")


@pytest.mark.spark
@pytest.mark.slow
def test_a_job_copies_each_record_once(published: TestBroker, tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    job = tmp_path / "jobs" / "job.yaml"
    job.write_text((EXAMPLES / "job.yaml").read_text().replace("127.0.0.1:9292", published.address))
    assert main(["pipeline", "run", "-f", str(job)]) == 0
    deltalake: Any = importlib.import_module("deltalake")
    orders, dead = (
        deltalake.DeltaTable(str(tmp_path / "orders-lake" / name)).to_pyarrow_table()
        for name in ("orders", "without-number")
    )
    assert sorted(orders["number"].to_pylist()) == list(range(1000))
    assert dead["expectations"].to_pylist() == [["has a number"]]
    assert len((EXAMPLES / "job.yaml").read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("name", SMALL)
def test_an_example_is_short_and_linked(name: str) -> None:
    path = EXAMPLES / f"{name}.py"
    assert len(path.read_text().splitlines()) <= MOST_LINES
    link = f"examples/{name}.py)"
    assert link in (ROOT / "README.md").read_text()
    pages = [page.name for page in (ROOT / "docs" / "how-to").glob("*.md") if link in page.read_text()]
    assert pages, f"no how-to page links {link}"


def test_arrow_needs_nothing_of_bascule() -> None:
    text = (EXAMPLES / "arrow.py").read_text()
    imported = re.findall(r"^(?:import|from) (\w+)", text, re.MULTILINE)
    assert "bascule" not in imported
    assert all(importlib.util.find_spec(name) for name in imported)
