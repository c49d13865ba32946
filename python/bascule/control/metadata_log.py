"""Access to the metadata log: propose, wait until applied, read barrier, snapshots.

This class applies entries to the state in log order, one after the other, on the event loop, and answers the proposer
by the proposal id. It does not depend on how many voters the log has.

An entry that cannot be read, a gap, or an exception out of `apply` stops the log for good: continuing would let this
broker's state differ from the others'. `failed` is set then, and everything that waits fails with `metadata_stopped`.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from bascule._seam import Barrier, Committed, Failed, Installed
from bascule.control.dataplane import DataPlane
from bascule.errors import BrokerError, OutcomeUnknownError, error
from bascule.logs import emit
from bascule.metadata import (
    Applied,
    Command,
    CommandError,
    Result,
    SnapshotError,
    State,
    apply,
    decode_command,
    decode_snapshot,
    encode_command,
    encode_snapshot,
    initial_state,
)

BARRIER_AGAIN_S = 1.0

SLICE_S = 0.02
"""How long entries are replayed before others get their turn."""

PROGRESS_S = 1.0
"""How often the progress of a replay is logged."""


@dataclass(frozen=True, slots=True)
class Change:
    """One applied entry: the command (`None` = of the metadata group itself), the state before and after it. Or a
    snapshot of another broker that was `installed`: the entries in between are not known here.
    """

    command: Command | None
    before: State
    after: State
    result: Result
    installed: bool = False


Listener = Callable[[Change], None]


@dataclass(slots=True)
class _Replay:
    """Progress of a replay: entries `first` to `last`."""

    first: int
    last: int
    next_line_s: float

    def log(self, index: int, now_s: float) -> None:
        """Write a line now and then; `index` is the last entry applied."""
        if now_s >= self.next_line_s:
            self.next_line_s = now_s + PROGRESS_S
            done, entries = index - self.first + 1, self.last - self.first + 1
            emit(20, "metadata", f"replayed {done} of {entries} entries", index=index)


class MetadataLog:
    """Orders commands and applies them. All methods belong to the event loop's thread.

    Attributes:
        state: after the last entry applied.
        snapshot_index: last entry that the newest snapshot covers, 0 = none.
        failed: done, with the error, when the log has stopped for good.
    """

    def __init__(self, plane: DataPlane) -> None:
        self.state: State = initial_state()
        self.failed: asyncio.Future[BrokerError] = asyncio.get_running_loop().create_future()
        self._plane = plane
        self._listeners: list[Listener] = []
        self._waiting: dict[int, asyncio.Future[Result]] = {}
        self._barriers: dict[int, asyncio.Future[int]] = {}
        self._outbox: list[tuple[int, bytes, int]] = []
        self._early: deque[Committed | Installed | Barrier] | None = deque()  # events that wait for a snapshot
        self._installing: asyncio.Task[None] | None = None
        self._replay: _Replay | None = None
        self._saving = threading.Lock()
        self._closed = False
        self._last_id = 0
        self.snapshot_index: int = 0
        self.applied = self.apply_ns = 0

    def listen(self, listener: Listener) -> None:
        """Have `listener` called with every change, in order, also while replaying."""
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        """Undo `listen`."""
        self._listeners.remove(listener)

    async def open(self, timeout_s: float) -> None:
        """Restore the newest snapshot and replay what follows it, in slices, so that signals are handled meanwhile and
        progress is logged. The event pump must run already.

        Raises:
            CorruptionError: `metadata_damaged`.
            StateError: `data_directory_newer`: a newer version wrote the snapshot; `data_directory_foreign`: it is of a
                voter of a cluster.
            UnavailableError: `metadata_stopped`: an entry could not be applied.
            OutcomeUnknownError: `metadata_timeout`: the replay took longer than `timeout_s`.
        """
        index, snapshot, last = await asyncio.to_thread(self._plane.metadata_open)
        if index:
            try:
                self.state = await asyncio.to_thread(decode_snapshot, snapshot)
            except SnapshotError as damage:
                raise error("data_directory_newer" if damage.newer else "metadata_damaged", str(damage)) from damage
            if self.state.index != index:
                message = f"the metadata snapshot of entry {self.state.index} is stored as one of entry {index}"
                raise error("metadata_damaged", message)
        self.snapshot_index = index
        self._replay = _Replay(index + 1, last, asyncio.get_running_loop().time() + PROGRESS_S)
        await self._replay_early()
        await self.barrier(timeout_s)
        self._replay = None

    def close(self) -> None:
        """Apply nothing any more, however many entries wait: the next start replays them."""
        self._closed = True

    async def propose(self, command: Command, timeout_s: float) -> Result:
        """Append `command` and wait until it is applied here. Not cancel-safe: a cancelled call may have been appended.

        Raises:
            UsageError: `invalid_argument`: the command cannot be written as an entry.
            OutcomeUnknownError: `metadata_timeout`: not known whether it will be applied.
            UnavailableError: `metadata_stopped`, or what the log refused it with.
        """
        self._check_alive()
        try:
            entry = encode_command(command)
        except CommandError as damage:
            raise error("invalid_argument", str(damage)) from damage
        proposal_id = self._next_id()
        future = asyncio.get_running_loop().create_future()
        self._waiting[proposal_id] = future
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append((proposal_id, entry, max(1, int(timeout_s * 1000))))
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as late:
            if isinstance(late, BrokerError):
                raise
            raise OutcomeUnknownError("metadata_timeout", f"no answer from the log within {timeout_s:g} s") from None
        finally:
            self._waiting.pop(proposal_id, None)

    async def barrier(self, timeout_s: float) -> int:
        """Wait until everything committed before this call is applied here; the index reached.

        Raises:
            OutcomeUnknownError: `metadata_timeout`.
            UnavailableError: `metadata_stopped`.
        """
        self._check_alive()
        barrier_id = self._next_id()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._barriers[barrier_id] = future
        deadline = loop.time() + timeout_s
        try:
            while not future.done():
                if loop.time() >= deadline:
                    message = f"the log did not confirm a read within {timeout_s:g} s"
                    raise OutcomeUnknownError("metadata_timeout", message)
                self._plane.read_barrier(barrier_id)
                # Asked again now and then: of events that wait in great numbers only entries are never dropped.
                await asyncio.wait([future], timeout=min(BARRIER_AGAIN_S, deadline - loop.time()))
            return future.result()
        finally:
            self._barriers.pop(barrier_id, None)

    async def save_snapshot(self, state: State) -> None:
        """Store `state`, whose consequences must have been carried out, so that the log before it may go."""
        await asyncio.to_thread(self._save, state)
        self.snapshot_index = max(self.snapshot_index, state.index)
        emit(20, "metadata.snapshot", "stored a snapshot of the metadata", index=state.index)

    # -- events of the data plane -----------------------------------------------------------------------------------
    def on_committed(self, event: Committed) -> None:
        """Apply one entry."""
        if self._early is not None:
            self._early.append(event)
        else:
            self._apply(event)

    def on_installed(self, event: Installed) -> None:
        """Replace the state by a snapshot of another broker. Entries that follow wait until it is read."""
        if self._early is not None:
            self._early.append(event)
            return
        self._early = deque([event])
        self._installing = asyncio.create_task(self._replay_early())
        self._installing.add_done_callback(self._on_replayed)

    def on_failed(self, event: Failed) -> None:
        """Report to the proposer that its entry failed, or to all that the log has stopped for good."""
        if not event.proposal_id:
            self._end(error(event.code, event.message))
            return
        future = self._waiting.get(event.proposal_id) or self._barriers.get(event.proposal_id)
        if future is not None and not future.done():
            future.set_exception(error(event.code, event.message))

    def on_barrier(self, event: Barrier) -> None:
        """Report to the waiter that its barrier is reached, behind the entries that came before it."""
        if self._early is not None:
            self._early.append(event)
            return
        future = self._barriers.get(event.barrier_id)
        if future is not None and not future.done():
            future.set_result(event.log_index)

    # -- inside -----------------------------------------------------------------------------------------------------
    async def _replay_early(self) -> None:
        """Handle the events that wait for a snapshot, a slice at a time; what comes meanwhile lines up behind them."""
        clock, early = asyncio.get_running_loop().time, self._early
        end = clock() + SLICE_S
        barriers: list[Barrier] = []
        while early:
            event = early.popleft()
            if isinstance(event, Installed):
                await self._install(event)
            elif isinstance(event, Barrier):
                barriers.append(event)
            else:
                self._apply(event)
            if clock() >= end:
                await asyncio.sleep(0)
                end = clock() + SLICE_S
        self._early = None
        for barrier in barriers:
            self.on_barrier(barrier)

    def _on_replayed(self, done: asyncio.Task[None]) -> None:
        if not done.cancelled() and isinstance(failure := done.exception(), Exception):
            self._stop(self.state.index, failure)

    async def _install(self, event: Installed) -> None:
        index, snapshot = event
        if self._closed or self.failed.done() or index <= self.state.index:
            return
        try:
            after = await asyncio.to_thread(decode_snapshot, snapshot)
        except SnapshotError as damage:
            self._stop(index, damage)
            return
        if after.index != index:
            self._stop(index, SnapshotError(f"the snapshot of entry {after.index} came as one of entry {index}"))
            return
        before, self.state = self.state, after
        self.snapshot_index = index
        emit(20, "metadata.snapshot", "took the metadata from a snapshot of another broker", index=index)
        self._notify(Change(None, before, after, Applied(index), installed=True))

    def _save(self, state: State) -> None:
        """In a thread; one at a time, also when the wait for an earlier one was cancelled."""
        with self._saving:
            self._plane.save_snapshot(state.index, encode_snapshot(state))

    def _apply(self, event: Committed) -> None:
        if self._closed or self.failed.done():
            return
        index, entry, proposal_id = event
        before = self.state
        if index != before.index + 1:
            self._stop(index, CommandError(f"it follows entry {before.index}"))
            return
        began_ns = time.perf_counter_ns()
        try:
            command = decode_command(entry) if entry else None
            after, result = apply(before, index, command) if command else (before.at(index), Applied(index))
        except Exception as damage:  # noqa: BLE001 - whatever it is, continuing would break the state's determinism
            self._stop(index, damage)
            return
        self.state = after
        self._notify(Change(command, before, after, result))
        self.applied += 1
        self.apply_ns += time.perf_counter_ns() - began_ns
        future = None if proposal_id is None else self._waiting.get(proposal_id)
        if future is not None and not future.done():
            future.set_result(result)
        if self._replay is not None:
            self._replay.log(index, asyncio.get_running_loop().time())

    def _notify(self, change: Change) -> None:
        for listener in self._listeners:
            listener(change)

    def _flush(self) -> None:
        """Propose what gathered during this turn of the loop, at once."""
        gathered, self._outbox = self._outbox, []
        entries = [(proposal_id, entry) for proposal_id, entry, _ in gathered]
        try:
            self._plane.propose(entries, max(timeout_ms for _, _, timeout_ms in gathered))
        except Exception as failure:  # noqa: BLE001 - every waiter learns of it
            for proposal_id, _ in entries:
                future = self._waiting.get(proposal_id)
                if future is not None and not future.done():
                    future.set_exception(failure)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _check_alive(self) -> None:
        if self.failed.done():
            raise self.failed.result()

    def _stop(self, index: int, cause: Exception) -> None:
        message = f"entry {index} of the metadata cannot be applied: {cause}"
        if isinstance(cause, CommandError | SnapshotError) and cause.newer:
            message += "; start the newer version of the program that wrote it"
        stopped = error("metadata_stopped", message)
        stopped.__cause__ = cause
        emit(40, "metadata", message, index=index)
        self._end(stopped)

    def _end(self, stopped: BrokerError) -> None:
        if self.failed.done():
            return
        self.failed.set_result(stopped)
        for future in [*self._waiting.values(), *self._barriers.values()]:
            if not future.done():
                future.set_exception(stopped)
