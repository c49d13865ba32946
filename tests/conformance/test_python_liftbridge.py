"""python-liftbridge 0.0.7, unmodified, against a real broker: every call it offers.

Its generated code is older than protobuf's rules of today: it loads only with the pure Python implementation, so each
scenario runs in a process of its own (`python_liftbridge/users.py`).
"""

import ast
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from bascule.testing import TestBroker

HERE = Path(__file__).parent / "python_liftbridge"
SCENARIOS = ["creates", "publishes", "publishes_to_a_subject", "begins_anywhere", "closes"]
OFFERED = {"fetch_metadata", "subscribe", "create_stream", "publish", "publish_to_subject", "close"}


def test_the_client_is_the_published_one() -> None:
    assert version("python-liftbridge") == "0.0.7"


def test_every_call_and_every_scenario_is_used() -> None:
    tree = ast.parse((HERE / "users.py").read_text())
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert used >= OFFERED
    taken = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in SCENARIOS}
    assert taken == set(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_its_users_see_what_they_know(running: TestBroker, stream: str, scenario: str) -> None:
    ways = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "PYTHONPATH": str(HERE), "TZ": "UTC"}
    played = subprocess.run(
        [sys.executable, str(HERE / "users.py"), scenario, running.address, stream],
        env={**os.environ, **ways},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert played.returncode == 0, played.stderr
    assert "Failed with" not in played.stdout, "the client prints what it swallows"
