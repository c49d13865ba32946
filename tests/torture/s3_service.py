"""An S3 service in a process of its own, and a proxy before it that answers with errors, slowly, or not at all."""

from __future__ import annotations

import http.client
import json
import random
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from tests.torture.result import SkippedError

if TYPE_CHECKING:
    from collections.abc import Generator

BUCKET = "lake"
START_SECONDS = 120
Fault = Literal["none", "refused", "lost", "throttled", "slow", "cut"]
"""What happens to a request: it is served; answered with 500 and not executed; executed and answered with 500; answered
with 503; delayed before and after; executed, and the connection is cut before the answer.
"""
FAULTS: Final[tuple[Fault, ...]] = ("refused", "lost", "throttled", "slow", "cut")


@contextmanager
def s3_service() -> Generator[int]:
    """The port of a service with an empty bucket `lake`."""
    program = Path(sys.executable).with_name("moto_server")
    if not program.exists():
        raise SkippedError("moto_server is missing: install the group dev")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [str(program), "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + START_SECONDS
        while not _answers(port):
            if time.monotonic() > limit:
                raise RuntimeError("moto_server does not answer")
            time.sleep(0.1)
        made = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        made.request("PUT", f"/{BUCKET}")
        assert made.getresponse().status == http.HTTPStatus.OK
        made.close()
        yield port
    finally:
        server.terminate()
        server.wait(10)


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


@dataclass
class Weather:
    """Which faults happen: drawn for each request, in the order in which they come.

    Attributes:
        chance: source of all draws.
        share: part of the requests with a fault, 0 to 1.
        slow_s: longest delay, before and after.
        seen: requests by fault.
    """

    chance: random.Random
    share: float = 0.0
    slow_s: float = 0.3
    seen: dict[str, int] = field(default_factory=dict[str, int])
    _lock: Any = field(default_factory=threading.Lock)

    def next(self) -> tuple[Fault, float]:
        """The fault of the next request, and how long a slow one waits, in seconds."""
        with self._lock:
            fault: Fault = self.chance.choice(FAULTS) if self.chance.random() < self.share else "none"
            self.seen[fault] = self.seen.get(fault, 0) + 1
            return fault, self.chance.uniform(0, self.slow_s)


@dataclass
class FaultyProxy:
    """A proxy before a service, in a process of its own, since calls of deltalake hold the interpreter.

    Attributes:
        url: of the proxy.
        seen: requests by fault, once it has ended.
    """

    url: str
    seen: dict[str, int] = field(default_factory=dict[str, int])


@contextmanager
def proxy(port: int, seed: int, share: float) -> Generator[FaultyProxy]:
    """A proxy before the service at `port`, in which a part of the requests has a fault."""
    command = [sys.executable, "-m", __name__, str(port), str(seed), str(share)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    made = FaultyProxy(f"http://127.0.0.1:{int(process.stdout.readline())}")
    try:
        yield made
    finally:
        process.stdin.close()
        made.seen = json.loads(process.stdout.readline() or "{}")
        process.stdout.close()
        process.wait(10)


def main() -> None:
    """Serve until the end of standard input; print the port first, and the requests by fault at the end."""
    port, seed, share = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    weather = Weather(random.Random(seed), share)
    server = _Proxy(port, weather)
    threading.Thread(target=server.serve_forever, name="s3-proxy", daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()
    server.shutdown()
    print(json.dumps(weather.seen), flush=True)


Answer = tuple[int, list[tuple[str, str]], bytes]
"""Status, headers and body."""

_OF_A_CONNECTION = {"connection", "transfer-encoding", "content-length", "expect", "date", "server"}
"""Headers that a proxy does not pass on."""


class _Proxy(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, weather: Weather) -> None:
        super().__init__(("127.0.0.1", 0), _Call)
        self.port, self.weather = port, weather


class _Call(BaseHTTPRequestHandler):
    """The requests of one connection."""

    protocol_version = "HTTP/1.1"
    server: _Proxy  # pyright: ignore[reportIncompatibleVariableOverride] - no other server makes it

    def handle_one_request(self) -> None:
        """Serve a request; a client that gave up is none of ours."""
        with suppress(ConnectionError):
            super().handle_one_request()

    def log_message(self, *_: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - any arguments
        """Print nothing."""

    def do_any(self) -> None:
        """Forward a request, with what the weather makes of it."""
        body = self._body()
        fault, delay_s = self.server.weather.next()
        if fault in ("refused", "throttled"):
            self._answer((500 if fault == "refused" else 503, [], _error(fault)))
            return
        if fault == "slow":
            time.sleep(delay_s)
        answer = self._forwarded(body)
        if fault == "slow":
            time.sleep(delay_s)
        if fault == "cut":
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self._answer((500, [], _error(fault)) if fault == "lost" else answer)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_any  # noqa: N815 - names of the base class

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        content = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def _forwarded(self, body: bytes) -> Answer:
        service = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            kept = {name: value for name, value in self.headers.items() if name.lower() not in _OF_A_CONNECTION}
            service.request(self.command, self.path, body=body, headers=kept)
            answer = service.getresponse()
            headers = [item for item in answer.getheaders() if item[0].lower() not in _OF_A_CONNECTION]
            if self.command == "HEAD":  # the length of what a GET would answer
                headers.append(("Content-Length", answer.headers.get("Content-Length", "0")))
            return answer.status, headers, answer.read()
        finally:
            service.close()

    def _answer(self, answer: Answer) -> None:
        status, headers, content = answer
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        elif not headers:
            self.send_header("Content-Length", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _error(fault: Fault) -> bytes:
    code = "SlowDown" if fault == "throttled" else "InternalError"
    return f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code></Error>'.encode()


if __name__ == "__main__":
    main()
