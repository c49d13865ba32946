"""Runs the `bascule` command as a process, with its exit code and output."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, Final

READY_S: Final = 30.0
ENVIRONMENT: Final = {
    **{key: value for key, value in os.environ.items() if not key.startswith("BASCULE_")},
    "BASCULE_HTTP__LISTEN": "off",
    "BASCULE_NATS__FIRST_PORT": "0",
}


def command(*arguments: str | Path) -> list[str]:
    """The command line of `bascule <arguments>`."""
    return [sys.executable, "-m", "bascule.cli", *map(str, arguments)]


def run(*arguments: str | Path, timeout: float = 30.0, **options: Any) -> "subprocess.CompletedProcess[str]":
    """Run `bascule <arguments>` and wait for its end."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=timeout, env=ENVIRONMENT, check=False, **options
    )


def last_line(text: str) -> str:
    """The last line that is not empty."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""


def check_refusal(end: "subprocess.CompletedProcess[str]", code: int, *words: str) -> None:
    """Check that the command ended with `code` and one sentence that contains `words`, without a traceback."""
    assert end.returncode == code, end.stderr
    assert "Traceback" not in end.stderr + end.stdout
    assert "panicked" not in end.stderr
    sentence = last_line(end.stderr)
    for word in words:
        assert word in sentence, f"{word!r} is not in {sentence!r}"


class Served:
    """A running `bascule serve` with its output in a file."""

    def __init__(self, directory: Path, arguments: Sequence[str | Path]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.output: Final = directory / "output.log"
        self.ready_file: Final = directory / "ready.json"
        self.ready_file.unlink(missing_ok=True)
        with self.output.open("wb") as output:
            self.process: Final = subprocess.Popen(
                command("serve", "--ready-file", self.ready_file, *arguments),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=ENVIRONMENT,
            )  # fmt: skip

    @property
    def log(self) -> str:
        """Its complete output."""
        return self.output.read_text(errors="replace")

    def wait_ready(self) -> None:
        """Wait until it is ready."""
        wait_for(lambda: self.ready_file.exists() or self.process.poll() is not None, READY_S, "ready")
        assert self.process.poll() is None, self.log

    def end(self, how: signal.Signals = signal.SIGTERM, timeout: float = 20.0) -> int:
        """Send a signal and wait. Returns the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(how)
        return self.process.wait(timeout)


@contextlib.contextmanager
def serving(directory: Path, *arguments: str | Path) -> Generator[Served]:
    """A `bascule serve` that is always stopped at the end."""
    served = Served(directory, arguments)
    try:
        yield served
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.process.wait()


def children(pid: int) -> list[int]:
    """Process ids of the children of a process, e.g. its nats-server."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def is_running(pid: int) -> bool:
    """Whether a process of this id exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], object], limit_s: float, what: str) -> None:
    """Poll until a condition holds."""
    limit = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < limit, f"not {what} after {limit_s:g} s"
        time.sleep(0.02)
