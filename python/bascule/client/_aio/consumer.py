"""A member of a consumer group, for asyncio."""

# ruff: noqa: ASYNC109 (the deadline must end the native wait: the native core keeps it)

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from bascule.client._core.batch import Batch
from bascule.client._core.consumer_core import Change, ConsumerCore
from bascule.client._core.membership import Assignment
from bascule.client._core.types import Record
from bascule.client.consumer import Callbacks, raise_first

__all__ = ["AsyncConsumer"]

T = TypeVar("T")


class AsyncConsumer:
    """As `Consumer`: `async with` opens and closes it, `async for` returns batches. Callbacks run in the event loop and
    may be coroutine functions. For one task; a cancelled `next_batch` loses nothing, the next call returns its records.
    """

    def __init__(self, core: ConsumerCore, callbacks: Callbacks) -> None:
        """Use `AsyncClient.consumer`."""
        self._core: Final = core
        self._callbacks: Final = callbacks
        # its own thread, because it waits for as long as the consumer lasts
        self._thread: Final = ThreadPoolExecutor(1, "bascule-consumer")
        self._waiting: Future[Batch | Change | None] | None = None
        self._closed = False

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
        try:
            await self._close(processed=failure is None)
        except Exception as second:  # a callback may raise any exception
            if failure is None:
                raise
            failure.add_note(f"and closing the consumer failed: {second!r}")

    async def __aiter__(self) -> AsyncIterator[Batch]:
        while True:
            batch = await self.next_batch()
            if batch is not None:
                yield batch

    @property
    def assignment(self) -> frozenset[Assignment]:
        """As `Consumer.assignment`."""
        return self._core.assignment

    async def records(self) -> AsyncIterator[Record]:
        """As `Consumer.records`."""
        async for batch in self:
            self._core.give(batch, batch.offsets[0] - 1)
            for record in batch:
                self._core.process_given()
                self._core.give(batch, record.offset)
                yield record

    async def open(self) -> None:
        """As `Consumer.open`."""
        await self._run(self._core.open)

    async def next_batch(self, timeout: float | None = None) -> Batch | None:
        """As `Consumer.next_batch`."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            found = await self._advance(None if end is None else max(0.0, end - time.monotonic()))
            if not isinstance(found, Change):
                if found is not None:
                    self._core.give(found)
                return found
            try:
                await self._notify(found)
            finally:
                await self._run(self._core.finish, found)

    async def commit(self, batch: Batch | None = None, *, timeout: float | None = None) -> None:
        """As `Consumer.commit`."""
        await self._run(self._core.commit, batch, timeout)

    async def close(self) -> None:
        """As `Consumer.close`."""
        await self._close(processed=True)

    async def _close(self, *, processed: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self._core.interrupt()
        try:
            change, failures = await self._run(self._begin_close, processed)
            try:
                if change is not None:
                    await self._notify(change)
            finally:
                failures += await self._run(self._core.end_close)
        finally:
            self._thread.shutdown()  # all its work is done
        raise_first(failures)

    def _begin_close(self, processed: bool) -> Any:
        return self._core.begin_close(processed=processed)

    async def _advance(self, timeout: float | None) -> Batch | Change | None:
        if self._waiting is None:
            self._waiting = self._thread.submit(self._core.advance, timeout)
        # a cancelled wait continues in its thread, and the next call returns its result
        try:
            found = await asyncio.shield(asyncio.wrap_future(self._waiting))
        except asyncio.CancelledError:
            raise
        except BaseException:
            self._waiting = None
            raise
        self._waiting = None
        return found

    async def _notify(self, change: Change) -> None:
        callback = self._callbacks.of(change)
        if callback is not None:
            answer = callback(change.partitions)
            if inspect.isawaitable(answer):
                await answer

    async def _run(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.wrap_future(self._thread.submit(function, *arguments))
