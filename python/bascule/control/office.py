"""Duties of the cluster's controller: they run on the broker that holds the office, and nowhere else.

Whoever takes the office first waits until everything that was committed before is applied here; then its duties begin.
They end when the office is lost, or held in another term.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from bascule._seam import Office as OfficeChange
from bascule.errors import OutcomeUnknownError
from bascule.logs import emit

BARRIER_S = 5.0

Duty = Callable[[], Awaitable[None]]
"""Works until cancelled."""


class Barrier(Protocol):
    """What taking office needs of the metadata log."""

    async def barrier(self, timeout_s: float) -> int:
        """Wait until everything committed before this call is applied here."""
        ...


class Office:
    """Runs duties while this broker holds the office. Belongs to the event loop's thread."""

    def __init__(self, log: Barrier, duties: Sequence[Duty]) -> None:
        self._log = log
        self._duties = tuple(duties)
        self._term = 0
        self._changed = asyncio.Event()

    @property
    def term(self) -> int:
        """The term that the office is held in; 0 = it is not held."""
        return self._term

    def on_change(self, event: OfficeChange) -> None:
        """Note that the office was taken or lost."""
        self._term = event.term if event.held else 0
        self._changed.set()

    async def run(self) -> None:
        """Work until cancelled. When it ends by an exception it may be run again."""
        while True:
            self._changed.clear()
            if term := self._term:
                serving = asyncio.create_task(self._serve(term))
                changed = asyncio.create_task(self._changed.wait())
                await self._until_one_ends(serving, changed)
                emit(20, "cluster", "this broker is not the controller any more", term=term)
            else:
                await self._changed.wait()

    @staticmethod
    async def _until_one_ends(*tasks: asyncio.Task[Any]) -> None:
        """Wait for the first, and cancel the others; a failure of one is raised."""
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, term: int) -> None:
        while True:
            try:
                index = await self._log.barrier(BARRIER_S)
            except OutcomeUnknownError:
                continue  # the office may be lost meanwhile, which ends this
            break
        emit(20, "cluster", "this broker is the controller", term=term, index=index)
        async with asyncio.TaskGroup() as group:
            for duty in self._duties:
                group.create_task(_as_coroutine(duty))
            group.create_task(asyncio.Event().wait())


async def _as_coroutine(duty: Duty) -> None:
    await duty()
