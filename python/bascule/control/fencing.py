"""The controller's duty to fence silent brokers: whoever it has not heard for too long leaves what it leads to others.

The data plane reports a silent run once in each term. The duty proposes its fence until the state has settled that run:
fenced, or followed by another one.
"""

import asyncio
import contextlib
from typing import Any, Protocol

from bascule._seam import Expired
from bascule.errors import BrokerError
from bascule.logs import emit
from bascule.metadata import Broker, Command, State
from bascule.metadata.rejection import RejectedError
from bascule.metadata.replica_commands import FenceBroker

PROPOSE_S = 3.0
AGAIN_S = 0.5


class FencingPlane(Protocol):
    """What the data plane knows of who is heard."""

    def watch_brokers(self, term: int) -> None:
        """Report silent brokers from now on, in this term."""
        ...

    def cluster_status(self) -> dict[str, Any]:
        """Who is heard."""
        ...


class FencingLog(Protocol):
    """What fencing needs of the controller."""

    @property
    def state(self) -> State:
        """The state as this broker knows it."""
        ...

    def now_ns(self) -> int:
        """The time, ns since 1970."""
        ...

    async def propose(self, command: Command, timeout_s: float) -> int:
        """Have a command committed and applied."""
        ...


class Fencing:
    """Fences silent brokers while the office is held. Belongs to the event loop's thread."""

    def __init__(self, log: FencingLog, plane: FencingPlane) -> None:
        self._log = log
        self._plane = plane
        self._expired: set[Expired] = set()
        self._changed = asyncio.Event()

    def on_expired(self, event: Expired) -> None:
        """Note that a run is silent."""
        self._expired.add(event)
        self._changed.set()

    async def run(self, term: int) -> None:
        """Work until cancelled, in this term of office."""
        self._expired.clear()
        self._plane.watch_brokers(term)
        while True:
            self._changed.clear()
            for event in sorted(self._expired):
                if (broker := _unsettled(self._log.state, event)) is None:
                    self._expired.discard(event)
                else:
                    await self._fence(broker)
            # What the state has not settled by then is proposed again.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if self._expired else None):
                    await self._changed.wait()

    async def _fence(self, broker: Broker) -> None:
        live = [item for item in self._plane.cluster_status()["live"] if item != broker.id]
        command = FenceBroker(broker.id, broker.boot_epoch, tuple(live), self._log.now_ns())
        emit(30, "cluster", "a broker is silent, and is fenced", broker=broker.id, boot_epoch=broker.boot_epoch)
        try:
            await self._log.propose(command, PROPOSE_S)
        except (RejectedError, BrokerError) as failure:
            # The state says later whether it is settled.
            emit(30, "cluster", f"the fence of a silent broker was not applied: {failure}", broker=broker.id)


def _unsettled(state: State, event: Expired) -> Broker | None:
    """The broker of a silent run that is the last one of it and not fenced; `None` = there is nothing to do."""
    found = next((item for item in state.brokers.values() if item.raft_id == event.broker), None)
    is_last = found is not None and found.boot_epoch == event.boot_epoch and found.run != "fenced"
    return found if is_last else None
