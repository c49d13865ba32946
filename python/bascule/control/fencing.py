"""The controller's duty towards brokers that are silent, and towards leaders that were ended.

Whoever it has not heard for too long is fenced, and leaves what it leads to others. A leader that an entry has ended
is replaced when its broker reports that it has stopped. The data plane reports each of the two once in a term; the duty
proposes an entry until the state has settled it: the run is fenced, or followed by another one; no ended role of it is
waited for.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any, Protocol

from bascule._seam import Expired, Stopped
from bascule.errors import BrokerError
from bascule.logs import emit
from bascule.metadata import Broker, Command, State
from bascule.metadata.rejection import RejectedError
from bascule.metadata.replica_commands import FenceBroker, StoppedLeading

PROPOSE_S = 3.0
AGAIN_S = 0.5


class FencingPlane(Protocol):
    """What the data plane knows of who is heard."""

    def watch_brokers(self, term: int, ended: Sequence[tuple[int, int]]) -> None:
        """Report silent brokers from now on, in this term, and those that have stopped the ended roles: (index of the
        entry, broker).
        """
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
    """Fences silent brokers and replaces ended leaders while the office is held. Belongs to the event loop's thread."""

    def __init__(self, log: FencingLog, plane: FencingPlane) -> None:
        self._log = log
        self._plane = plane
        self._expired: set[Expired] = set()
        self._stopped: set[Stopped] = set()
        self._changed = asyncio.Event()

    def on_expired(self, event: Expired) -> None:
        """Note that a run is silent."""
        self._expired.add(event)
        self._changed.set()

    def on_stopped(self, event: Stopped) -> None:
        """Note that a run has stopped every role that was ended up to an entry."""
        self._stopped.add(event)
        self._changed.set()

    async def run(self, term: int) -> None:
        """Work until cancelled, in this term of office."""
        self._expired.clear()
        self._stopped.clear()
        self._plane.watch_brokers(term, _ended(self._log.state))
        while True:
            self._changed.clear()
            for event in sorted(self._expired):
                if (broker := _unsettled(self._log.state, event)) is None:
                    self._expired.discard(event)
                else:
                    await self._fence(broker)
            for event in sorted(self._stopped):
                if (broker := _unreplaced(self._log.state, event)) is None:
                    self._stopped.discard(event)
                else:
                    await self._replace(broker, event.log_index)
            # What the state has not settled by then is proposed again.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_S if self._expired or self._stopped else None):
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

    async def _replace(self, broker: Broker, index: int) -> None:
        try:
            await self._log.propose(StoppedLeading(broker.id, broker.boot_epoch, index), PROPOSE_S)
        except (RejectedError, BrokerError) as failure:
            # The state says later whether it is settled.
            emit(30, "cluster", f"a leader that has stopped was not replaced: {failure}", broker=broker.id)


def _ended(state: State) -> list[tuple[int, int]]:
    """The ended leaders that may not know it: (index of the entry, number of the broker), ascending, each once."""
    endings = (item.ending for stream in state.streams.values() for item in stream.partitions)
    return sorted({(item.index, state.brokers[item.broker].raft_id) for item in endings if item is not None})


def _unreplaced(state: State, event: Stopped) -> Broker | None:
    """The broker of a run that has stopped, if the state waits for one of its roles; `None` = nothing is to be done."""
    found = next((item for item in state.brokers.values() if item.raft_id == event.broker), None)
    if found is None or found.boot_epoch != event.boot_epoch:
        return None
    endings = (item.ending for stream in state.streams.values() for item in stream.partitions)
    is_waited_for = any(
        item is not None
        and item.broker == found.id
        and item.boot_epoch == found.boot_epoch
        and item.index <= event.log_index
        for item in endings
    )
    return found if is_waited_for else None


def _unsettled(state: State, event: Expired) -> Broker | None:
    """The broker of a silent run that is the last one of it and not fenced; `None` = there is nothing to do."""
    found = next((item for item in state.brokers.values() if item.raft_id == event.broker), None)
    is_last = found is not None and found.boot_epoch == event.boot_epoch and found.run != "fenced"
    return found if is_last else None
