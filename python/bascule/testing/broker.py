"""A standalone broker with its own nats-server and data directory, for one test or one session of tests.

`broker` runs it in a separate process: a test can kill it like a crash (`kill`) and start it again on the same data
(`start`). `broker_in_process` runs it on a thread of this process, which starts faster. Everything is stopped and
removed when the context ends.
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
    """A running `bascule serve --standalone` in a separate process."""

    __test__ = False  # pytest must not collect it

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        """As `RunningBroker`; the directory also has a ready file."""
        super().__init__(directory, settings)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the broker."""
        return int(self._ready["pid"])

    @property
    def is_running(self) -> bool:
        """Whether its process runs; false also after it has ended by itself."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Everything the broker has logged."""
        path = self.directory / "broker.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> None:
        """Start it; after a stop or kill, on the same data and addresses. Returns when it is ready.

        Raises:
            BrokerError: code `unavailable`: it ended, or was not ready within 30 s; the message has its last log lines.
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
            time.sleep(_POLL_SECONDS)  # there is nothing else to wait on for a file
        self._ready = json.loads(ready.read_text())

    def stop(self) -> None:
        """Stop it and wait for its end; after 20 s it is killed. Idempotent."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it like a crash, without signal handlers and flushes. Idempotent."""
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
    return error("unavailable", f"the test broker did not become ready: {' | '.join(lines) or 'its log is empty'}")


@contextmanager
def broker(
    *,
    durability: Durability = "memory",
    directory: Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Generator[TestBroker]:
    """Run a standalone broker while the context lasts.

    Args:
        durability: what an acknowledgement means; `memory` is faster and suitable for most tests.
        directory: directory for data and log, which is kept; `None` = a temporary one, which is removed.
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
    """As `broker`, on a thread of this process: starts faster, but cannot be killed. It logs to the logger `bascule`.
    Only its nats-server is a separate process.

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
    """The given directory, created if it does not exist; or a temporary one."""
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
    """As `broker`, without blocking the event loop while it starts and stops."""
    context = broker(durability=durability, directory=directory, settings=settings)
    running = await asyncio.to_thread(context.__enter__)
    try:
        yield running
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)
