"""The part of the demo that writes the Delta table: a job that is killed in the middle, run again, and checked.

The job is `examples/flights.yaml`, and `bascule pipeline run` runs it as on any machine. The proof compares the rows of
the table with those of the data set: their number, a checksum over all columns in the order of the offsets, duplicates.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

JOB: Final = Path(__file__).with_name("flights.yaml")
ADDRESS: Final = "127.0.0.1:9292"
KILL_AFTER: Final = 2
"""Epochs that the checkpoint has before the kill; the data set makes three times as many."""
RUN_SECONDS: Final = 300
"""Longest time of a run; only a machine that is busy with other things needs more than 20."""
SUMMARY_BYTES: Final = 8


@dataclass(frozen=True)
class Kill:
    """What a kill left behind.

    Attributes:
        finished: epochs that are finished by the checkpoint.
        begun: number of the epoch that had begun, and that the checkpoint has not as finished.
        is_written: whether the table has this epoch nevertheless.
        rows: rows of the table.
    """

    finished: int
    begun: int
    is_written: bool
    rows: int


@dataclass(frozen=True)
class Summary:
    """What is compared: the number of rows, and a checksum over them in their order."""

    rows: int
    checksum: str


class FlightsJob:
    """The job of the demo in a directory of its own.

    Args:
        directory: gets the job file, the table `flights`, the checkpoint, and what the runs print (`job.log`).
        address: of the broker.
    """

    def __init__(self, directory: Path, address: str) -> None:
        self.file: Final = directory / "job.yaml"
        self.file.write_text(JOB.read_text().replace(ADDRESS, address))
        self._log: Final = directory / "job.log"
        self._checkpoint: Final = directory / "flights-checkpoint"
        self.table: Final = directory / "flights"

    def run_and_kill(self) -> Kill:
        """Run the job, and kill it with -9 in the middle of an epoch, when the checkpoint has `KILL_AFTER` of them."""
        process = self._start()
        limit = time.monotonic() + RUN_SECONDS
        try:
            while True:
                if self._is_time():
                    os.killpg(process.pid, signal.SIGSTOP)  # so that what is seen here is what the kill finds
                    if begun := self._numbers("offsets") - self._numbers("commits"):
                        return Kill(self.epochs, max(begun), self._written() > self.epochs, self._rows())
                    os.killpg(process.pid, signal.SIGCONT)
                if process.poll() is not None:
                    sys.exit(f"demo: FAILED: the job ended before it could be killed; see {self._log}")
                if time.monotonic() > limit:
                    sys.exit(f"demo: FAILED: the job wrote too little in {RUN_SECONDS} s; see {self._log}")
                time.sleep(0.005)  # files appear by themselves; there is nothing to wait on
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # the command and the JVM of Spark
            process.wait()

    def run(self) -> int:
        """Run the job to its end; returns the rows of the source that this run read."""
        process = self._start()
        try:
            printed, _ = process.communicate(timeout=RUN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            sys.exit(f"demo: FAILED: the job did not end in {RUN_SECONDS} s; see {self._log}")
        if process.returncode != 0:
            sys.exit(f"demo: FAILED: the job ended with {process.returncode}; see {self._log}")
        return int(json.loads(printed)["rows"])

    @property
    def epochs(self) -> int:
        """Epochs that the checkpoint has as finished."""
        return len(self._numbers("commits"))

    def _start(self) -> "subprocess.Popen[bytes]":
        command = [Path(sys.executable).with_name("bascule"), "pipeline", "run", "-f", self.file, "--output", "json"]
        with self._log.open("ab") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)

    def _numbers(self, folder: str) -> set[int]:
        """Numbers of the epochs in a folder of the checkpoint."""
        return {int(path.name) for path in (self._checkpoint / folder).glob("[0-9]*") if path.name.isdigit()}

    def _is_time(self) -> bool:
        """Whether to kill now: at best when the table has an epoch that the checkpoint has not, which lasts for some
        milliseconds; after one more epoch at any time.
        """
        finished = self.epochs
        if finished < KILL_AFTER:
            return False
        return self._written() > finished or finished > KILL_AFTER

    def _written(self) -> int:
        """Epochs that the table has: one commit each, after the one that created the table."""
        return len(list((self.table / "_delta_log").glob("[0-9]*.json"))) - 1

    def _rows(self) -> int:
        delta: Any = import_module("deltalake")
        return int(delta.DeltaTable(str(self.table)).count())


def summary_of(rows: Iterable[Mapping[str, Any]], columns: Iterable[str]) -> Summary:
    """Number and checksum (SHA-256, the first 16 digits) of rows in their order, over the named columns."""
    names = tuple(columns)
    digest = hashlib.sha256()
    count = 0
    for row in rows:
        digest.update(json.dumps([row[name] for name in names]).encode() + b"\n")
        count += 1
    return Summary(count, digest.hexdigest()[: 2 * SUMMARY_BYTES])


def read_table(path: Path, columns: Iterable[str]) -> tuple[Summary, int]:
    """The summary of a table in the order of the offsets, and how many rows have an offset that another row has too.

    It is read with deltalake, which knows nothing of Bascule or of Spark.
    """
    delta: Any = import_module("deltalake")
    table = delta.DeltaTable(str(path)).to_pyarrow_table().sort_by("offset")
    duplicates = table.num_rows - len(table["offset"].unique())
    names = list(columns)
    rows = (row for batch in table.select(names).to_batches() for row in batch.to_pylist())
    return summary_of(rows, names), duplicates
