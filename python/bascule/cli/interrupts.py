"""How a command that talks to a broker is ended from outside."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

__all__ = ["terminated_as_interrupted"]


@contextmanager
def terminated_as_interrupted() -> Generator[None]:
    """SIGTERM is taken as Ctrl-C while the context lasts: what is open is closed, and the command ends with 130."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
