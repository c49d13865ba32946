"""One after the other where the order counts: for each key, in the order in which they came."""

import threading
from collections import deque
from collections.abc import Generator, Hashable
from contextlib import contextmanager

from bascule.client.deadline import Deadline

__all__ = ["Turns"]


class Turns:
    """Safe to share between threads. Keys that nobody waits for take no space."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[Hashable, deque[threading.Event]] = {}

    @contextmanager
    def taken(self, key: Hashable, deadline: Deadline) -> Generator[None]:
        """Run the body when all who asked for the same key before are done.

        Raises:
            UnavailableError: code `deadline_exceeded`: they were not in time.
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
