"""One unary call: deadline, route, retries, and errors that name the stream, partition or subject."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

from typing import Final

from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.deadline import Deadline
from bascule.client._core.error_context import error_context
from bascule.client._core.routes import Place

__all__ = ["Calls"]


class Calls:
    """Base class of the client's calls: connections, timeouts and the unary call."""

    def __init__(self, pool: ConnectionPool, *, timeout: float, reconnect: float) -> None:
        """Use `bascule.connect`."""
        self._pool: Final = pool
        self._timeout: Final = timeout
        self._reconnect: Final = reconnect

    def _call(
        self,
        method: str,
        request: bytes,
        timeout: float | Deadline | None,
        *,
        stream: str = "",
        partition: int | None = None,
        subject: str | None = None,
        place: Place = None,
        repeatable: bool = False,
    ) -> bytes:
        deadline = self._deadline(timeout)
        with error_context(self._pool, stream, partition=partition, subject=subject):
            return self._pool.run(
                deadline, lambda native, left: native.call(method, request, left), place, repeatable=repeatable
            )

    def _deadline(self, timeout: float | Deadline | None) -> Deadline:
        """The deadline of a call; a call that is part of another one keeps the other's."""
        if isinstance(timeout, Deadline):
            return timeout
        return Deadline(self._timeout if timeout is None else timeout)
