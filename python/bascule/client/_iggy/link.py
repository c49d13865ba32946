"""One connection to an Iggy listener: frames, login, reconnects. Requests are answered in order, one at a time.

Threads share it; a request waits for its turn within its deadline. A request that may be repeated is sent again after
the connection was lost; any other one that was sent and not answered raises `OutcomeUnknownError`.
"""

import socket
import ssl
import struct
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from os import fspath
from typing import Final

from bascule.client._core.deadline import Deadline
from bascule.client._core.iggy_target import Target
from bascule.client._iggy import wire
from bascule.client._iggy.failures import RefusedError, of_status
from bascule.client._iggy.wire import V1, V1B, Code, Generation
from bascule.errors import AccessError, OutcomeUnknownError, UnavailableError, UsageError, error

__all__ = ["Link"]

RETRY_S: Final = 0.1
MAX_REPLY_BYTES: Final = 128 << 20


class Link:
    """The connection. `wait`: whether the first connecting waits for a broker that is not running yet; `name`: what
    the login states as its context.
    """

    def __init__(self, target: Target, *, wait: bool, name: str) -> None:
        """Connects at the first request.

        Raises:
            UsageError: code `invalid_argument`: a file of TLS.
        """
        self.generation: Final[Generation] = V1B if target.user else V1
        self.reconnects = 0
        """Number of connections after the first."""
        self._target: Final = target
        self._wait: Final = wait
        self._name: Final = name
        self._context: Final = _tls_context(target)
        self._lock: Final = threading.Lock()
        self._socket: socket.socket | None = None
        self._was_connected = False
        self._closed = False

    def another(self) -> "Link":
        """A connection of its own to the same listener."""
        return Link(self._target, wait=self._wait, name=self._name)

    def open(self, deadline: Deadline) -> None:
        """Connect and log in.

        Raises:
            AccessError: the login was refused; `tls_failed`.
            UnavailableError: no broker answered in time.
        """
        with self._turn(deadline):
            self._connected(deadline)

    def close(self) -> None:
        """Close it; requests that wait fail with `closed`."""
        self._closed = True
        self._drop()

    def ask(  # noqa: PLR0913 (what the request is about is keyword-only)
        self,
        code: Code,
        payload: bytes,
        deadline: Deadline,
        *,
        stream: str = "",
        partition: int | None = None,
        repeatable: bool = False,
    ) -> bytes:
        """The payload of the reply. `stream`, `partition`: what the request is about, for the error.

        Raises:
            BrokerError: the request was refused.
            OutcomeUnknownError: it was sent and not answered, and is not `repeatable`.
            UnavailableError: no broker answered in time.
        """
        with self._turn(deadline):
            while True:
                connection = self._connected(deadline)
                try:
                    return self._exchange(connection, code, payload, deadline)
                except RefusedError as refused:
                    raise of_status(refused.status, stream, partition) from None
                except OSError as failure:
                    self._drop()
                    if self._closed:
                        raise UsageError("closed", "the client is closed") from failure
                    if not repeatable:
                        text = f"the connection was lost before the broker answered: {failure}"
                        raise OutcomeUnknownError("outcome_unknown", text) from failure
                    deadline.left_ms()
                except BaseException:
                    self._drop()  # interrupted: the next request must not get this one's reply
                    raise

    @contextmanager
    def _turn(self, deadline: Deadline) -> Generator[None]:
        if not self._lock.acquire(timeout=deadline.left):
            raise error("deadline_exceeded", "another request of this client was not answered in time")
        try:
            yield
        finally:
            self._lock.release()

    def _connected(self, deadline: Deadline) -> socket.socket:
        """The connection, logged in; a new one if there is none."""
        while self._socket is None:
            if self._closed:
                raise UsageError("closed", "the client is closed")
            failures = list[str]()
            for address in self._target.addresses:
                try:
                    self._socket = self._dial(address, deadline)
                    self._log_in(self._socket, deadline)
                except ssl.SSLError as failure:
                    self._drop()
                    text = f"the TLS handshake with {address[0]}:{address[1]} failed: {failure}"
                    raise AccessError("tls_failed", text) from failure
                except RefusedError as refused:
                    self._drop()
                    raise of_status(refused.status) from None
                except OSError as failure:
                    self._drop()
                    failures.append(f"{address[0]}:{address[1]}: {failure}")
                else:
                    self.reconnects += self._was_connected
                    self._was_connected = True
                    return self._socket
            if deadline.left <= RETRY_S or not (self._wait or self._was_connected):
                raise UnavailableError("unavailable", f"no Iggy listener answered: {'; '.join(failures)}")
            time.sleep(RETRY_S)
        return self._socket

    def _dial(self, address: tuple[str, int], deadline: Deadline) -> socket.socket:
        found = socket.create_connection(address, timeout=max(RETRY_S, deadline.left))
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is None:
            return found
        tls = self._target.tls
        try:
            return self._context.wrap_socket(found, server_hostname=(tls and tls.server_name) or address[0])
        except BaseException:
            found.close()
            raise

    def _log_in(self, connection: socket.socket, deadline: Deadline) -> None:
        target = self._target
        if target.user:
            self._exchange(connection, Code.LOGIN_USER, wire.login(target.user, target.secret, self._name), deadline)
        else:
            self._exchange(connection, Code.LOGIN_WITH_TOKEN, wire.login_with_token(target.secret), deadline)

    @staticmethod
    def _exchange(connection: socket.socket, code: Code, payload: bytes, deadline: Deadline) -> bytes:
        connection.settimeout(max(0.001, deadline.left))
        connection.sendall(struct.pack("<II", 4 + len(payload), code) + payload)
        status, size = struct.unpack("<II", _read(connection, 8, deadline))
        if size > MAX_REPLY_BYTES:
            raise ConnectionError(f"a reply of {size} bytes is above the {MAX_REPLY_BYTES} that are read")
        body = _read(connection, size, deadline)
        if status:
            raise RefusedError(status)
        return body

    def _drop(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()


def _read(connection: socket.socket, size: int, deadline: Deadline) -> bytes:
    data = bytearray()
    while len(data) < size:
        connection.settimeout(max(0.001, deadline.left))
        more = connection.recv(min(size - len(data), 1 << 20))
        if not more:
            raise ConnectionError("the broker closed the connection")
        data += more
    return bytes(data)


def _tls_context(target: Target) -> ssl.SSLContext | None:
    tls = target.tls
    if tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=None if tls.ca is None else fspath(tls.ca))
        if tls.cert is not None and tls.key is not None:
            context.load_cert_chain(fspath(tls.cert), fspath(tls.key))
    except (OSError, ssl.SSLError) as failure:
        raise UsageError("invalid_argument", f"a file of tls cannot be read: {failure}") from failure
    return context
