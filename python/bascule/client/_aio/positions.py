"""Calls of the asynchronous client about stored positions and consumer groups."""

# ruff: noqa: ASYNC109 (the deadline covers retries and must end the native wait: the native core keeps it)

from bascule.client._aio.calls import AsyncCalls
from bascule.client._core.types import Group

__all__ = ["AsyncPositions"]


class AsyncPositions(AsyncCalls):
    """As `Positions`."""

    async def set_cursor(
        self, cursor: str, stream: str, offset: int | None, *, partition: int = 0, timeout: float | None = None
    ) -> None:
        """As `Client.set_cursor`."""
        await self._call(self._client.set_cursor, cursor, stream, offset, partition=partition, timeout=timeout)

    async def fetch_cursor(
        self, cursor: str, stream: str, *, partition: int = 0, timeout: float | None = None
    ) -> int | None:
        """As `Client.fetch_cursor`."""
        return await self._call(self._client.fetch_cursor, cursor, stream, partition=partition, timeout=timeout)

    async def get_group(self, group: str, *, timeout: float | None = None) -> Group:
        """As `Client.get_group`."""
        return await self._call(self._client.get_group, group, timeout=timeout)

    async def leave_group(self, group: str, consumer: str, *, timeout: float | None = None) -> None:
        """As `Client.leave_group`."""
        await self._call(self._client.leave_group, group, consumer, timeout=timeout)
