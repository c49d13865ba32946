"""The pulled event loop: takes events out of the data plane in batches and hands each to the handler of its kind.

Runs on the event loop; sleeps on the data plane's file descriptor, polls once per turn, and gives others their turn in
between: a turn ends after `TURN_S`, however many events wait. A handler that fails does not stop the pump: the failure
goes to `on_error`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from bascule._seam import Event
from bascule.control.dataplane import DataPlane

EVENTS_PER_TURN: Final = 256
TURN_S: Final = 0.02

Handler = Callable[[Any], None]
"""Takes the events of one type."""


class EventPump:
    """Feeds handlers by type of event. Not safe to use from other threads than the loop's."""

    def __init__(
        self, plane: DataPlane, handlers: Mapping[type[Any], Handler], on_error: Callable[[Event, Exception], None]
    ) -> None:
        self._plane = plane
        self._handlers = dict(handlers)
        self._on_error = on_error
        self._waiting: Final[deque[Event]] = deque()

    async def run(self) -> None:
        """Handle events, those that wait already first, until cancelled."""
        loop = asyncio.get_running_loop()
        descriptor, readable = self._plane.fileno(), asyncio.Event()
        loop.add_reader(descriptor, readable.set)
        try:
            while True:
                if self._waiting or self._poll():
                    self._turn(loop.time() + TURN_S, loop.time)
                    await asyncio.sleep(0)
                else:
                    await readable.wait()
                    readable.clear()
        finally:
            loop.remove_reader(descriptor)

    def finish(self) -> None:
        """Handle what waits; after the end of `run`. Idempotent."""
        while self._waiting or self._poll():
            self._handle(self._waiting.popleft())

    def _poll(self) -> bool:
        self._waiting.extend(self._plane.poll(EVENTS_PER_TURN))
        return bool(self._waiting)

    def _turn(self, end: float, clock: Callable[[], float]) -> None:
        """Handle at least one event."""
        while self._waiting:
            self._handle(self._waiting.popleft())
            if clock() >= end:
                return

    def _handle(self, event: Event) -> None:
        try:
            self._handlers[type(event)](event)
        except Exception as error:  # noqa: BLE001 - one event must not keep the others from being handled
            self._on_error(event, error)
