"""A process that erases by key is killed at each step: the same call again completes it, and nothing else is lost."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import bascule.lake
import pytest
from bascule.failpoints import VARIABLE, Name
from bascule.lake import ArchiveOptions
from bascule.lake.options import TableFormat

from tests.failpoints import Points
from tests.unit.lake.query import Query, batch, expected, options_of

ERASE = """
import json, sys
import bascule.lake
options = bascule.lake.ArchiveOptions(**json.loads(sys.argv[1]))
bascule.lake.erase(options, stream="s", key=b"key-1")
"""
STEPS: list[tuple[TableFormat, Name]] = [
    *(
        (kind, point)
        for kind in ("delta", "iceberg", "parquet")
        for point in ("erase.before_commit", "erase.after_commit")
    ),
    ("parquet", "archive.between_moves"),
]


def erase(options: ArchiveOptions, points: Points) -> int:
    """Erase in a process of its own; its exit code."""
    command = [sys.executable, "-c", ERASE, json.dumps(asdict(options))]
    return subprocess.run(
        command, check=False, timeout=120, env={**os.environ, VARIABLE: str(points.folder)}
    ).returncode


@pytest.mark.parametrize(("table_format", "point"), STEPS)
def test_a_killed_erasure_is_completed(tmp_path: Path, table_format: TableFormat, point: Name) -> None:
    query = Query(options_of(table_format, tmp_path / "lake"))
    query.epoch(0, [batch(0, 6)], [batch(0, 3, 1)])
    query.epoch(1, [batch(7, 8)])
    (tmp_path / "points").mkdir()
    points = Points(tmp_path / "points")
    points.arm(point, "kill")
    assert erase(query.options, points) == -signal.SIGKILL
    assert not points.is_armed(point)
    whole, left = expected((0, 0, 6), (1, 0, 3), (0, 7, 8)), [(0, 0), (0, 2), (0, 3), (0, 5), (1, 0), (1, 2)]
    assert set(query.rows()) <= set(whole)
    assert {row[:2] for row in query.rows()} >= set(left), "no other record is missing meanwhile"
    assert erase(query.options, points) == 0
    assert [row[:2] for row in query.rows()] == left
    assert query.epoch(2, [batch(8, 9)])
    source = bascule.lake.Source("s", 1, 0)
    assert bascule.lake.coverage(query.options, [source])[source].end == 9
