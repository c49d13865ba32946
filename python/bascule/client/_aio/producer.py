"""Publishing in the background, for asyncio."""

# ruff: noqa: ASYNC109 (the producer keeps the deadlines of its batches)

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self

from bascule.client._core.types import Content, Headers, Receipt
from bascule.client.producer import OnAck, Producer
from bascule.errors import UsageError

__all__ = ["AsyncProducer", "in_loop"]


def in_loop(on_ack: OnAck) -> OnAck:
    """A callback that runs `on_ack` in the running event loop and raises its exception in the calling thread."""
    loop = asyncio.get_running_loop()

    def call(receipts: list[Receipt]) -> object:
        result: Future[object] = Future()

        def here() -> None:
            try:
                result.set_result(on_ack(receipts))
            except Exception as failure:  # noqa: BLE001 (raised in the producer's thread)
                result.set_exception(failure)

        loop.call_soon_threadsafe(here)
        return result.result()

    return call


class AsyncProducer:
    """As `Producer`. For one event loop; several of its tasks may use it."""

    def __init__(self, producer: Producer) -> None:
        """Use `AsyncClient.producer`."""
        self._producer: Final = producer
        # its own thread, started by the first call that has to wait
        self._thread: Final = ThreadPoolExecutor(1, "bascule-producer-wait")
        self._closed = False
        self._prepared = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception as second:  # a callback may raise any exception
            if failure is None:
                raise
            failure.add_note(f"and the remaining records of the producer could not be published: {second}")

    @property
    def published(self) -> int:
        """As `Producer.published`."""
        return self._producer.published

    @property
    def in_flight(self) -> int:
        """As `Producer.in_flight`."""
        return self._producer.in_flight

    async def prepare(self) -> None:
        """As `Producer.prepare`."""
        await self._run(self._producer.prepare)
        self._prepared = True

    async def send(self, value: Content | None, *, key: Content | None = None, headers: Headers | None = None) -> None:
        """As `Producer.send`."""
        if not self._prepared:
            await self.prepare()
        if not self._producer.try_send(value, key=key, headers=headers):
            await self._run(lambda: self._producer.send(value, key=key, headers=headers))

    async def submit(
        self, value: Content | None, *, key: Content | None = None, headers: Headers | None = None
    ) -> "asyncio.Future[Receipt]":
        """As `Producer.submit`: returns once the record was accepted; await the future for its receipt."""
        return asyncio.wrap_future(await self._run(lambda: self._producer.submit(value, key=key, headers=headers)))

    def try_send(self, value: Content | None, *, key: Content | None = None, headers: Headers | None = None) -> bool:
        """As `Producer.try_send`. Before `prepare` or another awaited call it may block on the broker."""
        return self._producer.try_send(value, key=key, headers=headers)

    async def send_many(
        self,
        values: Sequence[Content | None],
        *,
        keys: Sequence[Content | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None:
        """As `Producer.send_many`."""
        await self._run(lambda: self._producer.send_many(values, keys=keys, headers=headers))

    async def flush(self, timeout: float | None = None) -> None:
        """As `Producer.flush`."""
        await self._run(lambda: self._producer.flush(timeout))

    async def close(self, timeout: float | None = None) -> None:
        """As `Producer.close`."""
        if self._closed:
            return
        self._closed = True
        try:
            await asyncio.wrap_future(self._thread.submit(self._producer.close, timeout))
        finally:
            self._thread.shutdown(wait=False)

    async def _run(self, function: Callable[[], Any]) -> Any:
        if self._closed:
            raise UsageError("closed", "the producer is closed")
        return await asyncio.wrap_future(self._thread.submit(function))
