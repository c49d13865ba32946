"""Calls of the asynchronous client about streams, partitions and brokers."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

# ruff: noqa: ASYNC109 (the deadline covers retries and must end the native wait: the native core keeps it)

from collections.abc import Sequence

from bascule.client._aio.calls import AsyncCalls
from bascule.client._core.requests import StreamOptions
from bascule.client._core.types import Ack, Broker, Content, Headers, Partition, Purged, Stream, SubjectReceipt

__all__ = ["AsyncAdministration"]


class AsyncAdministration(AsyncCalls):
    """As `Administration`."""

    async def create_stream(
        self,
        name: str,
        subject: str | None = None,
        *,
        options: StreamOptions | None = None,
        exist_ok: bool = False,
        dry_run: bool = False,
        timeout: float | None = None,
    ) -> None:
        """As `Client.create_stream`."""
        create = self._client.create_stream
        arguments = {"options": options, "exist_ok": exist_ok, "dry_run": dry_run}
        await self._call(create, name, subject, **arguments, timeout=timeout)

    async def delete_stream(self, name: str, *, missing_ok: bool = False, timeout: float | None = None) -> None:
        """As `Client.delete_stream`."""
        await self._call(self._client.delete_stream, name, missing_ok=missing_ok, timeout=timeout)

    async def pause_stream(
        self,
        name: str,
        *,
        partitions: Sequence[int] = (),
        resume_all: bool = False,
        timeout: float | None = None,
    ) -> None:
        """As `Client.pause_stream`."""
        pause = self._client.pause_stream
        await self._call(pause, name, partitions=partitions, resume_all=resume_all, timeout=timeout)

    async def set_readonly(
        self,
        name: str,
        readonly: bool = True,
        *,
        partitions: Sequence[int] = (),
        timeout: float | None = None,
    ) -> None:
        """As `Client.set_readonly`."""
        await self._call(self._client.set_readonly, name, readonly, partitions=partitions, timeout=timeout)

    async def trim_partition(
        self, stream: str, partition: int, before: int, *, dry_run: bool = False, timeout: float | None = None
    ) -> tuple[int, int]:
        """As `Client.trim_partition`."""
        trim = self._client.trim_partition
        return await self._call(trim, stream, partition, before, dry_run=dry_run, timeout=timeout)

    async def purge_stream(
        self, name: str, *, now: bool = False, dry_run: bool = False, timeout: float | None = None
    ) -> Purged:
        """As `Client.purge_stream`."""
        return await self._call(self._client.purge_stream, name, now=now, dry_run=dry_run, timeout=timeout)

    async def list_streams(self, *, timeout: float | None = None) -> list[Stream]:
        """As `Client.list_streams`."""
        return await self._call(self._client.list_streams, timeout=timeout)

    async def get_stream(self, name: str, *, timeout: float | None = None) -> Stream:
        """As `Client.get_stream`."""
        return await self._call(self._client.get_stream, name, timeout=timeout)

    async def get_partition(self, stream: str, partition: int = 0, *, timeout: float | None = None) -> Partition:
        """As `Client.get_partition`."""
        return await self._call(self._client.get_partition, stream, partition, timeout=timeout)

    async def list_brokers(self, *, timeout: float | None = None) -> list[Broker]:
        """As `Client.list_brokers`."""
        return await self._call(self._client.list_brokers, timeout=timeout)

    async def publish_to_subject(
        self,
        subject: str,
        value: Content | None,
        *,
        key: Content | None = None,
        headers: Headers | None = None,
        ack: Ack = "leader",
        timeout: float | None = None,
    ) -> SubjectReceipt | None:
        """As `Client.publish_to_subject`."""
        publish = self._client.publish_to_subject
        return await self._call(publish, subject, value, key=key, headers=headers, ack=ack, timeout=timeout)
