"""`make demo-cluster` with fewer flights: one kill of the leader, and every broker has each flight once."""

import re
import subprocess
import sys

from tests.docs.snippets import ROOT

FLIGHTS = 60_000


def test_the_flights_survive_kills_of_the_leader() -> None:
    command = [sys.executable, "examples/flights_cluster.py", str(FLIGHTS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"✗ b[123] is killed", done.stdout)
    assert done.stdout.count("has 60,000 flights, each once and in order") == 3
    assert "demo: OK: 60,000 flights acknowledged through " in done.stdout
