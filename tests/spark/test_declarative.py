"""A project of Spark Declarative Pipelines, from the template through two runs."""

import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from bascule import testing
from bascule.spark.declarative import create_project, run_project

from tests.integration.faults.process import children, is_running
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def ids(folder: Path) -> list[int]:
    """The column `id` of the decoded table, sorted."""
    rows = ds.dataset(folder / "warehouse" / "web_orders", format="parquet", exclude_invalid_files=True).to_table()
    return sorted(rows.column("id").to_pylist())


@pytest.mark.long
def test_the_second_run_reads_only_what_is_new(tmp_path: Path) -> None:
    folder = tmp_path / "an orders project"
    with testing.broker() as broker, broker.connect() as client:
        client.create_stream("web.orders")
        client.create_stream("web.orders_dlq")
        for value in (b'{"id": 1, "amount": 2.5}', b'{"id": 2, "amount": 3}', b"not JSON", b'{"id": 3, "amount": "x"}'):
            client.publish("web.orders", value)
        create_project(folder, stream="web.orders", address=broker.address, schema="id BIGINT, amount DOUBLE")
        assert run_project(folder, master="local[2]") == 0
        assert ids(folder) == [1, 2]
        client.publish("web.orders", b'{"id": 4, "amount": 1}')
        assert run_project(folder, master="local[2]") == 0
        assert ids(folder) == [1, 2, 4], "the second run stores the new record, and none twice"
        with client.subscribe("web.orders_dlq", stop="latest") as batches:
            dead = [record.value for batch in batches for record in batch]
        assert dead == [b"not JSON", b'{"id": 3, "amount": "x"}']


@pytest.mark.long
def test_without_a_schema_values_are_variants_and_a_dry_run_stores_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    with testing.broker() as broker, broker.connect() as client:
        client.create_stream("orders")
        client.create_stream("orders_dlq")
        client.publish("orders", b'{"id": 1}')
        create_project(folder, stream="orders", address=broker.address)
        assert run_project(folder, master="local[2]", dry_run=True) == 0
        assert not list((folder / "warehouse").rglob("*.parquet"))
        assert run_project(folder, master="local[2]") == 0
        assert len(list((folder / "warehouse" / "orders").glob("*.parquet"))) == 1


def test_a_failed_run_exits_with_the_error_of_the_flow(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    with testing.broker() as broker:
        create_project(folder, stream="absent", address=broker.address, schema="id BIGINT")
        command = [".venv/bin/bascule", "spark", "run", str(folder), "--master", "local[2]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert "[stream_not_found] stream default/absent does not exist" in done.stdout + done.stderr


def below(pid: int) -> list[int]:
    """Process ids of the children of a process, and of theirs."""
    return [each for child in children(pid) for each in (child, *below(child))]


def names(pids: Iterable[int]) -> set[str]:
    found: set[str] = set()
    for pid in pids:
        with suppress(OSError):  # it has ended
            found |= {Path(f"/proc/{pid}/comm").read_text().strip()} if is_running(pid) else set()
    return found


def test_sigterm_ends_a_run_with_all_its_processes_while_its_jvm_starts(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    create_project(folder, stream="orders", address="127.0.0.1:1", schema="id BIGINT")
    command = [".venv/bin/bascule", "spark", "run", str(folder), "--master", "local[2]"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: "java" in names(below(process.pid)), what="a JVM")
        started = below(process.pid)
    finally:
        process.terminate()
        code = process.wait(60)
    assert code == 130
    assert not names(started)
