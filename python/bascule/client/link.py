"""The connection behind a client: connects to one of the addresses, tries again what may be tried again.

What the client can mend, it mends and counts: a broker that went away or does not lead (`reconnects`), and one that is
busy. A write whose outcome is unknown is never sent twice.
"""

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from bascule import engine
from bascule.client.deadline import Deadline
from bascule.errors import BrokerError, UsageError

__all__ = ["Link"]

T = TypeVar("T")

MOST_CONNECT_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.02
_MOST_PAUSE: Final = 1.0
_RECONNECT: Final = frozenset({"unavailable", "not_leader"})
_AGAIN: Final = frozenset({"unavailable", "not_leader", "busy"})


Connector = Callable[[str, bytes], engine.Client]


class Link:
    """One connection at a time to one of several addresses. Safe to share between threads."""

    def __init__(self, addresses: Sequence[str], options: dict[str, Any], connector: Connector = engine.Client) -> None:
        """Connects on first use.

        Args:
            addresses: `host:port`, at least one, tried in order.
            options: of the native client.
            connector: makes a native client; replaced in tests.
        """
        self._addresses: Final = tuple(addresses)
        self._options: Final = options
        self._connector: Final = connector
        self._lock: Final = threading.Lock()
        self._native: engine.Client | None = None
        self._turn = 0
        self._closed = False
        self.reconnects = 0

    @property
    def address(self) -> str:
        """The address in use, or the next one to be tried."""
        return self._addresses[self._turn % len(self._addresses)]

    def run(self, deadline: Deadline, attempt: Callable[[engine.Client, int], T]) -> T:
        """Call `attempt` with the native client and the milliseconds left until it succeeds.

        Raises:
            BrokerError: what the last attempt failed with: one that must not be tried again, or the deadline came.
        """
        pause = _FIRST_PAUSE
        while True:
            native: engine.Client | None = None
            try:
                with engine.native_errors():
                    native = self._connected(deadline)
                    return attempt(native, deadline.left_ms())
            except BrokerError as failure:
                if failure.code not in _AGAIN or _is_partly_done(failure) or deadline.left <= pause:
                    raise
                if native is not None and failure.code in _RECONNECT:
                    self._forget(native)
            time.sleep(pause)  # back-off: the broker needs time, and there is no event that says it is back
            pause = min(2 * pause, _MOST_PAUSE)

    def close(self) -> None:
        """Let go of the connection. Idempotent; every later call raises `closed`."""
        with self._lock:
            native, self._native, self._closed = self._native, None, True
        if native is not None:
            native.close()

    def _connected(self, deadline: Deadline) -> engine.Client:
        with self._lock:
            if self._closed:
                raise UsageError("closed", "the client is closed")
            if self._native is None:
                seconds = min(MOST_CONNECT_SECONDS, deadline.left_ms() / 1000)
                options = {**self._options, "connect_timeout_ms": max(1, round(seconds * 1000))}
                try:
                    self._native = self._connector(self.address, json.dumps(options).encode())
                except BaseException:
                    self._turn += 1
                    raise
            return self._native

    def _forget(self, broken: engine.Client) -> None:
        """Drop the connection, unless another thread has already replaced it; the next address takes its turn."""
        with self._lock:
            if self._native is not broken:
                return
            self._native = None
            self._turn += 1
            self.reconnects += 1
        broken.close()


def _is_partly_done(failure: BrokerError) -> bool:
    """Some records of a batch are stored: sending it again would store them twice."""
    return bool(failure.details.get("acknowledged"))
