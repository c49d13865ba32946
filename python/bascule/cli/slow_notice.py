"""Saying on standard error that a broker keeps a person waiting."""

import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

__all__ = ["NOTICE_AFTER_S", "SlowNotice"]

NOTICE_AFTER_S: Final = 1.0
"""How long a silent broker is waited for in silence."""


class SlowNotice:
    """Tells of a connection, and of the first call over it, that takes longer than a person likes to look at nothing.

    Of later calls it does not tell: the broker is known to answer, and what then takes long is the work. Nor does it
    tell while no call is under way, as when records are waited for, or standard input.
    """

    def __init__(self, addresses: Sequence[str], timeout: float) -> None:
        """Of a broker at `addresses`, where connecting and each call may take `timeout` seconds."""
        self._where: Final = ", ".join(addresses)
        self._left: Final = timeout - NOTICE_AFTER_S
        self._answered = False

    @contextmanager
    def connecting(self) -> Generator[None]:
        """While the context lasts."""
        timer = threading.Timer(NOTICE_AFTER_S, self._tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def calling(self) -> Generator[None]:
        """The same, the first time."""
        if self._answered:
            yield
            return
        try:
            with self.connecting():
                yield
        finally:
            self._answered = True

    def _tell(self) -> None:
        sys.stderr.write(f"bascule: no answer from {self._where} yet; waiting for at most another {self._left:.3g} s\n")
        sys.stderr.flush()
