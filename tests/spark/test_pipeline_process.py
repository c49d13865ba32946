"""Jobs as processes: their exit codes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

LIMIT_S = 600.0
JOB = """
name: orders
source: {{stream: s, address: "{address}", longPollMs: 100, maxOffsetsPerTrigger: 50}}
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


def test_a_job_without_its_broker_ends_with_5(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    text = JOB.format(address=address).replace("longPollMs: 100", "retryDeadlineMs: 100")
    (tmp_path / "job.yaml").write_text(
        text.replace("restarts: {firstDelay: 100ms}", "restarts: {most: 1, firstDelay: 100ms}")
    )
    job = start(tmp_path, "bascule.cli", "pipeline", "run", "-f", "job.yaml")
    job.communicate(timeout=LIMIT_S)
    errors = (tmp_path / "errors.txt").read_text()
    assert job.returncode == 5, errors[-3000:]
    assert "restart 1 of at most 1" in errors
    assert errors.strip().splitlines()[-1].startswith("bascule: ")
    assert "(unavailable)" in errors.strip().splitlines()[-1]
