"""python-liftbridge 0.0.7, unmodified, against a real broker: all its calls.

Its generated code is too old for the present protobuf: it loads only with the pure Python implementation, so each
scenario runs in a separate process (`python_liftbridge/users.py`).
"""

import ast
import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest
from bascule.testing import TestBroker, broker

from tests.certificates import Authority

HERE = Path(__file__).parent / "python_liftbridge"
SCENARIOS = ["creates", "publishes", "publishes_to_a_subject", "begins_anywhere", "closes"]
IMPOSSIBLE = {"start_at_time"}
"""Arguments that need a terabyte in the client, with any broker (`"…%s" % time * 10**9`)."""
RECEIVED = {"offset", "timestamp"}
"""Fields of a received message that publishers do not set."""


def offered() -> tuple[set[str], set[str]]:
    """The methods of the client's classes and their arguments, from the source, since it cannot be imported."""
    found = find_spec("python_liftbridge")
    assert found is not None
    assert found.submodule_search_locations is not None
    (package,) = found.submodule_search_locations
    calls, made_with = set[str](), set[str]()
    for name in ("python_liftbridge", "base", "message", "stream"):
        for node in ast.walk(ast.parse((Path(package) / f"{name}.py").read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                made_with |= {item.arg for item in node.args.args[-len(node.args.defaults) :]}
            elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                calls.add(node.name)
    return calls, made_with


def test_the_client_is_unmodified() -> None:
    assert version("python-liftbridge") == "0.0.7"


def test_every_call_and_every_argument_is_used() -> None:
    tree = ast.parse((HERE / "users.py").read_text())
    calls, made_with = offered()
    assert len(calls) == 14
    assert len(made_with) > 12
    assert not calls - {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} - IMPOSSIBLE
    assert not made_with - {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)} - RECEIVED
    taken = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in SCENARIOS}
    assert taken == set(SCENARIOS)


def play(scenario: str, address: str, stream: str, *more: str) -> None:
    """Run a scenario in a separate process."""
    ways = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python", "PYTHONPATH": str(HERE), "TZ": "UTC"}
    played = subprocess.run(
        [sys.executable, str(HERE / "users.py"), scenario, address, stream, *more],
        env={**os.environ, **ways},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert played.returncode == 0, played.stderr
    assert "Failed with" not in played.stdout, "the client prints the errors that it catches"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_users_of_python_liftbridge_work_as_before(running: TestBroker, stream: str, scenario: str) -> None:
    play(scenario, running.address, stream)


def test_users_of_python_liftbridge_work_over_tls(tmp_path: Path, stream: str) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("broker")
    settings = {"tls.certificate_file": str(own.cert), "tls.key_file": str(own.key)}
    with broker(settings=settings) as secured:
        play("publishes", secured.address, stream, str(authority.ca))
