"""A driver of its own that runs a function of `bascule.spark`, so that it can be killed with its JVM and its workers.

`python tests/spark/replay_driver.py FOLDER` runs what `FOLDER/call.json` says.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import bascule.spark
from bascule.failpoints import VARIABLE, Name

from tests.failpoints import Points
from tests.waiting import until

ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT_S: Final = 300.0


class Driver:
    """One run, in a session of processes of its own.

    Args:
        folder: an existing folder of this run alone.
        call: the function of `bascule.spark`, and its options.
        hold: the point at which it waits when it first reaches it. It is armed before the run starts, so that the run
            cannot pass it; of several runs at once each needs that.
    """

    def __init__(self, folder: Path, call: dict[str, Any], *, hold: Name) -> None:
        (folder / "call.json").write_text(json.dumps(call))
        (folder / "points").mkdir()
        self._points = Points(folder / "points")
        self._hold: Name = hold
        self._points.arm(hold, "hold")
        self._output = folder / "output.txt"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, VARIABLE: str(self._points.folder), "PYTHONPATH": str(ROOT)},
                cwd=ROOT,
                start_new_session=True,
            )

    def wait_until_held(self) -> None:
        """Wait until it waits at its point.

        Raises:
            AssertionError: it has ended, or does not come there within `LIMIT_S`.
        """
        until(self._is_held, LIMIT_S, what=f"the driver waits at {self._hold}")

    def _is_held(self) -> bool:
        assert self._process.poll() is None, self._output.read_text(errors="replace")[-3000:]
        return self._points.is_held(self._hold) and not self._points.is_armed(self._hold)

    def continue_until_held_again(self) -> None:
        """Let it continue from the point at which it waits, until it waits there again."""
        self._points.arm(self._hold, "hold")
        self.release()
        self.wait_until_held()

    def release(self) -> None:
        """Let it continue from the point at which it waits."""
        (self._points.folder / f"{self._hold}.held").unlink()

    def wait(self) -> tuple[int, str]:
        """Wait for its end; its exit code and what it has printed."""
        code = self._process.wait(LIMIT_S)
        return code, self._output.read_text(errors="replace")

    def kill(self) -> None:
        """Kill all its processes at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in self._left():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _left(self) -> list[int]:
        """Processes of the session that have a group of their own."""
        found: list[int] = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError, ValueError):
                fields = path.read_text().rpartition(")")[2].split()
                if int(fields[3]) == self._process.pid and fields[0] != "Z":
                    found.append(int(path.parent.name))
        return found


def main() -> None:
    """Run the call."""
    call = json.loads((Path(sys.argv[1]) / "call.json").read_text())
    spark = bascule.spark.session("replay", master="local[2]", config={"spark.ui.enabled": False})
    outcome = getattr(bascule.spark, call["function"])(spark, **call["options"])
    if hasattr(outcome, "awaitTermination"):  # a query
        outcome.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
