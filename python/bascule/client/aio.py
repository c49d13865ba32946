"""The client for asyncio: the same methods as the synchronous one, awaited. The native core waits in threads that the
client owns, so nothing here blocks the event loop and nothing is awaited per record.

Each method is documented once, at the method of the same name in `bascule.client.sync`. Cancellation: the outcome of a
cancelled publish is unknown; a cancelled `next_batch` loses nothing, the next call returns its records.
"""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

# ruff: noqa: ASYNC109 (the deadline covers retries and must end the native wait: the native core keeps it)

import asyncio
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from bascule.client._aio.administration import AsyncAdministration
from bascule.client._aio.consumer import AsyncConsumer
from bascule.client._aio.details import AsyncDetails
from bascule.client._aio.positions import AsyncPositions
from bascule.client._aio.publishing import AsyncPublishing
from bascule.client._core.address import RECONNECT_S, connection_pool
from bascule.client._core.batch import Batch
from bascule.client._core.connection_pool import MAX_IN_FLIGHT
from bascule.client._core.consumer_core import GroupStart
from bascule.client._core.subscription import Subscription
from bascule.client._core.tls import Tls
from bascule.client._core.types import OffsetReset, Record, Start, Stop
from bascule.client.consumer import OnChange
from bascule.client.sync import Client

__all__ = ["AsyncClient", "AsyncSubscription", "connect_async"]


class AsyncClient(AsyncAdministration, AsyncPositions, AsyncPublishing, AsyncDetails):
    """A connection to a broker, made by `bascule.connect_async`. For one event loop."""

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def reconnects(self) -> int:
        """As `Client.reconnects`."""
        return self._client.reconnects

    async def open(self) -> None:
        """As `Client.open`."""
        await self._call(self._client.open)

    async def close(self) -> None:
        """As `Client.close`."""
        self._client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def subscribe(
        self,
        stream: str,
        *,
        partition: int = 0,
        start: Start = "earliest",
        stop: Stop = None,
        reverse: bool = False,
        cursor: str | None = None,
        subject: str | None = None,
        auto_offset_reset: OffsetReset = "error",
        resume: bool = False,
        from_replica: bool = False,
        batch_records: int = 8192,
    ) -> "AsyncSubscription":
        """As `Client.subscribe`."""
        return AsyncSubscription(
            self._client.subscribe(
                stream,
                partition=partition,
                start=start,
                stop=stop,
                reverse=reverse,
                cursor=cursor,
                subject=subject,
                auto_offset_reset=auto_offset_reset,
                resume=resume,
                from_replica=from_replica,
                batch_records=batch_records,
            )
        )

    def consumer(
        self,
        group: str,
        streams: str | Sequence[str],
        *,
        consumer: str | None = None,
        start: GroupStart = "earliest",
        commit_interval: float | None = 5.0,
        subject: str | None = None,
        auto_offset_reset: OffsetReset = "error",
        resume: bool = False,
        batch_records: int = 8192,
        on_assigned: OnChange | None = None,
        on_revoked: OnChange | None = None,
        on_lost: OnChange | None = None,
    ) -> AsyncConsumer:
        """As `Client.consumer`."""
        inner = self._client.consumer(
            group,
            streams,
            consumer=consumer,
            start=start,
            commit_interval=commit_interval,
            subject=subject,
            auto_offset_reset=auto_offset_reset,
            resume=resume,
            batch_records=batch_records,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
        )
        return AsyncConsumer(inner.core, inner.callbacks)


class AsyncSubscription:
    """As `Subscription`: `async with` opens and closes it, `async for` gives batches."""

    def __init__(self, subscription: Subscription) -> None:
        """Use `AsyncClient.subscribe`."""
        self._subscription: Final = subscription
        # its own thread, because it waits for as long as the subscription lasts
        self._thread: Final = ThreadPoolExecutor(1, "bascule-subscription")
        self._waiting: Future[Batch | None] | None = None

    async def __aenter__(self) -> Self:
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def __aiter__(self) -> AsyncIterator[Batch]:
        while not self._subscription.ended:
            batch = await self.next_batch()
            if batch is not None:
                yield batch

    @property
    def position(self) -> Start:
        """As `Subscription.position`."""
        return self._subscription.position

    @property
    def ended(self) -> bool:
        """As `Subscription.ended`."""
        return self._subscription.ended

    @property
    def reconnects(self) -> int:
        """As `Subscription.reconnects`."""
        return self._subscription.reconnects

    async def records(self) -> AsyncIterator[Record]:
        """As `Subscription.records`."""
        async for batch in self:
            for record in batch:
                yield record

    async def open(self) -> None:
        """As `Subscription.open`."""
        await asyncio.wrap_future(self._thread.submit(self._subscription.open))

    async def next_batch(self, timeout: float | None = None) -> Batch | None:
        """As `Subscription.next_batch`."""
        if self._waiting is None:
            self._waiting = self._thread.submit(self._subscription.next_batch, timeout)
        # a cancelled wait continues in its thread, and the next call returns its result
        try:
            batch = await asyncio.shield(asyncio.wrap_future(self._waiting))
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._waiting = None
            raise
        self._waiting = None
        return batch

    async def commit(self, timeout: float | None = None) -> int | None:
        """As `Subscription.commit`."""
        return await asyncio.wrap_future(self._thread.submit(self._subscription.commit, timeout))

    async def close(self) -> None:
        """As `Subscription.close`."""
        self._subscription.close()
        self._thread.shutdown(wait=False, cancel_futures=True)


def connect_async(
    url: str,
    *,
    tls: Tls | None = None,
    timeout: float = 10.0,
    reconnect: float = RECONNECT_S,
    wait: bool = True,
    max_in_flight: int = MAX_IN_FLIGHT,
    name: str = "python",
) -> AsyncClient:
    """A client for asyncio: `async with bascule.connect_async(url) as client`. It connects when it is entered;
    arguments and errors are those of `connect`.
    """
    reached = connection_pool(url, tls, max_in_flight=max_in_flight, name=name, wait=wait)
    return AsyncClient(Client(reached, timeout=timeout, reconnect=reconnect))
