"""Workers of PySpark's daemon without a JVM: the test has the other end of their sockets."""

import importlib.util
import os
import select
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

pytestmark = pytest.mark.spark

WORKER = '''
"""A task: a number that is echoed. Fails as those of PySpark do."""
import sys
from pyspark.serializers import read_int, write_int
from pyspark.util import handle_worker_exception

def main(infile, outfile):
    {prepare}
    try:
        number = read_int(infile)
    except BaseException as failure:
        handle_worker_exception(failure, outfile)
        sys.exit(-1)
    write_int(number, outfile)
    if number == 70:
        # Rows of a task whose reader has enough: the end is met in the middle of the output.
        outfile.flush()
        while True:
            outfile.write(bytes(65536))
    if number == 71:
        raise RuntimeError("a defect")
'''
SLOW = 70
FAILING = 71
PYSPARKS = "pyspark.daemon"
LEAVING = [
    (PYSPARKS, "from bascule.spark import source"),
    (PYSPARKS, "from bascule.spark.idle import leave_when_closed; leave_when_closed()"),
    ("bascule.spark.daemon", "pass"),
]


def read(stream: IO[bytes]) -> int:
    return struct.unpack("!i", stream.read(4))[0]


@contextmanager
def daemon(tmp_path: Path, module: str, prepare: str) -> Generator[str]:
    """A daemon, with workers of this test; the path of its socket."""
    (tmp_path / "pyspark_task.py").write_text(WORKER.replace("{prepare}", prepare))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    command = [sys.executable, "-m", module, "pyspark_task"]
    # The path of a Unix socket has at most 107 bytes, which the folder of a test may exceed.
    with (
        tempfile.TemporaryDirectory(prefix="idle-") as sockets,
        (tmp_path / "stderr").open("wb") as stderr,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**environment, "PYTHON_WORKER_FACTORY_SOCK_DIR": sockets},
        ) as process,
    ):
        assert process.stdout is not None
        yield process.stdout.read(read(process.stdout)).decode()


def said(tmp_path: Path, module: str, prepare: str) -> str:
    """Standard error of a worker that ran two tasks and is then released."""
    with daemon(tmp_path, module, prepare) as path:
        with socket.socket(socket.AF_UNIX) as channel, channel.makefile("rb") as answers:
            channel.connect(path)
            descriptor = os.pidfd_open(read(answers))
            for number in (5, 6):
                channel.sendall(struct.pack("!i", number))
                assert read(answers) == number
        try:
            assert select.select([descriptor], [], [], 20)[0], "the worker did not end"
        finally:
            os.close(descriptor)
    return (tmp_path / "stderr").read_text()


def said_when_closed_early(tmp_path: Path, module: str, prepare: str) -> str:
    """Standard error of a worker whose socket is closed before its answer is read."""
    with daemon(tmp_path, module, prepare) as path:
        with socket.socket(socket.AF_UNIX) as channel, channel.makefile("rb") as answers:
            channel.connect(path)
            descriptor = os.pidfd_open(read(answers))
            channel.sendall(struct.pack("!i", SLOW))
            assert read(answers) == SLOW
        try:
            assert select.select([descriptor], [], [], 20)[0], "the worker did not end"
        finally:
            os.close(descriptor)
    return (tmp_path / "stderr").read_text()


@pytest.mark.parametrize(("module", "prepare"), LEAVING)
def test_a_task_that_is_ended_early_leaves_silently(tmp_path: Path, module: str, prepare: str) -> None:
    assert said_when_closed_early(tmp_path, module, prepare) == ""


def test_without_the_fix_the_end_is_a_traceback(tmp_path: Path) -> None:
    """When this fails, PySpark is fixed, and this part of `bascule.spark.idle` can be removed."""
    assert "BrokenPipeError" in said_when_closed_early(tmp_path, PYSPARKS, "pass")


@pytest.mark.parametrize(("module", "prepare"), LEAVING)
def test_other_errors_are_still_printed(tmp_path: Path, module: str, prepare: str) -> None:
    with daemon(tmp_path, module, prepare) as path, socket.socket(socket.AF_UNIX) as channel:
        channel.connect(path)
        with channel.makefile("rb") as answers:
            descriptor = os.pidfd_open(read(answers))
            channel.sendall(struct.pack("!i", FAILING))
            try:
                assert select.select([descriptor], [], [], 20)[0], "the worker did not end"
            finally:
                os.close(descriptor)
    assert "RuntimeError: a defect" in (tmp_path / "stderr").read_text()


@pytest.mark.parametrize(("module", "prepare"), LEAVING)
def test_an_idle_worker_that_is_released_ends_silently(tmp_path: Path, module: str, prepare: str) -> None:
    assert said(tmp_path, module, prepare) == ""


def test_without_the_fix_it_fails_on_the_closed_socket(tmp_path: Path) -> None:
    """When PySpark has fixed that, `bascule.spark.idle` can be removed."""
    assert "BrokenPipeError" in said(tmp_path, PYSPARKS, "pass")


PLANNER = """
import sys
from types import SimpleNamespace
from bascule.spark.idle import leave_stopped_planner

sys.modules["__main__"] = SimpleNamespace(__spec__=SimpleNamespace(name={name!r}))
try:
    try:
        raise {failure}
    finally:
        leave_stopped_planner()  # PySpark calls the reader's `stop` here
except BaseException as failure:
    print("PySpark reports", type(failure).__name__)
"""
RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"


@pytest.mark.parametrize(
    ("name", "failure", "said"),
    [
        (RUNNER, "EOFError", ""),
        (RUNNER, "BrokenPipeError", ""),
        (RUNNER, "ValueError", "PySpark reports ValueError\n"),
        ("program", "EOFError", "PySpark reports EOFError\n"),
    ],
)
def test_a_planner_whose_query_has_ended_leaves_without_a_traceback(name: str, failure: str, said: str) -> None:
    code = PLANNER.format(name=name, failure=failure)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == (said, "")


def test_the_module_of_the_planner_is_pysparks_and_calls_stop() -> None:
    """If this fails with a new PySpark, look again at what its planner does when Spark closes its socket."""
    found = importlib.util.find_spec(RUNNER)
    assert found is not None
    assert found.origin is not None
    text = Path(found.origin).read_text()
    assert "finally:\n            reader.stop()\n    except BaseException as e:" in text
