"""A fair lock per key: holders of the same key take turns in the order in which they asked."""

import threading
from collections import deque
from collections.abc import Generator, Hashable
from contextlib import contextmanager

from bascule.client._core.deadline import Deadline

__all__ = ["KeyedLock"]


class KeyedLock:
    """Safe to share between threads. A key that nobody holds or waits for takes no memory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[threading.Event]] = {}

    @contextmanager
    def held(self, key: Hashable, deadline: Deadline) -> Generator[None]:
        """Run the body when all earlier holders of the key have finished.

        Raises:
            UnavailableError: code `deadline_exceeded`: they did not finish in time.
        """
        mine = threading.Event()
        try:
            with self._lock:
                queue = self._queues.setdefault(key, deque())
                if not queue:
                    mine.set()
                queue.append(mine)
            while not mine.wait(deadline.left):
                deadline.left_ms()
            yield
        finally:
            self._leave(key, mine)

    def _leave(self, key: Hashable, mine: threading.Event) -> None:
        with self._lock:
            queue = self._queues.get(key, deque())
            if mine in queue:
                queue.remove(mine)
            if queue:
                queue[0].set()
            else:
                self._queues.pop(key, None)
