"""A broker on a thread of this process."""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from bascule import config
from bascule.server import Broker
from bascule.testing.running import RunningBroker

__all__ = ["InProcessBroker"]

START_SECONDS: Final = 30.0
STOP_SECONDS: Final = 30.0


class InProcessBroker(RunningBroker):
    """A broker whose control plane runs on a thread of this process; its data plane has its own threads."""

    def __init__(self, directory: Path, settings: Mapping[str, object]) -> None:
        """As `RunningBroker`."""
        super().__init__(directory, settings)
        self._life: tuple[threading.Thread, asyncio.AbstractEventLoop, asyncio.Event] | None = None

    def start(self) -> None:
        """As `RunningBroker.start`.

        Raises:
            BrokerError: it could not start.
        """
        port = self.address.rpartition(":")[2] if self._ready else "0"
        fixed: dict[str, object] = {"nats.standalone": True, "data_dir": str(self.directory / "data")}
        flags = {**self._settings, **fixed, "broker.port": int(port)}
        settings = config.load(flags=flags, environment={})
        ready: Future[tuple[Broker, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        # a daemon thread: a test that hangs while stopping must not block the end of the interpreter
        thread = threading.Thread(target=_run, args=(settings, ready), name="bascule-broker", daemon=True)
        thread.start()
        running, loop, stop = ready.result(START_SECONDS)
        self._life = (thread, loop, stop)
        self._ready = {
            "address": running.address,
            "nats_url": running.nats_url,
            "http_address": running.http_address,
            "iggy_address": running.iggy_address,
            "iggy_http_address": running.iggy_http_address,
            "iggy_quic_address": running.iggy_quic_address,
            "ready_seconds": running.ready_seconds,
        }

    def stop(self) -> None:
        """As `RunningBroker.stop`."""
        life, self._life = self._life, None
        if life is not None:
            thread, loop, stop = life
            loop.call_soon_threadsafe(stop.set)
            thread.join(STOP_SECONDS)


def _run(settings: config.Settings, ready: "Future[tuple[Broker, asyncio.AbstractEventLoop, asyncio.Event]]") -> None:
    async def live() -> None:
        broker, stop = Broker(settings), asyncio.Event()
        await broker.start()
        try:
            ready.set_result((broker, asyncio.get_running_loop(), stop))
            await stop.wait()
        finally:
            await broker.stop()

    try:
        asyncio.run(live())
    except BaseException as failure:
        if ready.done():
            raise
        ready.set_exception(failure)
