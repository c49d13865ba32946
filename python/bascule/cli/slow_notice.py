"""A notice on standard error when a broker is slow to answer."""

import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Final

__all__ = ["NOTICE_AFTER_S", "SlowNotice"]

NOTICE_AFTER_S: Final = 1.0
"""Seconds without an answer before the notice is written."""


class SlowNotice:
    """Writes a notice when connecting, or the first call over the connection, takes more than one second.

    Later calls cause no notice: the broker is known to answer, and the work itself may take long. Waiting for records
    or for standard input causes none either.
    """

    def __init__(self, addresses: Sequence[str], timeout: float) -> None:
        """For a broker at `addresses`, where connecting and each call may take `timeout` seconds."""
        self._where: Final = ", ".join(addresses)
        self._left: Final = timeout - NOTICE_AFTER_S
        self._answered = False

    @contextmanager
    def connecting(self) -> Generator[None]:
        """Watch connecting, while the context lasts."""
        timer = threading.Timer(NOTICE_AFTER_S, self._write)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    @contextmanager
    def calling(self) -> Generator[None]:
        """Watch a call, if it is the first one."""
        if self._answered:
            yield
            return
        try:
            with self.connecting():
                yield
        finally:
            self._answered = True

    def _write(self) -> None:
        sys.stderr.write(f"bascule: no answer from {self._where} yet; waiting for at most another {self._left:.3g} s\n")
        sys.stderr.flush()
