"""Commands without a running broker: they fail at once, or write a notice."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import pytest
from bascule.cli.slow_notice import NOTICE_AFTER_S
from bascule.testing import broker

from tests.integration.cli.commands import environment, run


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which nobody listens, reserved for the test."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_an_absent_broker_fails_at_once_with_all_addresses(port: int) -> None:
    end = run("stream", "list", url=f"liftbridge://127.0.0.1:{port},localhost:{port}")
    assert end.code == 5
    assert f"127.0.0.1:{port}: " in end.err
    assert f"localhost:{port}: " in end.err
    assert "check the address, and that a broker runs there (unavailable)" in end.err
    assert len(end.err.splitlines()) == 1, "nor does it wait, which would print a notice"


def test_a_timeout_waits_for_the_broker_and_writes_a_notice(port: int) -> None:
    end = run("stream", "list", "--timeout", "2", url=f"liftbridge://127.0.0.1:{port}")
    notice, failed = end.err.splitlines()
    assert end.code == 5
    assert notice == f"bascule: no answer from 127.0.0.1:{port} yet; waiting for at most another 1 s"
    assert f"127.0.0.1:{port}" in failed


@pytest.mark.parametrize(
    ("command", "left"),
    [(["stream", "list"], "9 s"), (["produce", "s"], "9 s"), (["consume", "s"], "9 s")],
)
def test_a_silent_broker_causes_a_notice(command: list[str], left: str) -> None:
    with broker() as started, started.connect() as client:
        client.create_stream("s")
        os.kill(started.pid, signal.SIGSTOP)
        try:
            end = run(*command, url=started.url)
        finally:
            os.kill(started.pid, signal.SIGCONT)
    notice, failed = end.err.splitlines()
    assert end.code == 5
    assert notice == f"bascule: no answer from {started.address} yet; waiting for at most another {left}"
    assert failed.startswith("bascule: ")


@pytest.mark.parametrize(("command", "record"), [("produce", ""), ("consume", "a\n")])
def test_waiting_for_records_causes_no_notice(command: str, record: str) -> None:
    with broker() as started, started.connect() as client:
        client.create_stream("s")
        waiting = [sys.executable, "-m", "bascule.cli", command, "s", *(["--count", "1"] if record else [])]
        with subprocess.Popen(
            waiting,
            env=environment(started.url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3 * NOTICE_AFTER_S)
            # It reads what comes after it has subscribed, which takes a while on a busy machine.
            while record and process.poll() is None:
                client.publish("s", b"a")
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert not record or out == record


def test_a_broker_that_starts_late_is_reached() -> None:
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
