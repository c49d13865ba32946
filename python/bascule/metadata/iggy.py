"""What the state keeps for Iggy's clients: what a topic was created with, consumer groups. Immutable values."""

from dataclasses import dataclass

MAX_TOPIC_GROUPS = 1000
"""Most consumer groups of Iggy's clients that one stream may have."""


@dataclass(frozen=True, slots=True)
class IggyTopic:
    """What the creator of a topic gave and this broker keeps to show it again.

    Attributes:
        compression: 1 none, 2 gzip; never applied.
        expiry_us: 0 = the broker's default; −1 = never; other negative numbers stand for 2^64 more.
        max_size: bytes of all partitions together; 0 = the broker's default; −1 = unlimited; negative ones as above.
        replication: 0…255; 0 = the broker's default.
    """

    compression: int
    expiry_us: int
    max_size: int
    replication: int


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A consumer group of Iggy's clients; its members are not part of it.

    Attributes:
        id: number within the stream, 0-based.
        name: unique in the stream.
        created: index of the entry that created it; distinguishes two groups of one number.
    """

    id: int
    name: str
    created: int
