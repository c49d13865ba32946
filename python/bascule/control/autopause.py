"""Pausing partitions that nobody uses.

A partition that this broker leads pauses when no record has arrived for the stream's auto-pause time, counted from its
last record or from when it was opened, whichever is later; unless the stream says that subscribers keep it awake and it
has some, or a sink has rows staged or to be linked there. A publish or a subscriber wakes it again.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from bascule.control.controller import Controller
from bascule.control.dataplane import PartitionStatus
from bascule.control.decide import Target
from bascule.errors import BrokerError
from bascule.logs import emit
from bascule.metadata import Partition, State, Stream, StreamKey
from bascule.metadata.rejection import RejectedError

SHORTEST_S, LONGEST_S = 0.02, 60.0
"""Bounds of the time between two looks."""

PAUSE_TIMEOUT_S = 5.0
NANOS_PER_MS = 1_000_000


class AutoPauseDefaults(NamedTuple):
    """What streams get that leave it open, and what counts for some whatever they say; milliseconds, 0 = never."""

    time_ms: int = 0
    disable_if_subscribers: bool = False
    overrides: Mapping[StreamKey, int] = {}


class Due(NamedTuple):
    """What is to be paused now, and when to look again: seconds, None = when the state changes."""

    targets: tuple[Target, ...]
    next_s: float | None


def watched(state: State, broker_id: str, defaults: AutoPauseDefaults) -> list[tuple[Stream, Partition, int]]:
    """The partitions led here that may pause by themselves, with their time in milliseconds."""
    found: list[tuple[Stream, Partition, int]] = []
    for key, stream in sorted(state.streams.items()):
        asked = stream.settings.auto_pause_ms
        time_ms = defaults.overrides.get(key, defaults.time_ms if asked is None else asked)
        if time_ms > 0:
            here = (item for item in stream.partitions if item.leader == broker_id and not item.paused)
            found.extend((stream, item, time_ms) for item in here)
    return found


def due(
    candidates: Iterable[tuple[Stream, Partition, int]],
    status: Mapping[int, PartitionStatus],
    opened_ns: Mapping[int, int],
    now_ns: int,
    *,
    disable_if_subscribers: bool,
) -> Due:
    """Which of `candidates` have been idle for long enough. Pure.

    Args:
        candidates: as `watched` gives them.
        status: of those that are open, by incarnation.
        opened_ns: since when they have been open, by incarnation.
        now_ns: the time.
        disable_if_subscribers: for streams that leave it open.
    """
    targets: list[Target] = []
    next_ns: list[int] = []
    for stream, partition, time_ms in candidates:
        seen = status.get(partition.incarnation)
        since_ns = max(opened_ns.get(partition.incarnation, now_ns), seen.last_received_ns if seen else 0)
        left_ns = time_ms * NANOS_PER_MS - (now_ns - since_ns)
        asked = stream.settings.auto_pause_disable_if_subscribers
        awake = (disable_if_subscribers if asked is None else asked) and seen is not None and seen.subscribers > 0
        if left_ns > 0 or awake or seen is None or seen.held:
            next_ns.append(left_ns if left_ns > 0 else time_ms * NANOS_PER_MS)
        else:
            targets.append(Target(stream.namespace, stream.name, (partition.number,)))
    return Due(tuple(targets), min(next_ns) / 1e9 if next_ns else None)


class AutoPause:
    """The loop of one broker. Belongs to the event loop's thread."""

    def __init__(self, controller: Controller, defaults: AutoPauseDefaults) -> None:
        self._controller = controller
        self._defaults = defaults
        self._opened_ns: dict[int, int] = {}
        self._changed = asyncio.Event()
        controller.follow(lambda _: self._changed.set())

    async def run(self) -> None:
        """Pause what is idle, until cancelled."""
        while True:
            self._changed.clear()
            found = self._look()
            for target in found.targets:
                await self._pause(target)
            if found.targets:
                continue
            pause_s = None if found.next_s is None else min(max(found.next_s, SHORTEST_S), LONGEST_S)
            try:
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _look(self) -> Due:
        candidates = watched(self._controller.state, self._controller.broker_id, self._defaults)
        status = self._controller.status([partition.incarnation for _, partition, _ in candidates])
        now_ns = self._controller.now_ns()
        self._opened_ns = {item: self._opened_ns.get(item, now_ns) for item in status}
        return due(
            candidates,
            status,
            self._opened_ns,
            now_ns,
            disable_if_subscribers=self._defaults.disable_if_subscribers,
        )

    async def _pause(self, target: Target) -> None:
        """Pause one partition. Resuming a single one later must not wake others, so resume-all is off."""
        try:
            await self._controller.pause_stream(target, resume_all=False, timeout_s=PAUSE_TIMEOUT_S)
        except (BrokerError, RejectedError) as failure:
            fields = {"namespace": target.namespace, "stream": target.name}
            emit(30, "control.autopause", f"an idle partition could not be paused: {failure}", **fields)
            await asyncio.sleep(1.0)
