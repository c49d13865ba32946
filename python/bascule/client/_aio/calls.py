"""Blocking calls of the synchronous client, run in threads that the asynchronous client owns."""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from bascule.client._core.async_wrapper import AsyncResource
from bascule.client.sync import Client

__all__ = ["AsyncCalls"]

T = TypeVar("T")

CALLS: Final = 8
"""Maximum number of concurrent calls of one client; further ones queue."""


class AsyncCalls(AsyncResource[Client]):
    """What every part of an asynchronous client has."""

    def __init__(self, client: Client) -> None:
        """Use `bascule.connect_async`."""
        super().__init__(client, CALLS, "bascule-client")
        self._client: Final = client

    async def _call(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await self._run(function, *arguments, **named)
