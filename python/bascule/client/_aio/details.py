"""Calls of the asynchronous client that extend Liftbridge."""

# ruff: noqa: ASYNC109 (the deadline covers retries and must end the native wait: the native core keeps it)

from collections.abc import Mapping, Sequence
from typing import Any

from bascule.client._aio.calls import AsyncCalls
from bascule.client._sync.details import BrokerDetails, CursorEntry, GroupDetails, StreamDetails

__all__ = ["AsyncDetails"]


class AsyncDetails(AsyncCalls):
    """As `Details`."""

    async def describe_stream(self, name: str, *, timeout: float | None = None) -> StreamDetails:
        """As `Client.describe_stream`."""
        return await self._call(self._client.describe_stream, name, timeout=timeout)

    async def edit_stream(
        self, name: str, changes: Mapping[str, Any], *, dry_run: bool = False, timeout: float | None = None
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """As `Client.edit_stream`."""
        return await self._call(self._client.edit_stream, name, changes, dry_run=dry_run, timeout=timeout)

    async def resume_stream(
        self, name: str, *, partitions: Sequence[int] = (), dry_run: bool = False, timeout: float | None = None
    ) -> tuple[int, ...]:
        """As `Client.resume_stream`."""
        resume = self._client.resume_stream
        return await self._call(resume, name, partitions=partitions, dry_run=dry_run, timeout=timeout)

    async def describe_groups(self, groups: Sequence[str] = (), *, timeout: float | None = None) -> list[GroupDetails]:
        """As `Client.describe_groups`."""
        return await self._call(self._client.describe_groups, groups, timeout=timeout)

    async def describe_broker(self, *, timeout: float | None = None) -> BrokerDetails:
        """As `Client.describe_broker`."""
        return await self._call(self._client.describe_broker, timeout=timeout)

    async def list_cursors(self, *, prefix: str = "", timeout: float | None = None) -> list[CursorEntry]:
        """As `Client.list_cursors`."""
        return await self._call(self._client.list_cursors, prefix=prefix, timeout=timeout)
