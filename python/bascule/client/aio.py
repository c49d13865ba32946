"""The client for asyncio: the methods of the synchronous one, awaited. The native core waits in threads that the client
owns, so nothing here blocks the event loop and nothing is awaited per record.

Each method is documented once, at the method of the same name in `bascule.client.sync`. Cancellation: the outcome of a
cancelled publish is unknown; a cancelled `next_batch` loses nothing, the next call returns its records.
"""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

# ruff: noqa: ASYNC109 (the deadline covers retries and must end the native wait: the native core keeps it)

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Final, ParamSpec, Self, TypeVar

from bascule.client._core.address import RECONNECT_S, connection_pool
from bascule.client._core.async_wrapper import AsyncReader, AsyncResource, AsyncWrapper, adapted, awaited
from bascule.client._core.batch import Batch
from bascule.client._core.connection_pool import MAX_IN_FLIGHT
from bascule.client._core.consumer_core import Change
from bascule.client._core.consumer_flow import UNCLOSED, ConsumerFlow
from bascule.client._core.iggy_target import is_iggy
from bascule.client._core.leaving import leaving
from bascule.client._core.subscription import Subscription
from bascule.client._core.tls import Tls
from bascule.client._core.types import Content, Headers, Receipt, Record, Start
from bascule.client.consumer import Consumer
from bascule.client.producer import UNPUBLISHED, OnAck, Producer
from bascule.client.sync import Client, iggy_client
from bascule.errors import UsageError

__all__ = ["AsyncClient", "AsyncConsumer", "AsyncProducer", "AsyncSubscription", "connect_async"]

CALLS: Final = 8
"""Maximum number of concurrent calls of one client; further ones queue."""

P = ParamSpec("P")
T = TypeVar("T")


class AsyncSubscription(AsyncReader[Subscription]):
    """As `Subscription`: `async with` opens and closes it, `async for` gives batches."""

    def __init__(self, subscription: Subscription) -> None:
        """Use `AsyncClient.subscribe`."""
        super().__init__(subscription, "bascule-subscription")

    async def __aiter__(self) -> AsyncIterator[Batch]:
        while not self._blocking.ended:
            batch = await self.next_batch()
            if batch is not None:
                yield batch

    @property
    def position(self) -> Start:
        """As `Subscription.position`."""
        return self._blocking.position

    @property
    def ended(self) -> bool:
        """As `Subscription.ended`."""
        return self._blocking.ended

    @property
    def reconnects(self) -> int:
        """As `Subscription.reconnects`."""
        return self._blocking.reconnects

    async def records(self) -> AsyncIterator[Record]:
        """As `Subscription.records`."""
        async for batch in self:
            for record in batch:
                yield record

    async def next_batch(self, timeout: float | None = None) -> Batch | None:
        """As `Subscription.next_batch`."""
        return await self._run_or_continue(self._blocking.next_batch, timeout)

    commit: Final = awaited(Subscription.commit)


class AsyncConsumer(AsyncReader[Consumer], ConsumerFlow):
    """As `Consumer`: `async with` opens and closes it, `async for` returns batches. Callbacks run in the event loop and
    may be coroutine functions. For one task; a cancelled `next_batch` loses nothing, the next call returns its records.
    """

    def __init__(self, consumer: Consumer) -> None:
        """Use `AsyncClient.consumer`."""
        super().__init__(consumer, "bascule-consumer")
        ConsumerFlow.__init__(self, consumer.core, consumer.callbacks)
        self._closed = False

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        with leaving(failure, UNCLOSED):
            await self._end(processed=failure is None)

    async def __aiter__(self) -> AsyncIterator[Batch]:
        while True:
            batch = await self.next_batch()
            if batch is not None:
                yield batch

    async def records(self) -> AsyncIterator[Record]:
        """As `Consumer.records`."""
        async for batch in self:
            for record in self._records(batch):
                yield record

    async def next_batch(self, timeout: float | None = None) -> Batch | None:
        """As `Consumer.next_batch`."""
        return await self._next(timeout)

    commit: Final = awaited(Consumer.commit)

    async def close(self) -> None:
        """As `Consumer.close`."""
        await self._end(processed=True)

    async def _advance(self, timeout: float | None) -> Batch | Change | None:
        return await self._run_or_continue(self.core.advance, timeout)

    async def _complete(self, answer: object) -> None:
        if inspect.isawaitable(answer):
            await answer

    async def _end(self, *, processed: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self.core.interrupt()
        try:
            await super()._end(processed=processed)
        finally:
            self._threads.shutdown()  # all its work is done


class AsyncProducer(AsyncWrapper[Producer]):
    """As `Producer`. For one event loop; several of its tasks may use it."""

    def __init__(self, producer: Producer) -> None:
        """Use `AsyncClient.producer`."""
        if producer.on_ack is not None:
            producer.on_ack = _in_loop(producer.on_ack)
        super().__init__(producer, 1, "bascule-producer-wait")
        self._closed = False
        self._prepared = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None
    ) -> None:
        with leaving(failure, UNPUBLISHED):
            await self.close()

    @property
    def published(self) -> int:
        """As `Producer.published`."""
        return self._blocking.published

    @property
    def in_flight(self) -> int:
        """As `Producer.in_flight`."""
        return self._blocking.in_flight

    async def prepare(self) -> None:
        """As `Producer.prepare`."""
        await self._run(self._blocking.prepare)
        self._prepared = True

    async def send(self, value: Content | None, *, key: Content | None = None, headers: Headers | None = None) -> None:
        """As `Producer.send`."""
        if not self._prepared:
            await self.prepare()
        if not self._blocking.try_send(value, key=key, headers=headers):
            await self._run(self._blocking.send, value, key=key, headers=headers)

    async def submit(
        self, value: Content | None, *, key: Content | None = None, headers: Headers | None = None
    ) -> "asyncio.Future[Receipt]":
        """As `Producer.submit`: returns once the record was accepted; await the future for its receipt."""
        return asyncio.wrap_future(await self._run(self._blocking.submit, value, key=key, headers=headers))

    def try_send(self, value: Content | None, *, key: Content | None = None, headers: Headers | None = None) -> bool:
        """As `Producer.try_send`. Before `prepare` or another awaited call it may block on the broker."""
        return self._blocking.try_send(value, key=key, headers=headers)

    send_many: Final = awaited(Producer.send_many)
    flush: Final = awaited(Producer.flush)

    async def close(self, timeout: float | None = None) -> None:
        """As `Producer.close`."""
        if self._closed:
            return
        self._closed = True
        try:
            await super()._run(self._blocking.close, timeout)
        finally:
            self._threads.shutdown(wait=False)

    async def _run(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T:
        if self._closed:
            raise UsageError("closed", "the producer is closed")
        return await super()._run(function, *arguments, **named)


class AsyncClient(AsyncResource[Client]):
    """A connection to a broker, made by `bascule.connect_async`. For one event loop."""

    def __init__(self, client: Client) -> None:
        """Use `bascule.connect_async`."""
        super().__init__(client, CALLS, "bascule-client")

    @property
    def reconnects(self) -> int:
        """As `Client.reconnects`."""
        return self._blocking.reconnects

    publish: Final = awaited(Client.publish)
    publish_many: Final = awaited(Client.publish_many)
    producer: Final = adapted(
        Client.producer,
        AsyncProducer,
        "As `Client.producer`; to be called in the event loop, where `on_ack` is called too.",
    )
    subscribe: Final = adapted(Client.subscribe, AsyncSubscription, "As `Client.subscribe`.")
    consumer: Final = adapted(Client.consumer, AsyncConsumer, "As `Client.consumer`.")

    set_cursor: Final = awaited(Client.set_cursor)
    fetch_cursor: Final = awaited(Client.fetch_cursor)
    get_group: Final = awaited(Client.get_group)
    leave_group: Final = awaited(Client.leave_group)

    create_stream: Final = awaited(Client.create_stream)
    delete_stream: Final = awaited(Client.delete_stream)
    pause_stream: Final = awaited(Client.pause_stream)
    resume_stream: Final = awaited(Client.resume_stream)
    set_readonly: Final = awaited(Client.set_readonly)
    edit_stream: Final = awaited(Client.edit_stream)
    trim_partition: Final = awaited(Client.trim_partition)
    purge_stream: Final = awaited(Client.purge_stream)
    publish_to_subject: Final = awaited(Client.publish_to_subject)

    list_streams: Final = awaited(Client.list_streams)
    get_stream: Final = awaited(Client.get_stream)
    describe_stream: Final = awaited(Client.describe_stream)
    get_partition: Final = awaited(Client.get_partition)
    list_brokers: Final = awaited(Client.list_brokers)
    describe_broker: Final = awaited(Client.describe_broker)
    describe_cluster: Final = awaited(Client.describe_cluster)
    describe_groups: Final = awaited(Client.describe_groups)
    list_cursors: Final = awaited(Client.list_cursors)

    lags: Final = awaited(Client.lags)
    release_hold: Final = awaited(Client.release_hold)

    sinks: Final = awaited(Client.sinks)
    sink: Final = awaited(Client.sink)
    delete_sink: Final = awaited(Client.delete_sink)
    skip_sink: Final = awaited(Client.skip_sink)
    set_sink_owner: Final = awaited(Client.set_sink_owner)
    set_sink_quota: Final = awaited(Client.set_sink_quota)

    iggy_users: Final = awaited(Client.iggy_users)
    iggy_user: Final = awaited(Client.iggy_user)
    create_iggy_user: Final = awaited(Client.create_iggy_user)
    delete_iggy_user: Final = awaited(Client.delete_iggy_user)
    set_iggy_password: Final = awaited(Client.set_iggy_password)
    set_iggy_status: Final = awaited(Client.set_iggy_status)
    set_iggy_grants: Final = awaited(Client.set_iggy_grants)
    create_iggy_token: Final = awaited(Client.create_iggy_token)
    delete_iggy_token: Final = awaited(Client.delete_iggy_token)


def _in_loop(on_ack: OnAck) -> OnAck:
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
    if is_iggy(url):
        return AsyncClient(iggy_client(url, tls, timeout, reconnect, wait=wait, max_in_flight=max_in_flight, name=name))
    pool = connection_pool(url, tls, max_in_flight=max_in_flight, name=name, wait=wait)
    return AsyncClient(Client(pool, timeout=timeout, reconnect=reconnect))
