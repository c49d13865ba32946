"""The connections of a client: one per broker address, with retries.

The pool retries a call when the broker is unavailable, does not lead the partition, or is busy; it counts reconnects.
The pause between tries starts at 20 ms, doubles up to a second, and varies by half, so that many clients do not
reconnect in step.
"""

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import count
from typing import Any, Final, TypeVar

from bascule import engine
from bascule._liftbridge_pb import message
from bascule.client._core.connect_errors import explained, is_absent
from bascule.client._core.deadline import Deadline
from bascule.client._core.keyed_lock import KeyedLock
from bascule.client._core.routes import Place, Routes
from bascule.errors import BrokerError, UsageError, error

__all__ = ["MAX_IN_FLIGHT", "ConnectionPool", "Watched", "may_try_again"]

T = TypeVar("T")

MAX_CONNECT_SECONDS: Final = 5.0
_FIRST_PAUSE: Final = 0.02
_MAX_PAUSE: Final = 1.0
_RECONNECT: Final = frozenset({"unavailable", "not_leader"})
_LOST: Final = frozenset({"outcome_unknown"})
_AGAIN: Final = frozenset({"unavailable", "not_leader", "busy"})
_MISSING: Final = frozenset({"stream_not_found", "partition_not_found", "not_found"})
_ALL_STREAMS: Final = message("FetchMetadataRequest")().SerializeToString()


Connector = Callable[[str, bytes], engine.Client]
Batches = Callable[[str, int, int, int], engine.Outgoing]
Spreads = Callable[[str, engine.Partitioner, int, int], engine.Spread]
Watched = Callable[[], AbstractContextManager[None]]
MAX_IN_FLIGHT: Final = 16_384
"""Default maximum number of unacknowledged records of one publish."""


class ConnectionPool:
    """Connections to brokers, one per address. Safe to share between threads."""

    def __init__(  # noqa: PLR0913 (what callers choose is keyword-only)
        self,
        addresses: Sequence[str],
        options: dict[str, Any],
        connector: Connector = engine.Client,
        batches: Batches = engine.Outgoing,
        spreads: Spreads = engine.Spread,
        *,
        wait: bool = True,
        watched: Watched = nullcontext,
    ) -> None:
        """Connects on first use.

        Args:
            addresses: `host:port`, at least one, tried in order.
            options: passed to the native client.
            connector: makes a native client; replaced in tests.
            batches: makes a native batch; replaced in tests.
            spreads: makes a native batch for several partitions; replaced in tests.
            wait: whether `reach` waits for a broker that is not running yet.
            watched: a context that is entered for each call, retries included.
        """
        self._addresses: Final = tuple(addresses)
        self._options: Final = options
        self._connector: Final = connector
        self._batches: Final = batches
        self._spreads: Final = spreads
        self._wait: Final = wait
        self._watched: Final = watched
        self._lock: Final = threading.Lock()
        self._natives: Final[dict[str, engine.Client]] = {}
        self._routes = Routes()
        self._learned: tuple[str, ...] = ()
        self._turn = 0
        self._ended: Final = threading.Event()
        self.locks: Final = KeyedLock()
        """Locks for requests that must not overtake each other."""
        self.reconnects = 0

    @property
    def address(self) -> str:
        """The address in use for calls that any broker can answer, or the next one to be tried."""
        known = self._addresses + self._learned
        return known[self._turn % len(known)]

    def reach(self, deadline: Deadline) -> None:
        """Connect to a broker: tries the addresses in turn until one answers. Without `wait` it gives up once nobody
        listens at any of them.

        Raises:
            BrokerError: immediately for an error that waiting cannot fix, such as a rejected certificate, even if
                another address was not tried yet; otherwise at the deadline, with the last error of each address.
        """
        reasons: dict[str, BrokerError] = {}
        pauses = _pauses()
        for tries in count(1):
            address = self.address
            try:
                with engine.native_errors():
                    self._connected(address, deadline)  # on failure the next address is tried
            except BrokerError as failure:
                if failure.code == "deadline_exceeded" and reasons:
                    raise self._unreached(list(reasons.values())) from None
                if failure.code not in _AGAIN:
                    raise self._explained(failure) from None
                reasons[address] = failure
            else:
                return
            nobody = len(reasons) == len(set(self._addresses)) and all(map(is_absent, reasons.values()))
            wait = next(pauses) if tries >= len(self._addresses) else 0.0
            if (nobody and not self._wait) or deadline.left <= wait:
                raise self._unreached(list(reasons.values()))
            self._back_off(wait)

    def run(
        self,
        deadline: Deadline,
        attempt: Callable[[engine.Client, int], T],
        place: Place = None,
        *,
        repeatable: bool = False,
    ) -> T:
        """Call `attempt` with the native client and the milliseconds left until it succeeds.

        Args:
            deadline: for all attempts together.
            attempt: the call; repeated after an error that may be retried.
            place: partition, cursor or broker that the call is about; determines the broker.
            repeatable: whether the call is idempotent; then it is also retried when its answer was lost.

        Raises:
            BrokerError: the error of the last attempt: it must not be retried, or the deadline passed.
        """
        with self._watched():
            return self._run(deadline, attempt, place, repeatable=repeatable)

    def _run(
        self, deadline: Deadline, attempt: Callable[[engine.Client, int], T], place: Place, *, repeatable: bool
    ) -> T:
        pauses = _pauses()
        last: BrokerError | None = None
        while True:
            native: engine.Client | None = None
            address = self._routes.find(place) or self.address
            try:
                with engine.native_errors():
                    native = self._connected(address, deadline)
                    return attempt(native, deadline.left_ms())
            except BrokerError as failure:
                if failure.code == "deadline_exceeded" and last is not None:
                    raise self._explained(last) from None  # the reason for the retries says more than the deadline
                last = failure
                if failure.code in _MISSING:
                    self._routes = Routes()  # the partition may have moved
                wait = next(pauses)
                if not may_try_again(failure, repeatable=repeatable) or deadline.left <= wait:
                    raise self._explained(failure) from None
                if failure.code == "not_leader" and self._has_route(place, address, deadline):
                    continue
                if native is not None and failure.code in _RECONNECT | _LOST:
                    self._forget(address, native)
            self._back_off(wait)

    def outgoing(self, stream: str, partition: int, ack_policy: int) -> engine.Outgoing:
        """An empty batch for a partition."""
        return self._batches(stream, partition, ack_policy, int(self._options.get("max_in_flight", MAX_IN_FLIGHT)))

    def spread(self, stream: str, chooser: engine.Partitioner, ack_policy: int) -> engine.Spread:
        """An empty batch for several partitions."""
        return self._spreads(stream, chooser, ack_policy, int(self._options.get("max_in_flight", MAX_IN_FLIGHT)))

    def refresh_routes(self, deadline: Deadline) -> None:
        """Fetch the leaders of all partitions again, and the addresses of the other brokers. If no broker answers, the
        routes stay as they are: the call that needs them is retried and raises the error.
        """
        with suppress(BrokerError), engine.native_errors():
            native = self._connected(self.address, deadline)
            self._routes = Routes.read(native.call("FetchMetadata", _ALL_STREAMS, deadline.left_ms()))
            known = self._routes.addresses.values()
            self._learned = tuple(address for address in known if address not in self._addresses)

    def close(self) -> None:
        """Close the connections. Idempotent; every later call raises `closed`."""
        with self._lock:
            natives = list(self._natives.values())
            self._natives.clear()
            self._ended.set()
        for native in natives:
            native.close()

    def _back_off(self, seconds: float) -> None:
        if self._ended.wait(seconds):  # back-off: no event reports that the broker is back
            raise UsageError("closed", "the client is closed")

    def _unreached(self, reasons: Sequence[BrokerError]) -> BrokerError:
        """One error that combines all reasons."""
        codes = {reason.code for reason in reasons}
        said = "; ".join(dict.fromkeys(map(str, reasons)))
        return self._explained(error(codes.pop() if len(codes) == 1 else "unavailable", said, reasons[-1].details))

    def _explained(self, failure: BrokerError) -> BrokerError:
        return explained(failure, protected="tls" in self._options)

    def _connected(self, address: str, deadline: Deadline) -> engine.Client:
        with self._lock:
            known = self._natives.get(address)
        if self._ended.is_set():
            raise UsageError("closed", "the client is closed")
        if known is not None:
            return known
        seconds = min(MAX_CONNECT_SECONDS, deadline.left_ms() / 1000)
        options = {**self._options, "connect_timeout_ms": max(1, round(seconds * 1000))}
        try:
            made = self._connector(address, json.dumps(options).encode())
        except BaseException:
            with self._lock:
                self._skip(address)
            raise
        with self._lock:
            # another thread may have connected already, or the client may have been closed meanwhile
            native = made if self._ended.is_set() else self._natives.setdefault(address, made)
        if native is not made or self._ended.is_set():
            made.close()
        return native

    def _has_route(self, place: Place, address: str, deadline: Deadline) -> bool:
        """Fetch the metadata again; true if it names another broker than `address` for `place`."""
        if place is None:
            return False
        self.refresh_routes(deadline)
        return self._routes.find(place) not in (None, address)

    def _forget(self, address: str, broken: engine.Client) -> None:
        """Drop the connection, unless another thread has already replaced it, and use the next address."""
        with self._lock:
            if self._natives.get(address) is not broken:
                return
            del self._natives[address]
            self._skip(address)
            self.reconnects += 1
        broken.close()

    def _skip(self, address: str) -> None:
        """Forget the routes, and use the next address."""
        self._routes = Routes()
        if address == self.address:
            self._turn += 1


def _pauses() -> Iterator[float]:
    """Seconds between one try and the next."""
    pause = _FIRST_PAUSE
    while True:
        yield pause * random.uniform(0.5, 1.5)  # noqa: S311 (spreads clients, guards nothing)
        pause = min(2 * pause, _MAX_PAUSE)


def may_try_again(failure: BrokerError, *, repeatable: bool) -> bool:
    """Whether a call may be sent again: it was certainly not executed, or repeating it has no further effect. Another
    batch that is partly stored must not be sent again, because a part of it would be stored twice.
    """
    if repeatable or failure.details.get("resend"):
        return failure.code in _AGAIN | _LOST
    return failure.code in _AGAIN and not failure.details.get("acknowledged")
