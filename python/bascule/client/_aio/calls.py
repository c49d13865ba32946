"""Blocking calls of the synchronous client, run in threads that the asynchronous client owns."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from bascule.client.sync import Client

__all__ = ["AsyncCalls"]

T = TypeVar("T")

CALLS: Final = 8
"""Maximum number of concurrent calls of one client; further ones queue."""


class AsyncCalls:
    """What every part of an asynchronous client has."""

    def __init__(self, client: Client) -> None:
        """Use `bascule.connect_async`."""
        self._client: Final = client
        self._threads: Final = ThreadPoolExecutor(CALLS, "bascule-client")

    async def _call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await asyncio.wrap_future(self._threads.submit(function, *arguments, **named))
