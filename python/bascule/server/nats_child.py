"""The nats-server of a standalone broker: a supervised child process.

It is killed when the broker ends for any reason (`nats_launch`). The kernel binds the child to the thread that started
it, so a separate thread starts it and runs as long as the broker: it forwards the server's log, and restarts it on the
same port, with growing pauses. The port also stays the same over restarts of the broker, so that publishers find the
server again; it is stored in `<data>/nats/port`.
"""

import asyncio
import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bascule.config import ENVIRONMENT_KEY, NatsSettings
from bascule.errors import BrokerError, error
from bascule.logs import emit
from bascule.server.nats_binary import find_nats_server
from bascule.server.nats_file import ListenKeys, listen_keys
from bascule.server.private_files import make_private_directory, write_private

READY_S = 10.0
"""Seconds until the server must accept clients."""

STOP_S = 3.0
FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S = 0.1, 5.0, 10.0
START_ATTEMPTS = 4
"""Restarts allowed before the server was ready once: the child of a killed broker may still use the port."""

_EVERY = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound
_LAUNCHER = Path(__file__).with_name("nats_launch.py")
_LINE = re.compile(r"\[(?P<level>TRC|DBG|INF|WRN|ERR|FTL)\] (?P<text>.*)")
_LEVELS = {"TRC": 10, "DBG": 10, "INF": 10, "WRN": 30, "ERR": 30, "FTL": 40}

MAX_PENDING = 256 << 20
"""Bytes that the server buffers for a client that does not read: what two cores publish in about a second."""


class NatsChild:
    """One supervised nats-server. `start` and `stop` may be called from any thread.

    Attributes:
        url: URL for clients; does not change.
    """

    def __init__(self, directory: Path, settings: NatsSettings) -> None:
        self._binary = find_nats_server()
        self._directory = directory
        self._settings = settings
        self._name = f"bascule-{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._accepted = threading.Event()
        self._given_up: BrokerError | None = None
        self._last_words = ""
        self._file_keys = (
            listen_keys(settings.config) if settings.config is not None else ListenKeys(host=False, port=False)
        )
        self._host = "127.0.0.1" if settings.host in _EVERY else settings.host
        self._port, self._port_is_ours = self._choose_port()

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"nats://{f'[{self._host}]' if ':' in self._host else self._host}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of the server; `None` = it does not run."""
        with self._lock:
            return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start and supervise it. Returns at once.

        Raises:
            StateError: `data_directory_unusable`: its directory cannot be written.
        """
        try:
            make_private_directory(self._directory)
            self._write_files()
        except OSError as failure:
            message = f"cannot write {self._directory}: {failure.strerror}"
            raise error("data_directory_unusable", message) from failure
        self._thread = threading.Thread(target=self._supervise, name="nats-server", daemon=True)
        self._thread.start()

    async def wait_ready(self) -> None:
        """Wait until the server accepts clients.

        Raises:
            StateError: `nats_server_failed`, with its last log line; `address_in_use`: the configured port is in use.
        """
        deadline = time.monotonic() + READY_S
        while not await self._accepts():
            if self._given_up is not None:
                raise self._given_up
            if time.monotonic() > deadline:
                raise error("nats_server_failed", f"nats-server did not accept clients within {READY_S:g} s")
            await asyncio.sleep(0.01)
        self._accepted.set()
        emit(20, "nats.server", "nats-server accepts clients", url=self.url, pid=self.pid)

    def stop(self) -> None:
        """Stop the server. Blocks for a few seconds at most; idempotent."""
        self._stopping.set()
        with self._lock:
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_S)

    # -- the thread -------------------------------------------------------------------------------------------------
    def _supervise(self) -> None:
        pause_s, attempts = FIRST_PAUSE_S, 0
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                ended = self._run_once()
            except Exception as defect:  # noqa: BLE001 - without this thread nobody would restart the server
                ended = f"a defect of its supervision: {defect!r}"
            if self._stopping.is_set():
                return
            attempts += 1
            if not self._accepted.is_set() and attempts >= START_ATTEMPTS and not self._another_port():
                self._given_up = self._failure(ended)
                return
            pause_s = FIRST_PAUSE_S if time.monotonic() - began > STEADY_S else pause_s
            message = f"nats-server ended ({ended}) and is started again in {pause_s:g} s"
            emit(40 if self._accepted.is_set() else 30, "nats.server", message, last_words=self._last_words)
            self._stopping.wait(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _run_once(self) -> str:
        """Run the server until it ends. Returns how it ended."""
        command = [sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), str(self._binary), *self._arguments()]
        with self._lock:
            if self._stopping.is_set():
                return "stopped"
            try:
                for left in self._directory.glob("nats-server_*.ports"):  # left by a killed server
                    left.unlink(missing_ok=True)
                # A separate session: Ctrl-C in the terminal must reach only the broker, which then stops the server.
                self._process = process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                    start_new_session=True, env=_without_key(os.environ), umask=0o077,
                )  # fmt: skip
            except OSError as failure:
                self._last_words = str(failure)
                return f"it could not be started: {failure}"
        with process:
            if process.stderr is not None:
                for line in process.stderr:
                    self._pass_on(line.decode(errors="replace").rstrip())
        code = process.returncode
        return f"exit code {code}" if code >= 0 else f"signal {-code}"

    def _pass_on(self, line: str) -> None:
        found = _LINE.search(line)
        text, level = (found["text"], _LEVELS[found["level"]]) if found else (line, 30)
        if level > 10 and text:
            self._last_words = text
        emit(level, "nats.server", text)

    # -- inside -----------------------------------------------------------------------------------------------------
    def _choose_port(self) -> tuple[int, bool]:
        """The port, and whether the broker may change it. A port in the server's own file is known once it listens."""
        if self._file_keys.port and not self._settings.port:
            return 0, False
        if self._settings.port:
            return self._settings.port, False
        with contextlib.suppress(OSError, ValueError):
            return int((self._directory / "port").read_text()), True
        first = self._settings.first_port
        if first and not _is_taken(self._host, first):
            return first, True
        port = _free_port(self._host)
        if first:
            emit(30, "nats.server", f"port {first} is in use; publishers must use port {port}")
        return port, True

    def _another_port(self) -> bool:
        """Choose another port if another process uses the stored one. Returns whether that was possible."""
        if not self._port_is_ours or not _is_taken(self._host, self._port):
            return False
        kept, self._port = self._port, _free_port(self._host)
        self._port_is_ours = False
        self._write_files()
        emit(30, "nats.server", f"the previous port {kept} is in use; publishers must use {self.url} from now on")
        return True

    def _arguments(self) -> list[str]:
        """The arguments. The address in the server's own file is kept, unless the broker's settings override it."""
        config = self._settings.config or self._directory / "nats-server.conf"
        address: list[str] = []
        if not self._file_keys.host or "host" in self._settings.model_fields_set:
            address += ["-a", self._settings.host]
        if self._port and (not self._file_keys.port or self._settings.port):
            address += ["-p", str(self._port)]
        return ["-c", str(config), *address, "--name", self._name, "--ports_file_dir", str(self._directory)]

    def _write_files(self) -> None:
        pending = max(MAX_PENDING, 4 * self._settings.max_payload)
        write_private(
            self._directory / "nats-server.conf",
            "# Written by the broker at each start; changes are lost. Set nats.config to use another file.\n"
            f"max_payload: {self._settings.max_payload}\n"
            f"max_pending: {pending}\n",
        )
        if self._port_is_ours or not (self._settings.port or self._file_keys.port):
            write_private(self._directory / "port", f"{self._port}\n")

    async def _accepts(self) -> bool:
        """Whether the started server accepts clients; a server with its own file writes down its address."""
        if self._settings.config is not None:
            return self._take_address()
        try:
            async with asyncio.timeout(1.0):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    greeting = await reader.readline()
                finally:
                    writer.close()
            return json.loads(greeting.removeprefix(b"INFO ")).get("server_name") == self._name
        except (OSError, ValueError, TimeoutError):
            return False

    def _take_address(self) -> bool:
        """Read the address that the server has written down; false = not yet. The server is not contacted, because it
        may require TLS.
        """
        try:
            document: Any = json.loads((self._directory / f"nats-server_{self.pid}.ports").read_bytes())
            urls = [urlsplit(str(url)) for url in document["nats"]]
            first = next((url for url in urls if url.hostname == "127.0.0.1"), urls[0])
            host, port = first.hostname, first.port
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            return False
        if host is None or port is None:
            return False
        # Several addresses: it listens on all interfaces.
        self._host = host if len(urls) == 1 else "127.0.0.1"
        self._port = port
        return True

    def _failure(self, ended: str) -> BrokerError:
        if self._port and _is_taken(self._host, self._port):
            message = (
                f"port {self._port} for the nats-server is in use: stop its process, or name another port in nats.port"
            )
            return error("address_in_use", message)
        return error("nats_server_failed", f"nats-server does not start ({ended}): {self._last_words}")


def _free_port(host: str) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _is_taken(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return True
        return False


def _without_key(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment for another program, without master keys."""
    return {name: value for name, value in environment.items() if name != ENVIRONMENT_KEY}
