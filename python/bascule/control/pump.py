"""The pulled event loop: takes events out of the data plane in batches and hands each to the handler of its kind.

Runs on the event loop; sleeps on the data plane's file descriptor, polls once per turn, and gives others their turn in
between. A handler that fails does not stop the pump: the failure goes to `on_error`.
"""

import asyncio
from collections.abc import Callable, Mapping

from bascule.control.dataplane import DataPlane, Event

EVENTS_PER_TURN = 256

Handler = Callable[[Event], None]


class EventPump:
    """Feeds handlers by kind of event. Not safe to use from other threads than the loop's."""

    def __init__(
        self, plane: DataPlane, handlers: Mapping[str, Handler], on_error: Callable[[Event, Exception], None]
    ) -> None:
        self._plane = plane
        self._handlers = dict(handlers)
        self._on_error = on_error
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = -1

    def start(self) -> None:
        """Begin; call on the loop's thread. Events that wait already are handled from the next turn on."""
        self._loop = asyncio.get_running_loop()
        self._fd = self._plane.fileno()
        self._loop.add_reader(self._fd, self._turn)
        self._loop.call_soon(self._turn)

    def finish(self) -> None:
        """Handle what waits, then nothing more. Idempotent."""
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._loop = None
            while events := self._plane.poll(EVENTS_PER_TURN):
                self._handle(events)

    def _turn(self) -> None:
        if self._loop is None:
            return
        events = self._plane.poll(EVENTS_PER_TURN)
        self._handle(events)
        if len(events) == EVENTS_PER_TURN:
            self._loop.call_soon(self._turn)

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            try:
                self._handlers[event[0]](event)
            except Exception as error:  # noqa: BLE001 - one event must not keep the others from being handled
                self._on_error(event, error)
