"""Background tasks: one that ends is restarted up to three times, then the broker stops.

A task that ran for `RECOVERED_S` before it ended counts as healthy: its restarts count from one again.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final, TypeAlias

from bascule.errors import BrokerError, error

__all__ = ["RESTART_PAUSES_S", "Supervisor", "Work"]

RESTART_PAUSES_S: Final = (0.1, 0.5, 1.0)
"""Pause before each restart; after the last one the broker ends."""

RECOVERED_S: Final = 600.0

_log = logging.getLogger("bascule.server.tasks")

Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Makes the coroutine of a task; called again for each restart."""


class Supervisor:
    """The background tasks of one broker. Belongs to the event loop's thread."""

    def __init__(self, on_failure: Callable[[BrokerError], None], pauses_s: Sequence[float] = RESTART_PAUSES_S) -> None:
        """Start nothing yet.

        Args:
            on_failure: called once with the reason when a task has ended too often.
            pauses_s: seconds before each restart; as many restarts as there are pauses.
        """
        self._on_failure: Final = on_failure
        self._pauses_s: Final = tuple(pauses_s)
        self._tasks: Final[dict[str, asyncio.Task[None]]] = {}
        self._stopping = False

    def start(self, name: str, work: Work) -> None:
        """Run a task under this name until `stop`; it must not return before that."""
        self._tasks[name] = asyncio.get_running_loop().create_task(self._keep(name, work), name=f"bascule-{name}")

    def begin_stop(self) -> None:
        """From now on a task that ends is not started again, and is not a failure."""
        self._stopping = True

    async def stop(self, *, keep: Collection[str] = ()) -> None:
        """Cancel every task but those of `keep`, and wait for their ends. Idempotent."""
        self.begin_stop()
        ending = [self._tasks.pop(name) for name in tuple(self._tasks) if name not in keep]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _keep(self, name: str, work: Work) -> None:
        loop = asyncio.get_running_loop()
        ends = 0
        while True:
            began = loop.time()
            failure = await _end_of(work)
            if self._stopping:
                return
            ends = 1 if loop.time() - began >= RECOVERED_S else ends + 1
            fields = {"task": name, "ends": ends}
            if ends > len(self._pauses_s):
                text = f'background task "{name}" ended {ends} times, the last time by {failure!r}: the broker ends'
                _log.error("%s", text, exc_info=failure, extra={"fields": fields})
                self._on_failure(failure if isinstance(failure, BrokerError) else error("internal", text))
                return
            pause_s = self._pauses_s[ends - 1]
            text = f'background task "{name}" ended by {failure!r} and is started again in {pause_s:g} s'
            _log.error("%s", text, exc_info=failure, extra={"fields": fields})
            await asyncio.sleep(pause_s)


async def _end_of(work: Work) -> BaseException:
    """Run `work` once; why it ended.

    Raises:
        CancelledError: the supervisor or the event loop cancelled it.
    """
    try:
        await work()
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return cancelled
    except Exception as failure:  # noqa: BLE001 - whatever ended the task, the supervisor decides what follows
        return failure
    return RuntimeError("it returned")
