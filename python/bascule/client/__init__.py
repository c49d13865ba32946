"""The SDK: publish to and read from streams, synchronously or with asyncio.

`connect(url)` gives a `Client`, `connect_async(url)` an `AsyncClient`; both have the same methods, and the asynchronous
ones are awaited. Neither needs anything of the broker's own code.

Beside the client's methods: `group_cursor(group)` is the id under which the members of a group store positions.
"""

from bascule.client.address import connect, connect_async
from bascule.client.aio import AsyncClient, AsyncSubscription
from bascule.client.aio_consumer import AsyncConsumer
from bascule.client.aio_producer import AsyncProducer
from bascule.client.batch import Batch
from bascule.client.consumer import Consumer, OnChange
from bascule.client.consumer_core import GroupStart
from bascule.client.details import (
    BrokerDetails,
    Check,
    CursorEntry,
    Damage,
    GroupDetails,
    GroupMember,
    PartitionDetails,
    StreamDetails,
)
from bascule.client.membership import Assignment
from bascule.client.positions import group_cursor
from bascule.client.producer import OnAck
from bascule.client.requests import StreamOptions
from bascule.client.sync import Client, Producer, Subscription
from bascule.client.tls import Tls
from bascule.client.types import (
    Ack,
    Broker,
    Content,
    EventTimes,
    Group,
    Headers,
    OffsetReset,
    Partition,
    PartitionChoice,
    Purged,
    Receipt,
    Record,
    Start,
    Stop,
    Stream,
    SubjectReceipt,
)

__all__ = [
    "Ack",
    "Assignment",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncSubscription",
    "Batch",
    "Broker",
    "BrokerDetails",
    "Check",
    "Client",
    "Consumer",
    "Content",
    "CursorEntry",
    "Damage",
    "EventTimes",
    "Group",
    "GroupDetails",
    "GroupMember",
    "GroupStart",
    "Headers",
    "OffsetReset",
    "OnAck",
    "OnChange",
    "Partition",
    "PartitionChoice",
    "PartitionDetails",
    "Producer",
    "Purged",
    "Receipt",
    "Record",
    "Start",
    "Stop",
    "Stream",
    "StreamDetails",
    "StreamOptions",
    "SubjectReceipt",
    "Subscription",
    "Tls",
    "connect",
    "connect_async",
    "group_cursor",
]
