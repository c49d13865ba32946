"""The SDK: publish to and read from streams, synchronously or with asyncio.

`connect(url)` gives a `Client`, `connect_async(url)` an `AsyncClient`; both have the same methods, and the asynchronous
ones are awaited. Neither needs anything of the broker's own code.
"""

from bascule.client.address import connect, connect_async
from bascule.client.aio import AsyncClient, AsyncProducer, AsyncSubscription
from bascule.client.batch import Batch
from bascule.client.requests import StreamOptions
from bascule.client.sync import Client, Producer, Subscription
from bascule.client.types import Ack, Partition, Receipt, Record, Start, Stop, Stream

__all__ = [
    "Ack",
    "AsyncClient",
    "AsyncProducer",
    "AsyncSubscription",
    "Batch",
    "Client",
    "Partition",
    "Producer",
    "Receipt",
    "Record",
    "Start",
    "Stop",
    "Stream",
    "StreamOptions",
    "Subscription",
    "connect",
    "connect_async",
]
