"""Runs a broker until a signal or a failure, for the command line."""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine
from typing import Any

from bascule.config import Settings
from bascule.logs import emit
from bascule.server.broker import Broker
from bascule.server.config_reload import ConfigSource, log_changes
from bascule.server.watch import ProcessWatch

_log = logging.getLogger("bascule.server")

EXIT_OK, EXIT_INTERRUPTED = 0, 130
SAME_S = 1.0
"""Seconds in which a repeated signal counts as the same one: `timeout` signals both the process and its group."""


def run(
    settings: Settings, on_ready: Callable[[Broker], None] | None = None, source: ConfigSource | None = None
) -> int:
    """Run a broker. SIGINT and SIGTERM stop it; a second one, at least a second later, ends it at once. SIGHUP reloads
    certificates and policy.

    Args:
        settings: the settings of the broker; the caller configures logs.
        on_ready: called once, when the broker serves.
        source: the source of the settings, read again at SIGHUP to log which of them take effect at the next start.

    Returns:
        Exit code: 0 = stopped by a signal; 130 = a signal came before it was ready, or a second one while stopping.

    Raises:
        BrokerError: it could not start (see `Broker.start`), or failed.
    """
    return asyncio.run(_run(settings, on_ready, source))


async def _run(settings: Settings, on_ready: Callable[[Broker], None] | None, source: ConfigSource | None) -> int:
    asyncio.get_running_loop().set_exception_handler(log_unhandled)
    signals = Signals()
    broker = Broker(settings, ProcessWatch())
    starting = asyncio.create_task(broker.start())
    stopped = asyncio.create_task(signals.stop.wait())
    try:
        await asyncio.wait({starting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            emit(20, "server", "interrupted before it was ready")
            return EXIT_INTERRUPTED
        starting.result()
        signals.on_hangup = lambda: _reload(broker, source)
        if on_ready is not None:
            on_ready(broker)
        failing = asyncio.create_task(broker.wait_failed())
        await asyncio.wait({failing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if failing.done():
            raise failing.result()
        failing.cancel()
        emit(20, "server", f"stopping after {signals.name}")
        return EXIT_OK
    finally:
        stopped.cancel()
        await broker.stop()
        emit(20, "server", "stopped")
        signals.close()


def log_unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log the exception of a callback or of a task that nobody awaits, with its stack: a bug."""
    failure = context.get("exception")
    text = f"{context.get('message', 'an error of the event loop')}: {failure!r}"
    _log.error("%s", text, exc_info=failure)


async def _reload(broker: Broker, source: ConfigSource | None) -> None:
    await broker.reload()
    if source is not None:
        await asyncio.to_thread(log_changes, broker.settings, source)


class Signals:
    """Turns a signal into an event; another one after `SAME_S` ends the process, which is safe at any time."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self._previous = dict[signal.Signals, Any]()
        self._since = 0.0
        self.name = ""
        self.on_hangup: Callable[[], Coroutine[Any, Any, object]] | None = None
        self._hangups: set[asyncio.Task[object]] = set()
        self._handle(signal.SIGINT, self.on_signal)
        self._handle(signal.SIGTERM, self.on_signal)
        self._handle(signal.SIGHUP, lambda _: self._on_hangup())

    def _handle(self, number: signal.Signals, handler: Callable[[signal.Signals], None]) -> None:
        """Call `handler` on the event loop. `loop.add_signal_handler` is not used, because it replaces the wake-up
        descriptor, by which the data plane receives signals too.
        """
        loop = asyncio.get_running_loop()

        def on_signal(_: int, __: object) -> None:
            loop.call_soon_threadsafe(handler, number)

        self._previous[number] = signal.signal(number, on_signal)

    def close(self) -> None:
        """Restore the previous signal handlers."""
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _on_hangup(self) -> None:
        if self.on_hangup is None:
            emit(20, "server", "SIGHUP: nothing is reloaded before the broker is ready")
            return
        task = asyncio.get_running_loop().create_task(self.on_hangup())
        self._hangups.add(task)
        task.add_done_callback(self._hangups.discard)

    def on_signal(self, number: signal.Signals) -> None:
        """Handle a signal that asks to stop."""
        if self.stop.is_set() and time.monotonic() - self._since < SAME_S:
            return
        if self.stop.is_set():
            emit(30, "server", f"ended at once after a second {number.name}")
            os._exit(EXIT_INTERRUPTED)
        self.name, self._since = number.name, time.monotonic()
        self.stop.set()
