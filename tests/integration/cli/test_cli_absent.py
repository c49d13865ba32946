"""Commands where no broker runs: not a moment of silence too long."""

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from bascule.testing import broker

from tests.integration.cli.commands import environment, run


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nobody listens on, and nobody else gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_the_failure_comes_at_once_with_every_address(port: int) -> None:
    began = time.monotonic()
    end = run("stream", "list", url=f"liftbridge://127.0.0.1:{port},localhost:{port}")
    assert time.monotonic() - began < 5, "the usual timeout is 10 s"
    assert end.code == 5
    assert f"127.0.0.1:{port}: " in end.err
    assert f"localhost:{port}: " in end.err
    assert "check the address, and that a broker runs there (unavailable)" in end.err
    assert len(end.err.splitlines()) == 1


def test_a_timeout_waits_for_it_and_says_so(port: int) -> None:
    end = run("stream", "list", "--timeout", "2", url=f"liftbridge://127.0.0.1:{port}")
    told, failed = end.err.splitlines()
    assert end.code == 5
    assert told == f"bascule: no answer from 127.0.0.1:{port} yet; trying for another 1 s"
    assert "Connection refused" in failed


def test_one_that_comes_is_reached() -> None:
    command = [sys.executable, "-m", "bascule.cli", "stream", "list", "--timeout", "30", "--output", "json"]
    with broker() as started:
        started.stop()
        with subprocess.Popen(
            command, env=environment(started.url), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as waiting:
            assert waiting.stderr is not None
            assert b"no answer from" in waiting.stderr.readline()
            started.start()
            out, _ = waiting.communicate(timeout=30)
    assert (waiting.returncode, out.strip()) == (0, b"[]")
