"""A worker of PySpark whose socket Spark has closed leaves without a traceback.

Spark keeps a worker's process for the next task and closes its socket when it needs it no longer: after a minute, when
the session stops, and when `show`, `limit` or `take` have enough rows. PySpark 4.3 takes that for a task that failed,
reports so on the closed socket, and prints a BrokenPipe traceback.

`bascule.spark.daemon` prevents that for all workers, also for those that only run functions of the user. Where Spark
uses another daemon, workers that read streams do it themselves.
"""

import socket
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

__all__ = ["leave_when_closed", "leaving"]

_DAEMON: Final = "pyspark.daemon"
_CLOSED: Final = (BrokenPipeError, ConnectionResetError)
_LEAVE: Final = 1
"""What makes the daemon's loop end the process instead of waiting for another task."""


def leave_when_closed() -> None:
    """In a worker that PySpark's daemon forked: before each later task, see whether the socket was closed. Elsewhere
    nothing happens. Idempotent.
    """
    loop = sys.modules.get("__main__")
    run = getattr(loop, "worker", None)
    if getattr(getattr(loop, "__spec__", None), "name", None) != _DAEMON or run is None:
        return
    if not hasattr(run, "leaves"):
        # The type of a module has no such attributes.
        setattr(loop, "worker", leaving(run))  # noqa: B010
        setattr(loop, "traceback", _without_closed_sockets())  # noqa: B010 - for the task that runs


def _without_closed_sockets() -> SimpleNamespace:
    """What PySpark's daemon uses of `traceback`; silent about a socket that Spark has closed, and only about that."""

    def print_exc() -> None:
        if not isinstance(sys.exception(), _CLOSED):
            traceback.print_exc()

    return SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)


def leaving(run: Callable[..., int]) -> Callable[..., int]:
    """What runs one task after the other in a worker, `run`, and ends when its socket was closed instead."""

    def worker(channel: socket.socket, *rest: Any) -> int:
        try:
            begins = channel.recv(1, socket.MSG_PEEK)
        except OSError:
            begins = b""
        if not begins:
            return _LEAVE
        try:
            return run(channel, *rest)
        except _CLOSED:
            return _LEAVE  # Spark has closed the socket: it wants no more of what this task gives

    worker.leaves = True  # pyright: ignore[reportFunctionMemberAccess]
    return worker
