"""One unary call: deadline, route, retries, and a refusal that names what was asked for."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

from typing import Final

from bascule.client._core.connection_pool import ConnectionPool
from bascule.client._core.deadline import Deadline
from bascule.client._core.error_context import error_context
from bascule.client._core.routes import Place

__all__ = ["Calls"]


class Calls:
    """What every part of a client has."""

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
        """The one to keep: of a call that is a part of another one, the other's."""
        if isinstance(timeout, Deadline):
            return timeout
        return Deadline(self._timeout if timeout is None else timeout)
