"""The block of a user's rights: ten flags for everything, six for a stream, four for a topic."""

import struct
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field

from bascule.protocols.iggy.fields import MalformedError, Reader
from bascule.protocols.iggy.numbering import meant, shown

__all__ = ["GlobalFlags", "Permissions", "StreamFlags", "TopicFlags", "encode_permissions", "read_permissions"]


@dataclass(frozen=True, slots=True)
class GlobalFlags:
    """What a user may do everywhere, in the order of the block."""

    manage_servers: bool = False
    read_servers: bool = False
    manage_users: bool = False
    read_users: bool = False
    manage_streams: bool = False
    read_streams: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False


@dataclass(frozen=True, slots=True)
class TopicFlags:
    """What a user may do with one topic, in the order of the block."""

    manage_topic: bool = False
    read_topic: bool = False
    poll_messages: bool = False
    send_messages: bool = False


@dataclass(frozen=True, slots=True)
class StreamFlags:
    """What a user may do with one stream, in the order of the block."""

    manage_stream: bool = False
    read_stream: bool = False
    manage_topics: bool = False
    read_topics: bool = False
    poll_messages: bool = False
    send_messages: bool = False


@dataclass(frozen=True, slots=True)
class Permissions:
    """All rights of a user.

    Attributes:
        everywhere: flags that name no stream.
        streams: by the number of the stream.
        topics: by the numbers of stream and topic; each stream is in `streams` too.
    """

    everywhere: GlobalFlags = GlobalFlags()
    streams: Mapping[int, StreamFlags] = field(default_factory=dict[int, StreamFlags])
    topics: Mapping[tuple[int, int], TopicFlags] = field(default_factory=dict[tuple[int, int], TopicFlags])


def read_permissions(block: bytes) -> Permissions:
    """The rights in a block.

    Raises:
        MalformedError: not a block, or a stream or topic is in it twice.
    """
    reader = Reader(block)
    everywhere = GlobalFlags(*_flags(reader, 10))
    streams: dict[int, StreamFlags] = {}
    topics: dict[tuple[int, int], TopicFlags] = {}
    more = reader.flag("has_streams")
    while more:
        stream = meant(reader.u32("a stream's number"))
        if stream in streams:
            raise MalformedError(f"stream {stream} has rights twice")
        streams[stream] = StreamFlags(*_flags(reader, 6))
        more_topics = reader.flag("has_topics")
        while more_topics:
            topic = stream, meant(reader.u32("a topic's number"))
            if topic in topics:
                raise MalformedError(f"topic {topic[1]} of stream {stream} has rights twice")
            topics[topic] = TopicFlags(*_flags(reader, 4))
            more_topics = reader.flag("more_topics")
        more = reader.flag("more_streams")
    reader.finish()
    return Permissions(everywhere, streams, topics)


def encode_permissions(permissions: Permissions) -> bytes:
    """The block of these rights, streams and topics ascending."""
    block = bytes(astuple(permissions.everywhere))
    for stream, flags in sorted(permissions.streams.items()):
        block += struct.pack("<BI", 1, shown(stream)) + bytes(astuple(flags))
        for (of, topic), topic_flags in sorted(permissions.topics.items()):
            if of == stream:
                block += struct.pack("<BI", 1, shown(topic)) + bytes(astuple(topic_flags))
        block += b"\0"
    return block + b"\0"


def _flags(reader: Reader, count: int) -> list[bool]:
    return [reader.flag("a right") for _ in range(count)]
