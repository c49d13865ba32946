"""What planners ask the driver: the time zone of the session, the number of tasks that run at once.

Spark runs the planner of a Python data source in a separate process and does not pass it the settings of the session.
So `bascule.spark.session` answers on a Unix socket of the driver, whose path planners inherit in the environment.
"""

import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Final

VARIABLE: Final = "PYSPARK_BASCULE_DRIVER"
"""Environment variable with the path of the socket."""
_WAIT_S: Final = 10.0
_MOST_BYTES: Final = 256
_LONGEST_FOLDER_BYTES = 70


def ask(question: str) -> str:
    """The driver's answer; empty if there is none."""
    path = os.environ.get(VARIABLE)
    if not path:
        return ""
    try:
        with socket.socket(socket.AF_UNIX) as channel:
            channel.settimeout(_WAIT_S)
            channel.connect(path)
            channel.sendall(question.encode())
            channel.shutdown(socket.SHUT_WR)
            return _receive(channel)
    except OSError:
        return ""


class Answering:
    """Answers planners on a thread, until the process ends."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[], str]] = {}
        """Functions that return the answer to a question; empty = unknown."""
        # The path of a Unix socket has at most 103 bytes on macOS and 107 on Linux; TMPDIR may be too long.
        short = len(os.fsencode(tempfile.gettempdir())) <= _LONGEST_FOLDER_BYTES
        self._folder = tempfile.TemporaryDirectory(prefix="bascule-spark-", dir=None if short else "/tmp")  # noqa: S108
        self._path = str(Path(self._folder.name) / "driver")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._path)
        self._listener.listen()
        os.environ[VARIABLE] = self._path
        Thread(target=self._run, name="bascule-spark-driver", daemon=True).start()

    def _run(self) -> None:
        while True:
            channel, _ = self._listener.accept()
            with channel:
                try:
                    channel.settimeout(_WAIT_S)
                    answer = self.answers.get(_receive(channel))
                    channel.sendall(b"" if answer is None else answer().encode())
                except Exception:  # noqa: BLE001, S112 - a session that was stopped or a planner that left: no answer
                    continue


def _receive(channel: socket.socket) -> str:
    """Text until the other end closes, at most `_MOST_BYTES`."""
    received = b""
    while len(received) < _MOST_BYTES and (more := channel.recv(_MOST_BYTES)):
        received += more
    return received.decode(errors="replace")
