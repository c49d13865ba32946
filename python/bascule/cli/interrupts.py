"""SIGTERM for commands that talk to a broker."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

__all__ = ["terminated_as_interrupted"]


@contextmanager
def terminated_as_interrupted() -> Generator[None]:
    """Treat SIGTERM as Ctrl-C while the context lasts: connections are closed and the command exits with 130."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set signal handlers
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
