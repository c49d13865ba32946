"""Ends a process of PySpark without a traceback when Spark has closed its socket.

Spark keeps a worker's process for the next task and closes its socket when it no longer needs it: after a minute, when
the session stops, and when `show`, `limit` or `take` have enough rows. PySpark 4.3 handles that as a failed task,
reports it on the closed socket, and prints a BrokenPipe traceback.

`bascule.spark.daemon` prevents that for all workers, also for those that only run functions of the user. Where Spark
uses another daemon, workers that read streams do it themselves.
"""

import os
import socket
import sys
import traceback
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

__all__ = ["leave_stopped_planner", "leave_when_closed", "leaving"]

_DAEMON: Final = "pyspark.daemon"
_PLANNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"
_CLOSED: Final = (BrokenPipeError, ConnectionResetError)
_LEAVE: Final = 1
"""Return value that makes the daemon's loop end the process instead of waiting for another task."""


def leave_when_closed() -> None:
    """In a worker forked by PySpark's daemon: check before each later task whether the socket was closed. Has no effect
    elsewhere. Idempotent.
    """
    loop = sys.modules.get("__main__")
    run = getattr(loop, "worker", None)
    if getattr(getattr(loop, "__spec__", None), "name", None) != _DAEMON or run is None:
        return
    if not hasattr(run, "leaves"):
        # The type of a module has no such attributes.
        setattr(loop, "worker", leaving(run))  # noqa: B010
        setattr(loop, "traceback", _without_closed_sockets())  # noqa: B010 - for the task that runs


def leave_stopped_planner() -> None:
    """In the process that plans the micro-batches of a query: end it when Spark has closed its socket, as at the end of
    the query. PySpark 4.3 would report the end of the input on the closed socket, and print a BrokenPipe traceback. For
    `stop` of a reader, which PySpark calls while it handles that error; has no effect elsewhere.
    """
    loop = sys.modules.get("__main__")
    is_planner = getattr(getattr(loop, "__spec__", None), "name", None) == _PLANNER
    if is_planner and isinstance(sys.exception(), (EOFError, *_CLOSED)):
        os._exit(0)


def _without_closed_sockets() -> SimpleNamespace:
    """A replacement of `traceback` for PySpark's daemon, which does not print errors of a socket closed by Spark."""

    def print_exc() -> None:
        if not isinstance(sys.exception(), _CLOSED):
            traceback.print_exc()

    return SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)


def leaving(run: Callable[..., int]) -> Callable[..., int]:
    """Wraps `run`, which runs tasks in a worker, so that it ends when the socket was closed."""

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
            return _LEAVE  # Spark has closed the socket: it needs no further rows of this task

    worker.leaves = True  # pyright: ignore[reportFunctionMemberAccess]
    return worker
