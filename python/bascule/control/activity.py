"""Writes events of streams and groups to the activity stream.

The state keeps each event until an entry says that it is written (`SettleActivity`), so none is lost by a crash, and
what the stream has already is found by reading its end before the first write, so none is written twice either. Only
what is an event of ours, byte for byte, counts as written: records of others, from when they could be published there,
are logged and hide nothing.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bascule.control.controller import Controller
from bascule.control.dataplane import DataPlane
from bascule.control.decide import ALL_BROKERS, StreamRequest
from bascule.logs import emit
from bascule.metadata import (
    DEFAULT_NAMESPACE,
    Activity,
    Partition,
    SetActivity,
    SettleActivity,
    StreamKey,
    StreamSettings,
)

STREAM = "__activity"
ACTIVITY: Final = StreamKey(DEFAULT_NAMESPACE, STREAM)
BATCH = 256
"""Most events of one write."""

TAIL = 1024
"""Records at the end of the stream among which the last event is searched."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 10.0


@dataclass(frozen=True, slots=True)
class ActivityCodec:
    """How events are written. `event_id`: the id in a record's value, 0 = it is not an event."""

    encode: Callable[[Activity], bytes]
    event_id: Callable[[bytes], int]


class ActivityWriter:
    """The writer of one broker. Belongs to the event loop's thread."""

    def __init__(self, controller: Controller, plane: DataPlane, codec: ActivityCodec, timeout_s: float) -> None:
        self._controller = controller
        self._plane = plane
        self._codec = codec
        self._timeout_s = timeout_s
        self._changed = asyncio.Event()
        controller.follow(lambda _: self._changed.set())
        self._is_known = False
        self._written: frozenset[bytes] = frozenset()

    async def prepare(self, subject: str, timeout_s: float, *, on: bool, encrypted: bool = False) -> None:
        """Keep events from now on, and create the stream when it is missing: its creation is the first event. Or keep
        none any more. `encrypted`: how the stream is created.

        Raises:
            StateError: `encryption_unavailable`: it is to be encrypted and there is no usable master key.
            BrokerError: as `MetadataLog.propose`.
        """
        if self._controller.state.activity_on != on:
            await self._controller.propose(SetActivity(on), timeout_s)
        if on and self._controller.state.stream(DEFAULT_NAMESPACE, STREAM) is None:
            settings = StreamSettings(encryption=encrypted or None)
            request = StreamRequest(*ACTIVITY, subject, "", 1, ALL_BROKERS, settings)
            await self._controller.create_stream(request, timeout_s)

    async def run(self) -> None:
        """Write events as they come, until cancelled. A failed write is repeated after 1, 2, 4, 8, then every 10 s."""
        pause_s = FIRST_PAUSE_S
        while True:
            self._changed.clear()
            if not self._controller.state.activity:
                await self._changed.wait()
                continue
            try:
                await self._write(self._controller.state.activity[:BATCH])
                pause_s = FIRST_PAUSE_S
            except Exception as failure:  # noqa: BLE001 - whatever it is, the events are kept and the write repeated
                emit(30, "activity", f"events could not be written, the next try is in {pause_s:g} s: {failure}")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _write(self, events: tuple[Activity, ...]) -> None:
        partition = await self._partition()
        if not self._is_known:
            self._written = frozenset(await asyncio.to_thread(self._plane.tail, partition.incarnation, TAIL))
            self._tell_forged(self._written)
        encoded = [self._codec.encode(event) for event in events]
        fresh = [value for value in encoded if value not in self._written]
        if fresh:
            self._is_known = False  # what is written when the next line fails: look again
            await asyncio.to_thread(self._plane.append, partition.incarnation, fresh, int(self._timeout_s * 1000))
        self._is_known, self._written = True, frozenset(encoded)
        await self._controller.propose(SettleActivity(events[-1].id), self._timeout_s)

    def _tell_forged(self, values: Iterable[bytes]) -> None:
        """Ids are indices of entries: none is above the last entry."""
        ids = [number for number in map(self._codec.event_id, values) if number > self._controller.state.index]
        if ids:
            message = "events that are not the broker's lie on the activity stream, and are ignored"
            emit(30, "activity", message, ids=ids[:10], records=len(ids))

    async def _partition(self) -> Partition:
        """The stream's partition, open.

        Raises:
            LookupError: there is none.
            BrokerError, RejectedError: it could not be resumed.
        """
        await self._controller.resume_partition(DEFAULT_NAMESPACE, STREAM, 0, self._timeout_s)
        stream = self._controller.state.stream(DEFAULT_NAMESPACE, STREAM)
        if stream is None:
            raise LookupError("the activity stream does not exist")
        return stream.partitions[0]
