"""The SDK: publish to and read from streams, synchronously or with asyncio.

`connect(url)` gives a `Client`, `connect_async(url)` an `AsyncClient`; both have the same methods, and the asynchronous
ones are awaited. Neither imports any code of the broker.

`group_cursor(group)` returns the id of the cursor under which the members of a group store their positions.
"""

from bascule.client._core.batch import Batch
from bascule.client._core.calls.cluster import ClusterBroker, ClusterStatus
from bascule.client._core.calls.details import (
    BrokerDetails,
    Check,
    CursorEntry,
    Damage,
    GroupDetails,
    GroupMember,
    PartitionDetails,
    StreamDetails,
)
from bascule.client._core.calls.lags import ReaderLag, ReleasedHold
from bascule.client._core.calls.sinks import Sink, SinkPartition, SinkSkip
from bascule.client._core.calls.users import IggyGrant, IggyToken, IggyUser
from bascule.client._core.consumer_config import GroupStart
from bascule.client._core.consumer_flow import OnChange
from bascule.client._core.cursors import group_cursor
from bascule.client._core.membership import Assignment
from bascule.client._core.requests import StreamOptions
from bascule.client._core.subscription import Subscription
from bascule.client._core.tls import Tls
from bascule.client._core.types import (
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
from bascule.client.aio import AsyncClient, AsyncConsumer, AsyncProducer, AsyncSubscription, connect_async
from bascule.client.consumer import Consumer
from bascule.client.producer import OnAck, Producer
from bascule.client.sync import Client, connect

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
    "ClusterBroker",
    "ClusterStatus",
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
    "IggyGrant",
    "IggyToken",
    "IggyUser",
    "OffsetReset",
    "OnAck",
    "OnChange",
    "Partition",
    "PartitionChoice",
    "PartitionDetails",
    "Producer",
    "Purged",
    "ReaderLag",
    "Receipt",
    "Record",
    "ReleasedHold",
    "Sink",
    "SinkPartition",
    "SinkSkip",
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
