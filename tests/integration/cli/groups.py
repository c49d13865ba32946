"""Members of a group without a consumer."""

from bascule._liftbridge_pb import message
from bascule.client import Client

__all__ = ["join"]


def join(client: Client, group: str, consumer: str, *streams: str) -> None:
    """Make a consumer join; its session is longer than a test."""
    request = message("JoinConsumerGroupRequest")(groupId=group, consumerId=consumer, streams=streams)
    client._call("JoinConsumerGroup", request.SerializeToString(), None)  # pyright: ignore[reportPrivateUsage]
