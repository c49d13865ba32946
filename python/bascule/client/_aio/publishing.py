"""What the asynchronous client does about publishing."""

# ruff: noqa: PLR0913 (everything but the subject of a call is keyword-only)

# ruff: noqa: ASYNC109 (the deadline covers retries and must end the native wait: the native core keeps it)

from collections.abc import Sequence

from bascule.client._aio.calls import AsyncCalls
from bascule.client._aio.producer import AsyncProducer, in_loop
from bascule.client._core.types import Ack, Content, Headers, PartitionChoice, Receipt
from bascule.client.producer import OnAck

__all__ = ["AsyncPublishing"]


class AsyncPublishing(AsyncCalls):
    """As `Publishing`."""

    async def publish(
        self,
        stream: str,
        value: Content | None,
        *,
        key: Content | None = None,
        headers: Headers | None = None,
        partition: PartitionChoice = None,
        ack: Ack = "leader",
        expected_offset: int | None = None,
        subject: str | None = None,
        origin_time_ns: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """As `Client.publish`."""
        return await self._call(
            self._client.publish,
            stream,
            value,
            key=key,
            headers=headers,
            partition=partition,
            ack=ack,
            expected_offset=expected_offset,
            subject=subject,
            origin_time_ns=origin_time_ns,
            timeout=timeout,
        )

    async def publish_many(
        self,
        stream: str,
        values: Sequence[Content | None],
        *,
        keys: Sequence[Content | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        partition: PartitionChoice = None,
        partitions: Sequence[int] | None = None,
        ack: Ack = "leader",
        subjects: Sequence[str | None] | None = None,
        origin_times_ns: Sequence[int | None] | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """As `Client.publish_many`."""
        return await self._call(
            self._client.publish_many,
            stream,
            values,
            keys=keys,
            headers=headers,
            partition=partition,
            partitions=partitions,
            ack=ack,
            subjects=subjects,
            origin_times_ns=origin_times_ns,
            timeout=timeout,
        )

    def producer(
        self,
        stream: str,
        *,
        partition: PartitionChoice = None,
        ack: Ack = "leader",
        batch_records: int = 32_768,
        max_in_flight: int = 131_072,
        max_in_flight_bytes: int = 64 << 20,
        timeout: float | None = None,
        on_ack: OnAck | None = None,
    ) -> AsyncProducer:
        """As `Client.producer`; to be called in the event loop, where `on_ack` is called too."""
        inner = self._client.producer(
            stream,
            partition=partition,
            ack=ack,
            batch_records=batch_records,
            max_in_flight=max_in_flight,
            max_in_flight_bytes=max_in_flight_bytes,
            timeout=timeout,
            on_ack=None if on_ack is None else in_loop(on_ack),
        )
        return AsyncProducer(inner)
