"""Makes the data plane equal to the state: open, lead, close, delete, publish the view.

One pass at a time, in a thread, because opening blocks; while it runs the newest wanted state waits, so that many
changes become one pass. A partition that fails to open is tried again with growing pauses and does not hold up the
others; a pass that fails as a whole is repeated, which is harmless, for each step is idempotent.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from bascule._text import host_port
from bascule.control.dataplane import DataPlane
from bascule.control.reconcile import Plan, keeping, plan, reopen
from bascule.control.specs import Defaults, group_spec, partition_spec, stream_spec
from bascule.control.user_rights import user_spec
from bascule.errors import UsageError
from bascule.logs import emit
from bascule.metadata import State

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0


@dataclass(slots=True)
class _Failure:
    """A partition that could not be opened."""

    next_try_s: float
    pause_s: float
    code: str
    sentence: str


class Reconciler:
    """Makes the data plane equal to the state. All methods belong to the event loop's thread.

    Attributes:
        done: the state that has been carried out last; what could not be opened is being tried again.
    """

    def __init__(self, plane: DataPlane, broker_id: str, defaults: Defaults, start: State) -> None:
        self.done = start
        self._plane = plane
        self._broker_id = broker_id
        self._defaults = defaults
        self._wanted = start
        self._installs = self._installs_done = 0
        self._version = 0
        self._failures: dict[int, _Failure] = {}
        self._hurried: set[int] = set()
        self._repeat_at: float | None = None
        self._stopping = False
        self._ended = asyncio.Event()
        self._ended.set()
        self._wake = asyncio.Event()
        self._progress = asyncio.Condition()
        self._followers: list[Callable[[State], None]] = []

    @property
    def defaults(self) -> Defaults:
        """What partitions get whose stream's creator did not say."""
        return self._defaults

    def want(self, state: State, *, installed: bool = False) -> None:
        """Make the data plane equal to `state`. `installed`: it is another broker's snapshot. What its entries deleted
        is not known here, so until it is carried out partitions that are gone are closed and kept.
        """
        self._wanted = state
        self._installs += installed
        self._wake.set()

    def follow(self, follower: Callable[[State], None]) -> None:
        """Have `follower` called with every state that has been carried out from now on."""
        self._followers.append(follower)

    async def wait_applied(self, index: int) -> None:
        """Wait until the state after entry `index` has been carried out."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.done.index >= index)

    def failure(self, incarnations: Iterable[int]) -> tuple[str, str] | None:
        """(code, sentence) of the first of these partitions that could not be opened and is being tried again."""
        failures = (self._failures.get(incarnation) for incarnation in incarnations)
        return next(((item.code, item.sentence) for item in failures if item is not None), None)

    def hurry(self, incarnations: Iterable[int]) -> None:
        """When these partitions are deleted, free their space at once instead of after the grace period."""
        self._hurried.update(incarnations)

    def keep_grace(self, incarnations: Iterable[int]) -> None:
        """Undo `hurry`."""
        self._hurried.difference_update(incarnations)

    async def delete_left_over(self, incarnations: list[int]) -> None:
        """Delete partitions whose deletion was committed in an earlier run and may not have been carried out."""
        if incarnations:
            await asyncio.to_thread(self._plane.delete_partitions, incarnations)

    async def run(self) -> None:
        """Work until `stop`. When it ends by an exception it may be run again: what is wanted stays."""
        self._ended.clear()
        try:
            while not self._stopping:
                self._wake.clear()
                await self._pass()
                await self._sleep()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Finish the pass under way, then do nothing more. Idempotent."""
        self._stopping = True
        self._wake.set()
        await self._ended.wait()

    async def _pass(self) -> None:
        """Carry out the newest wanted state, then what is due again."""
        wanted, installs = self._wanted, self._installs
        steps = plan(self.done, wanted, self._broker_id)
        if installs > self._installs_done:
            steps = keeping(steps)
        if not await self._carry_out(steps):
            self._repeat_at = asyncio.get_running_loop().time() + FIRST_PAUSE_S
            return
        self._repeat_at, self._installs_done = None, installs
        self._forget(steps.keep)
        self._forget(steps.delete)
        self._forget(steps.close)
        self._hurried.difference_update(steps.delete + steps.keep)
        async with self._progress:
            self.done = wanted
            self._progress.notify_all()
        for follower in self._followers:
            follower(wanted)
        await self._retry()

    async def _sleep(self) -> None:
        """Until something is wanted or a failed partition is due."""
        times = [item.next_try_s for item in self._failures.values()]
        due = min(times if self._repeat_at is None else [*times, self._repeat_at], default=None)
        pause_s = None if due is None else max(0.0, due - asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(pause_s):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _retry(self) -> None:
        now = asyncio.get_running_loop().time()
        due = frozenset(item for item, failure in self._failures.items() if failure.next_try_s <= now)
        if due:
            steps = reopen(self.done, due, self._broker_id)
            self._forget(due - {partition.incarnation for _, partition in steps.open})
            await self._carry_out(steps)

    async def _carry_out(self, steps: Plan) -> bool:
        """Whether the steps were taken; partitions that failed to open are noted."""
        if not steps:
            return True
        try:
            failures = await asyncio.to_thread(self._work, steps)
        except Exception as failure:  # noqa: BLE001 - the loop must live; the pass is repeated
            emit(40, "control.reconcile", f"a change could not be carried out and is tried again: {failure}")
            return False
        now = asyncio.get_running_loop().time()
        names = {item.incarnation: (stream, item) for stream, item in steps.open}
        for incarnation in names.keys() - {item for item, _, _ in failures}:
            self._failures.pop(incarnation, None)
        for incarnation, code, sentence in failures:
            known = self._failures.get(incarnation)
            pause_s = min(known.pause_s * 2, LONGEST_PAUSE_S) if known else FIRST_PAUSE_S
            self._failures[incarnation] = _Failure(now + pause_s, pause_s, code, sentence)
            stream, partition = names[incarnation]
            emit(
                40,
                "control.reconcile",
                f"a partition could not be opened and is tried again in {pause_s:g} s: {sentence}",
                code=code,
                namespace=stream.namespace,
                stream=stream.name,
                partition=partition.number,
            )
        return True

    def _work(self, steps: Plan) -> list[tuple[int, str, str]]:
        """The steps, in a thread. Returns (incarnation, code, sentence) of what failed to open."""
        failures: list[tuple[int, str, str]] = []
        at_once = [item for item in steps.delete if item in self._hurried]
        if at_once:
            # First of all: what is opened next may need their space.
            self._plane.delete_partitions(at_once, at_once=True)
        if steps.close or steps.keep:
            # First of all no more publishes are sent there: they ask to be resumed instead.
            self._publish_view(steps)
        if steps.close:
            self._plane.close_partitions(steps.close)
        if steps.keep:
            self._plane.keep_partitions(steps.keep)
        if steps.open:
            failures = self._open([partition_spec(stream, item, self._defaults) for stream, item in steps.open])
        failed = {incarnation for incarnation, _, _ in failures}
        lead = [(incarnation, epoch) for incarnation, epoch in steps.lead if incarnation not in failed]
        if lead:
            self._plane.lead(lead)
        self._publish_view(steps)
        after_grace = [item for item in steps.delete if item not in at_once]
        if after_grace:
            self._plane.delete_partitions(after_grace)
        return failures

    def _open(self, specs: list[dict[str, Any]]) -> list[tuple[int, str, str]]:
        """A spec that the data plane cannot read is a failure of its partition, not of the others in the call."""
        try:
            return self._plane.open(json.dumps(specs).encode())
        except UsageError as refusal:
            if len(specs) == 1:
                return [(specs[0]["incarnation"], refusal.code, str(refusal))]
            return [failure for spec in specs for failure in self._open([spec])]

    def _publish_view(self, steps: Plan) -> None:
        if steps.changes_view:
            self._version += 1
            changes = {
                "streams": [stream_spec(item) for item in steps.streams],
                "removed": [*steps.removed],
                "groups": [group_spec(item) for item in steps.groups],
                "removed_groups": [*steps.removed_groups],
                "namespaces": [(item.id, item.name) for item in steps.namespaces],
                "removed_namespaces": [*steps.removed_namespaces],
                "users": [user_spec(item) for item in steps.users],
                "removed_users": [*steps.removed_users],
                "brokers": [(item.id, host_port(item.host, item.port)) for item in steps.brokers],
            }
            self._plane.publish_view(self._version, json.dumps(changes).encode())

    def _forget(self, incarnations: "frozenset[int] | tuple[int, ...]") -> None:
        for incarnation in incarnations:
            self._failures.pop(incarnation, None)
