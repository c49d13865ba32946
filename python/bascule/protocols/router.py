"""Dispatches admin requests to the handler of their protocol and method, and answers in batches.

A handler's failure ends its request, never another: a `StatusError` is shown as it is, an error of ours by its table,
anything else is a bug, logged with its trace and shown as INTERNAL without it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bascule._seam import Answer, Rejected, Reply, Request
from bascule.control.dataplane import DataPlane
from bascule.errors import BrokerError
from bascule.protocols.grpc_status import Status, StatusError, status_of

_log = logging.getLogger("bascule.protocols")

MAX_IN_FLIGHT = 1024
"""Admin requests that may wait at a time; more are refused."""

MAX_REPLY_BYTES = 1 << 20
"""Answers are handed to the data plane at the end of a turn of the event loop, and when so much of them waits."""

DEFAULT_TIMEOUT_S = 5.0
"""How long a request may take when its caller set no deadline."""


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """One request.

    Attributes:
        method: protocol and method, e.g. `liftbridge/CreateStream`.
        body: the request message as it came.
        peer: `host:port` of the caller.
        timeout_s: what is left until the caller's deadline; `DEFAULT_TIMEOUT_S` when it set none.
        client: common name of the caller's certificate; `None` = it showed none.
    """

    method: str
    body: bytes
    peer: str
    timeout_s: float
    client: str | None = None


Handler = Callable[[AdminRequest], Awaitable[bytes]]


class Router:
    """Dispatches `request` events. Belongs to the event loop's thread."""

    def __init__(self, plane: DataPlane, handlers: Mapping[str, Handler]) -> None:
        self._plane = plane
        self._handlers = dict(handlers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._replies: list[Reply] = []
        self._reply_bytes = 0

    def on_request(self, asked: Request) -> None:
        """Start handling one request; its answer is sent by itself."""
        handler = self._handlers.get(asked.method)
        if handler is None:
            name = asked.method.rpartition("/")[2]
            self._reply(_rejected(asked.request_id, Status.UNIMPLEMENTED, f"method {name} is not known to this broker"))
        elif len(self._tasks) >= MAX_IN_FLIGHT:
            text = f"{MAX_IN_FLIGHT} admin requests wait already"
            self._reply(_rejected(asked.request_id, Status.UNAVAILABLE, text, "busy"))
        else:
            timeout_s = DEFAULT_TIMEOUT_S if asked.timeout_ms is None else asked.timeout_ms / 1000
            request = AdminRequest(asked.method, asked.body, asked.peer, timeout_s, asked.client)
            task = asyncio.get_running_loop().create_task(self._handle(handler, request, asked.request_id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self, drain_s: float) -> None:
        """Wait up to `drain_s` for running requests, then cancel them; proposed commands may still be committed."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=drain_s)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _handle(self, handler: Handler, request: AdminRequest, request_id: int) -> None:
        if not self._plane.is_awaited(request_id):
            return  # its caller went away, or its deadline has passed
        reply: Reply = _stopping(request_id)
        try:
            reply = Answer(request_id, await handler(request))
        except StatusError as failure:
            reply = _rejected(request_id, failure.status, failure.message, failure.code, failure.details)
            reply = reply._replace(iggy_status=failure.iggy_status)
        except BrokerError as failure:
            reply = _rejected(request_id, status_of(failure), str(failure), failure.code, failure.details)
        except Exception as bug:  # noqa: BLE001 - one request must not end the broker
            _log.exception("%s failed: %r", request.method, bug, extra={"fields": {"peer": request.peer}})
            reply = _rejected(request_id, Status.INTERNAL, "internal error; the broker's log says more")
        finally:
            self._reply(reply)

    def _reply(self, reply: Reply) -> None:
        if not self._replies:
            asyncio.get_running_loop().call_soon(self._flush)
        self._replies.append(reply)
        self._reply_bytes += len(reply.body) if isinstance(reply, Answer) else 0
        if self._reply_bytes > MAX_REPLY_BYTES:
            self._flush()

    def _flush(self) -> None:
        replies, self._replies, self._reply_bytes = self._replies, [], 0
        if replies:
            self._plane.respond(replies)


def _rejected(
    request_id: int, status: Status, text: str, code: str | None = None, details: Mapping[str, Any] | None = None
) -> Rejected:
    # Texts may show what was asked; what cannot be encoded would hold up the answers of all.
    shown = text.encode(errors="backslashreplace").decode()
    return Rejected(request_id, int(status), shown, code, details or {})


def _stopping(request_id: int) -> Rejected:
    return _rejected(request_id, Status.UNAVAILABLE, "the broker is stopping")
