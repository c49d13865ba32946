"""Calls of `bascule.admin.v1`. Connections are kept by address and process, as those of reads are."""

import os
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from bascule._admin_pb import message
from bascule.errors import BrokerError
from bascule.spark.connection import Backoff
from bascule.spark.files import located

if TYPE_CHECKING:
    from bascule.client import Tls

__all__ = ["admin_call", "sdk_url"]


def admin_call(address: str, method: str, request: Any, *, timeout_ms: int, retry_ms: int) -> Any:
    """The answer to a call that may be repeated.

    Args:
        address: of `connection_options`.
        method: of `bascule.admin.v1`.
        request: its message.
        timeout_ms: of one attempt.
        retry_ms: how much longer an unreachable broker is tried again.

    Raises:
        BrokerError: the error of the broker, or it is not reachable.
    """
    from bascule.client.tooling import Deadline  # noqa: PLC0415 - keeps discovery light

    pool: Any = _pool(address, os.getpid())
    body = request.SerializeToString()
    deadline = Deadline((timeout_ms + retry_ms) / 1000)
    backoff = Backoff(retry_ms)
    while True:
        try:
            pool.reach(Deadline(timeout_ms / 1000))
            break
        except BrokerError as failure:
            if not backoff.pause(failure):
                raise

    def call(native: Any, left_ms: int) -> bytes:
        return native.call(method, body, min(left_ms, timeout_ms))

    answer = pool.run(deadline, call, None, repeatable=True)
    return message(f"{method}Response").FromString(answer)


@lru_cache(maxsize=16)
def _pool(address: str, _process: int) -> Any:
    """The connections of this process; a forked child has a `_process` of its own."""
    from bascule.client.tooling import connection_pool  # noqa: PLC0415 - keeps discovery light

    url, tls = sdk_url(address)
    return connection_pool(url, tls, name="spark", wait=False)


def sdk_url(address: str) -> "tuple[str, Tls | None]":
    """The address of `connection_options` as the SDK takes it: its URL, and its files where this process has them."""
    from bascule.client import Tls  # noqa: PLC0415 - keeps discovery light

    place, _, query = address.partition("?")
    if place.startswith("grpc://"):
        return place.replace("grpc://", "bascule://", 1), None
    files = {name: located(file) for name, file in parse_qsl(query)}
    return place.replace("grpc+tls://", "bascules://", 1), Tls(
        ca=files.get("ca"), cert=files.get("cert"), key=files.get("key")
    )
