"""Jobs as processes: killed at once, stopped cleanly, restarted; every record is in exactly one place afterwards."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bascule.failpoints import VARIABLE
from harness import Streams

from tests.failpoints import Points
from tests.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

LIMIT_S = 600.0
JOB = """
name: orders
source: {{stream: s, address: "{address}", longPollMs: 100, maxOffsetsPerTrigger: 100}}
decode:
  value: {{format: json, schema: {{inline: "id BIGINT"}}}}
  onDecodeError: dlq
targets: [{{format: delta, path: good}}]
sql: SELECT stream, partition, offset, value.id AS id FROM source
deadLetters: {{format: delta, path: dead}}
checkpoint: checkpoint
restarts: {{firstDelay: 100ms}}
spark: {{master: "local[2]", config: {{spark.driver.memory: 1g}}}}
"""


def start(folder: Path, *command: str, **variables: str) -> "subprocess.Popen[str]":
    with (folder / "errors.txt").open("a") as errors:
        return subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=folder,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", **variables},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )


def epochs(process: "subprocess.Popen[str]", count: int) -> list[dict[str, Any]]:
    """The next reports of a running job."""
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(count)]
    return [json.loads(line) for line in lines]


def offsets(folder: Path, name: str) -> list[int]:
    delta: Any = __import__("deltalake")
    if not (folder / name / "_delta_log").exists():
        return []
    return sorted(delta.DeltaTable(str(folder / name)).to_pyarrow_table()["offset"].to_pylist())


def put(streams: Streams, count: int) -> None:
    """Every tenth record cannot be decoded."""
    end = streams.position("s")[1]
    streams.put("s", [b"{" if number % 10 == 3 else b'{"id": %d}' % number for number in range(end, end + count)])


def test_a_job_that_is_killed_at_any_point_loses_and_repeats_nothing(streams: Streams, tmp_path: Path) -> None:
    streams.create("s")
    put(streams, 200)
    (tmp_path / "job.yaml").write_text(JOB.format(address=streams.address))
    run = ("bascule.cli", "pipeline", "run", "-f", "job.yaml", "--output", "ndjson")

    # 1. The process that commits dies after a commit: the job restarts by itself.
    (tmp_path / "points").mkdir()
    points = Points(tmp_path / "points")
    points.arm("archive.after_commit", "kill")
    job = start(tmp_path, *run, "--mode", "availableNow", **{VARIABLE: str(points.folder)})
    output, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, (tmp_path / "errors.txt").read_text()[-3000:]
    reports = [json.loads(line) for line in output.splitlines()]
    assert not points.is_armed("archive.after_commit"), "the point was not reached"
    assert reports[-1]["restarts"] == 1
    assert reports[-1]["total_rows"] == 200
    assert sum(report["metrics"]["decode"]["value_errors"] for report in reports) >= 20

    # 2. The driver dies between a target and the dead letters, and then at any time.
    put(streams, 400)
    points.arm("job.target_written", "kill")
    job = start(tmp_path, *run, **{VARIABLE: str(points.folder)})
    job.communicate(timeout=LIMIT_S)
    assert job.returncode == -signal.SIGKILL, (tmp_path / "errors.txt").read_text()[-3000:]
    job = start(tmp_path, *run)
    epochs(job, 2)
    job.kill()
    job.communicate()

    # 3. The other entry continues, and SIGTERM ends it after the epoch that it is writing.
    job = start(tmp_path, "bascule.pipeline", "job.yaml")

    def has_written_all() -> bool:
        assert job.poll() is None, (tmp_path / "errors.txt").read_text()[-3000:]
        return len(offsets(tmp_path, "good")) + len(offsets(tmp_path, "dead")) >= 600

    until(has_written_all, LIMIT_S, every_s=0.5)
    put(streams, 300)
    epochs(job, 1)
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0

    # 4. The rest.
    job = start(tmp_path, *run, "--mode", "availableNow")
    job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0
    assert offsets(tmp_path, "dead") == [number for number in range(900) if number % 10 == 3]
    assert offsets(tmp_path, "good") == [number for number in range(900) if number % 10 != 3]


def test_a_job_without_its_broker_ends_with_5(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    (tmp_path / "job.yaml").write_text(JOB.format(address=address))
    job = start(tmp_path, "bascule.cli", "pipeline", "run", "-f", "job.yaml")
    job.communicate(timeout=LIMIT_S)
    errors = (tmp_path / "errors.txt").read_text()
    assert job.returncode == 5, errors[-3000:]
    assert "restart " not in errors
    assert "Traceback" not in errors
    last = errors.strip().splitlines()[-1]
    assert re.match(r"bascule: job \S+ has not started, because the broker of source\.address was not reached: ", last)
    assert f"broker at {address}: Connection refused; check the address" in last
    assert "set source.retryDeadlineMs" in last
    assert "(unavailable)" in last
