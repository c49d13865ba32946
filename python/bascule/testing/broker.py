"""A standalone broker with its own nats-server and data directory, for one test or one session of tests.

`broker` gives it a process of its own: a test can kill it as a crash would (`kill`) and start it again on the same
data (`start`). `broker_in_process` runs it on a thread here, which starts faster. Nothing is left when the context
ends, however it ends.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Literal

from bascule.errors import BrokerError, error
from bascule.testing.in_process import InProcessBroker
from bascule.testing.running import RunningBroker

__all__ = ["TestBroker", "broker", "broker_async", "broker_in_process"]

Durability = Literal["disk", "memory"]
READY_SECONDS: Final = 30.0
STOP_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.01


class TestBroker(RunningBroker):
    """A running `bascule serve --standalone` in a process of its own."""

    __test__ = False  # pytest must not collect it

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        """As `RunningBroker`; a ready file lies in the directory too."""
        super().__init__(directory, settings)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the broker."""
        return int(self._ready["pid"])

    @property
    def log(self) -> str:
        """Everything the broker has logged."""
        path = self.directory / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start it, on the same data and addresses when it ran before; returns when it is ready.

        Raises:
            BrokerError: code `unavailable`: it ended, or was not ready within 30 s; the message has its last words.
        """
        ready = self.directory / "ready.json"
        ready.unlink(missing_ok=True)
        port = self.address.rpartition(":")[2] if self._ready else "0"
        (self.directory / "broker.json").write_text(json.dumps({**self._settings, "broker.port": int(port)}))
        command = [sys.executable, "-m", "bascule.cli", "serve", "--standalone"]
        command += ["--config", str(self.directory / "broker.json"), "--data-dir", str(self.directory / "data")]
        with (self.directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--ready-file", str(ready)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={key: value for key, value in os.environ.items() if not key.startswith("BASCULE_")},
            )
        limit = time.monotonic() + READY_SECONDS
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > limit:
                self.kill()
                raise _not_ready(self.log)
            time.sleep(_POLL_SECONDS)  # the file appears by itself; there is nothing to wait on
        self._ready = json.loads(ready.read_text())

    def stop(self) -> None:
        """Ask it to drain, and wait for its end. Idempotent. One that does not end within 20 s is killed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it as a crash would: no signal handler, no flush. Idempotent."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _not_ready(log: str) -> BrokerError:
    lines = log.strip().splitlines()[-5:]
    return error("unavailable", f"the test broker did not become ready: {' | '.join(lines) or 'it said nothing'}")


@contextmanager
def broker(
    *,
    durability: Durability = "memory",
    directory: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Generator[TestBroker]:
    """Run a standalone broker while the context lasts.

    Args:
        durability: what an acknowledgement stands for; `memory` is faster and right for most tests.
        directory: where data and log go and stay; `None` = a temporary directory that is removed.
        settings: further settings, dotted keys as in `bascule config show`, e.g. {"streams.segment_max_bytes": 65536}.

    Raises:
        BrokerError: code `unavailable`: it did not start.
    """
    with _directory(directory) as place:
        running = TestBroker(place, {"streams.durability": durability, "log.format": "text", **(settings or {})})
        try:
            running.start()
            yield running
        finally:
            running.stop()


@contextmanager
def broker_in_process(
    *,
    durability: Durability = "memory",
    directory: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Generator[InProcessBroker]:
    """As `broker`, on a thread of this process: faster to start, but not to be killed. Its logs go where the logger
    `bascule` sends them. Only its nats-server is a process.

    Raises:
        BrokerError: it did not start.
    """
    with _directory(directory) as place:
        running = InProcessBroker(place, {"streams.durability": durability, **(settings or {})})
        try:
            running.start()
            yield running
        finally:
            running.stop()


@contextmanager
def _directory(wanted: Path | None) -> Generator[Path]:
    """The directory that is wanted, made when it is not there; or a temporary one."""
    if wanted is not None:
        wanted.mkdir(parents=True, exist_ok=True)
        yield wanted
        return
    with tempfile.TemporaryDirectory(prefix="bascule-", ignore_cleanup_errors=True) as temporary:
        yield Path(temporary)


@asynccontextmanager
async def broker_async(
    *,
    durability: Durability = "memory",
    directory: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> AsyncGenerator[TestBroker]:
    """The same as `broker`, without blocking the event loop while it starts and stops."""
    context = broker(durability=durability, directory=directory, settings=settings)
    running = await asyncio.to_thread(context.__enter__)
    try:
        yield running
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
