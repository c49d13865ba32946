"""A worker of PySpark that is idle and no longer wanted leaves.

Spark keeps a worker's process for the next task, and closes its socket when it wants it no more: after a minute, and
when the session stops. PySpark 4.3 takes that for a task that failed and reports so on the closed socket. Over TCP
nobody notices; over unix sockets, which `session` asks for because they are faster, it is a BrokenPipe traceback each.

`bascule.spark.daemon` sees to it for all workers, those too that run nothing but functions of the user. Where that is
not Spark's daemon, workers that read streams see to it themselves.
"""

import socket
import sys
from collections.abc import Callable
from typing import Any, Final

__all__ = ["leave_when_closed", "leaving"]

_DAEMON: Final = "pyspark.daemon"
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
        setattr(loop, "worker", leaving(run))  # noqa: B010 (the type of a module has no such attribute)


def leaving(run: Callable[..., int]) -> Callable[..., int]:
    """What runs one task after the other in a worker, `run`, and ends when its socket was closed instead."""

    def worker(channel: socket.socket, *rest: Any) -> int:
        try:
            begins = channel.recv(1, socket.MSG_PEEK)
        except OSError:
            begins = b""
        return run(channel, *rest) if begins else _LEAVE

    worker.leaves = True  # pyright: ignore[reportFunctionMemberAccess]
    return worker
