"""Bascule: a durable message log for NATS that speaks Liftbridge and serves every stream as a table.

Programs start with `connect(url)` or `connect_async(url)`; `bascule.testing.broker()` starts a real broker for their
tests. Names are loaded on first use, so importing the package is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bascule.client import (
        Assignment,
        AsyncClient,
        AsyncConsumer,
        AsyncProducer,
        AsyncSubscription,
        Batch,
        Broker,
        BrokerDetails,
        Check,
        Client,
        ClusterBroker,
        ClusterStatus,
        Consumer,
        CursorEntry,
        Damage,
        EventTimes,
        Group,
        GroupDetails,
        GroupMember,
        IggyGrant,
        IggyToken,
        IggyUser,
        Partition,
        PartitionDetails,
        Producer,
        Purged,
        ReaderLag,
        Receipt,
        Record,
        ReleasedHold,
        Sink,
        SinkPartition,
        SinkSkip,
        Stream,
        StreamDetails,
        StreamOptions,
        SubjectReceipt,
        Subscription,
        Tls,
        connect,
        connect_async,
        group_cursor,
    )
    from bascule.errors import BrokerError

__all__ = [
    "Assignment",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncSubscription",
    "Batch",
    "Broker",
    "BrokerDetails",
    "BrokerError",
    "Check",
    "Client",
    "ClusterBroker",
    "ClusterStatus",
    "Consumer",
    "CursorEntry",
    "Damage",
    "EventTimes",
    "Group",
    "GroupDetails",
    "GroupMember",
    "IggyGrant",
    "IggyToken",
    "IggyUser",
    "Partition",
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


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("bascule")
    if name not in __all__:
        raise AttributeError(f"module 'bascule' has no attribute {name!r}")
    return getattr(import_module("bascule.errors" if name == "BrokerError" else "bascule.client"), name)
