"""Long lists at the end of a program: with Ctrl-C, and in an exit handler."""

import signal
import socket
import subprocess
import sys
import textwrap

from bascule.testing import TestBroker

RECORDS = 20_000
"""Enough records for more than one part."""
LIMIT_S = 60.0


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_ctrl_c_ends_a_long_list_and_the_process() -> None:
    """The server never answers: without the signal, sent during the publish, the call would take ten minutes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = run(f"""
            import os, signal, threading
            import bascule

            with bascule.connect("bascule://127.0.0.1:{silent.getsockname()[1]}", timeout=600) as client:
                threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
                client.publish_many("s", [b""] * {RECORDS})
            """)
    assert done.returncode == -signal.SIGINT
    assert done.stderr.splitlines()[-1] == "KeyboardInterrupt"


def test_a_long_list_is_published_at_exit(running: TestBroker, stream: str) -> None:
    done = run(f"""
        import atexit
        import bascule

        def publish() -> None:
            with bascule.connect("bascule://{running.address}") as client:
                client.create_stream("{stream}", exist_ok=True)
                print(client.publish_many("{stream}", [b""] * {RECORDS})[-1].offset)

        atexit.register(publish)
        publish()
        """)
    assert (done.stdout.split(), done.stderr) == ([str(RECORDS - 1), str(2 * RECORDS - 1)], "")
