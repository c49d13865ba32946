"""Starts and kills the processes of a Spark application: the driver with its JVM, and Python workers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from bascule.failpoints import VARIABLE

from tests.failpoints import Points
from tests.waiting import until

LIMIT_S: Final = 600.0
"""Longest time for one thing to happen, on a machine that builds and tests other things meanwhile."""
_STACKS_S: Final = 10.0
_LAST: Final = 8000
"""Characters of the output that a failure has."""
DAEMONS: Final = {"bascule.spark.daemon", "pyspark.daemon"}
"""Modules that fork Python workers; a worker has the same command line as its parent."""


class Application:
    """One run of an application at a time, in a session of its own.

    Attributes:
        folder: of the application, with its output.
        module: that is run with the folder as its argument, such as `tests.torture.copying_app`.
        points: of its workers.
    """

    def __init__(self, folder: Path, module: str) -> None:
        self.folder, self.module = folder, module
        (folder / "points").mkdir(parents=True, exist_ok=True)
        self.points = Points(folder / "points")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether the driver runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def output(self) -> str:
        """The last lines of all runs so far: what the driver, its JVM and its workers printed."""
        path = self.folder / "output.txt"
        return path.read_text(errors="replace")[-_LAST:] if path.exists() else ""

    @property
    def diagnosis(self) -> str:
        """For the text of a failure: whether the driver runs, the stacks of its threads if so, and its output."""
        if self._process is None:
            return f"the application does not run; its output ends with:\n{self.output}"
        if (code := self._process.poll()) is not None:
            return f"the application ended with {code}; its output ends with:\n{self.output}"
        self._print_stacks()
        return f"the application runs; its output ends with:\n{self.output}"

    def _print_stacks(self) -> None:
        """Make the driver append the stacks of its threads to the output; see `copying_app.session`."""
        assert self._process is not None
        path = self.folder / "output.txt"
        before = path.stat().st_size
        if not (self.folder / "prints-stacks").exists():
            return
        os.kill(self._process.pid, signal.SIGUSR1)
        with suppress(AssertionError):  # a driver that is stopped or starved prints none, and the rest is still of use
            until(lambda: path.stat().st_size > before, _STACKS_S)

    def start(self) -> None:
        """Start it, and wait until its queries run."""
        for name in ("running", "stop", "prints-stacks"):
            (self.folder / name).unlink(missing_ok=True)
        environment = {**os.environ, VARIABLE: str(self.points.folder)}
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self.module, str(self.folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=Path(__file__).resolve().parents[2],
                start_new_session=True,
            )
        until(self._runs, LIMIT_S, what=lambda: f"the queries run; {self.diagnosis}")

    def _runs(self) -> bool:
        assert self.is_running, self.diagnosis
        return (self.folder / "running").exists()

    def kill(self) -> None:
        """Kill every process of it at once, as the end of its machine."""
        if self._process is None:
            return
        for pid, _ in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        # Workers that were being forked.
        for pid, _ in self._processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process = None
        self.points.clear()

    def kill_worker(self, chance: random.Random) -> None:
        """Kill one of the Python processes in which tasks, planners and commits run."""
        found: list[int] = []

        def has_some() -> bool:
            processes = list(self._processes())
            daemons = {pid for pid, _ in processes if DAEMONS.intersection(_command(pid))}
            found[:] = [pid for pid, parent in processes if pid in daemons and parent in daemons]
            return bool(found)

        until(has_some, LIMIT_S, what=lambda: f"there is a worker; {self.diagnosis}")
        with suppress(ProcessLookupError):
            os.kill(chance.choice(found), signal.SIGKILL)

    def stop(self) -> None:
        """Let it finish what is there, and end.

        Raises:
            AssertionError: it does not end, or fails.
        """
        if self._process is None:
            return
        (self.folder / "stop").touch()
        try:
            code = self._process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        assert code == 0, f"the application was to end with 0 within {LIMIT_S:.0f} s; {self.diagnosis}"
        self._process = None

    def _processes(self) -> Iterator[tuple[int, int]]:
        """Process id and that of the parent, of every process of the session."""
        assert self._process is not None
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, ValueError):
                fields = path.read_text().rpartition(")")[2].split()
                state, parent, session = fields[0], int(fields[1]), int(fields[3])
                if session == self._process.pid and state != "Z":
                    yield int(path.parent.name), parent


def _command(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []
