"""What the state keeps for Iggy's clients: what a topic was created with, consumer groups. Immutable values."""

from dataclasses import dataclass, field

from bascule.metadata.json_codec import ADDED

MAX_TOPIC_GROUPS = 1000
"""Most consumer groups of Iggy's clients that one stream may have."""

MAX_TOPIC_MEMBERS = 1000
"""Most members that one of them may have in a cluster."""


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
class TopicMember:
    """A connection that is a member of a group.

    Attributes:
        broker: id of the broker that the client is connected to.
        boot_epoch: of the run of that broker.
        client: number of the connection in that run, 1 to 2^32 − 1.
    """

    broker: str
    boot_epoch: int
    client: int


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A consumer group of Iggy's clients. A broker alone keeps the members in memory.

    Attributes:
        id: number within the stream, 0-based.
        name: unique in the stream.
        created: index of the entry that created it; distinguishes two groups of one number.
        members: in a cluster, in the order of joining.
        changed: index of the entry that changed last which member reads what; 0 = it had no members yet.
    """

    id: int
    name: str
    created: int
    members: tuple[TopicMember, ...] = field(default=(), metadata=ADDED)
    changed: int = field(default=0, metadata=ADDED)
