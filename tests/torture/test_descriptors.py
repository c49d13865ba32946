"""F48: a process without free descriptors defers its work, and resumes automatically."""

from __future__ import annotations

import resource
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from tests.torture import ledger
from tests.torture.driver import arguments, driver
from tests.torture.ledger import Kind

if TYPE_CHECKING:
    from pathlib import Path

SHAPE = {
    "partitions": 8,
    "segment": 12 << 10,
    "ahead": 4 << 10,
    "retain": 60 << 10,
    "in_flight": 8,
    "journal": 4,
    "journal_bytes": 32 << 10,
    "journal_files": 3,
    "compact": 1,
    "close": 1,
}
BATCHES = 1500
LIMIT_SECONDS = 240


def wait_for_more(process: subprocess.Popen[str], written: Path, entries: int) -> None:
    """Wait until the ledger has so many more entries, or the process has ended."""
    stop = time.monotonic() + LIMIT_SECONDS
    enough = ledger.length(written) + entries * ledger.ENTRY.size
    while ledger.length(written) < enough and process.poll() is None:
        assert time.monotonic() < stop, "the ledger does not grow"
        time.sleep(0.002)


@pytest.mark.timeout(600)  # its driver is built here unless that was done, and other builds may hold the lock
def test_descriptors_that_run_out_for_a_while_cost_nothing(tmp_path: Path) -> None:
    written, data = tmp_path / "ledger", tmp_path / "data"
    data.mkdir()
    driver()
    command = arguments("live", dir=data, ledger=written, seed=1, run_id=1, batches=BATCHES, **SHAPE)
    acked_meanwhile = 0
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, most = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
            while Kind.READY not in {entry.kind for entry in ledger.read(written)}:
                wait_for_more(process, written, 1)
            while process.poll() is None:
                before = ledger.length(written) // ledger.ENTRY.size
                # All further opens fail; a segment is full after about five batches.
                resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (1, most))
                wait_for_more(process, written, 200)
                if process.returncode is None:
                    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (most, most))
                squeezed = ledger.read(written)[before:]
                acked_meanwhile += sum(entry.kind == Kind.ACKED for entry in squeezed)
                wait_for_more(process, written, 100)
        finally:
            process.kill()
        _, output = process.communicate()
    entries = ledger.read(written)
    kinds = {entry.kind for entry in entries}
    assert acked_meanwhile > 0
    assert process.returncode == 0, output
    assert Kind.ENDED in kinds, output
    assert not kinds & {Kind.UNCERTAIN, Kind.COMMIT_FAILED, Kind.WRONG, Kind.FAILED}, output
    written.unlink()
    done = subprocess.run(
        arguments("read", dir=data, ledger=written, run_id=2, **SHAPE), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    verdict = ledger.Verdict()
    judge = ledger.Judge(verdict, "descriptors")
    judge.follow(entries)
    judge.follow(ledger.read(written))
    assert verdict.clean, verdict.details
