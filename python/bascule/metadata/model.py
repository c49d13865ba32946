"""The state: immutable values, shared between versions.

A new version shares everything that did not change with the one before, so keeping an old version (for a snapshot, or
for comparing what was with what is) costs nothing. Mappings are never changed in place. Whoever iterates a mapping
and lets the order show must sort by key: after a restore from a snapshot the order of insertion is another one.

Timestamps are nanoseconds since 1970 by the proposer's clock; 0 stands for "never".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from bascule.metadata.sinks import Sink

DEFAULT_NAMESPACE = "default"
"""The namespace that Liftbridge's streams live in; it exists from the beginning."""

MAX_PARTITIONS = 1000
"""Most partitions of one stream at its creation; also keeps the entry below the bound of the log."""

MAX_SUBJECT_BYTES = 1024
"""A nats-server drops whoever sends it a control line of more than 4096 bytes; subject and queue group share one."""

MAX_MEMBERS = 4096
"""Most members of one group."""

MAX_MEMBER_STREAMS = 1000
"""Most streams that a member may want to read."""

MAX_ACTIVITY = 10_000
"""Most events that wait to be written to the activity stream."""

INCARNATION_ORDINAL_BITS = 16
"""An incarnation is (index of the entry that made it << 16) | ordinal within that entry."""

FIXED_SETTINGS = frozenset({"partition_by_subject", "encryption"})
"""Settings of a stream that stay as it was created."""

MAX_NUMBER = (1 << 63) - 1

SETTING_BOUNDS: Mapping[str, tuple[int, int]] = {
    "max_record_bytes": (1, 64 << 20),
    "retention_bytes": (0, MAX_NUMBER),
    "retention_messages": (0, MAX_NUMBER),
    "retention_age_ms": (0, MAX_NUMBER),
    "cleaner_interval_ms": (0, MAX_NUMBER),
    "segment_bytes": (0, MAX_NUMBER),
    "segment_age_ms": (0, MAX_NUMBER),
    "compact_parallelism": (0, MAX_NUMBER),
    "auto_pause_ms": (0, MAX_NUMBER),
    "min_isr": (0, 255),
}
"""Least and greatest value of each setting of a stream that is a number; both are allowed."""

Durability: TypeAlias = Literal["disk", "memory"]
Codec: TypeAlias = Literal["none", "lz4", "zstd"]
NatsCopy: TypeAlias = Literal["envelope", "value", "none"]
NatsAcks: TypeAlias = Literal["off", "jetstream"]
Operation: TypeAlias = Literal[
    "create_stream",
    "delete_stream",
    "pause_stream",
    "resume_stream",
    "set_stream_readonly",
    "join_group",
    "leave_group",
]


class StreamKey(NamedTuple):
    """The identity of a stream."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Broker:
    """A member of the cluster.

    Attributes:
        id: the broker's id, for ever.
        host: what clients dial.
        port: what clients dial, 0..65535.
        boot_epoch: index of the entry that registered its present run; grows with every start.
        registered_ns: when it registered for the first time.
    """

    id: str
    host: str
    port: int
    boot_epoch: int
    registered_ns: int


@dataclass(frozen=True, slots=True)
class Namespace:
    """A group of streams.

    Attributes:
        name: its name.
        id: number, 0-based, never used again.
        next_stream_id: number the next stream gets; 0-based, numbers are never used again.
        created_ns: when it was made; 0 for the default one.
    """

    name: str
    id: int
    next_stream_id: int
    created_ns: int


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """What the creator of a stream asked for. None leaves a choice to the broker's configuration at the time of use.

    Attributes:
        durability: what an ack stands for.
        codec: compression of new batches.
        nats_copy: how direct publishes are shown to NATS.
        nats_acks: how plain NATS messages with a reply subject are acknowledged.
        partition_by_subject: every partition listens on the stream's own subject and keeps what hashes to it.
        concurrency_control: expected offsets are checked.
        max_record_bytes: largest record accepted.
        retention_bytes: per partition; 0 = unlimited.
        retention_messages: per partition; 0 = unlimited.
        retention_age_ms: 0 = unlimited.
        cleaner_interval_ms: how often retention runs.
        segment_bytes: where segments roll.
        segment_age_ms: when segments roll; 0 = never by age.
        compact_enabled: keep the last record of each key.
        compact_parallelism: scans at a time.
        auto_pause_ms: idle time after which a partition pauses; 0 = never.
        auto_pause_disable_if_subscribers: subscribers keep a partition awake.
        min_isr: in-sync replicas needed to commit.
        encryption: batches are encrypted at rest.
    """

    durability: Durability = "disk"
    codec: Codec = "none"
    nats_copy: NatsCopy = "envelope"
    nats_acks: NatsAcks = "off"
    partition_by_subject: bool = False
    concurrency_control: bool = False
    max_record_bytes: int | None = None
    retention_bytes: int | None = None
    retention_messages: int | None = None
    retention_age_ms: int | None = None
    cleaner_interval_ms: int | None = None
    segment_bytes: int | None = None
    segment_age_ms: int | None = None
    compact_enabled: bool | None = None
    compact_parallelism: int | None = None
    auto_pause_ms: int | None = None
    auto_pause_disable_if_subscribers: bool | None = None
    min_isr: int | None = None
    encryption: bool | None = None


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key that encrypts a stream's batches, wrapped by a master key, which is not stored anywhere here.

    Attributes:
        number: 1-based within the stream; the highest encrypts new batches.
        master: id of the master key.
        wrapped: base64; the bytes are explained in specs/formats/metadata.md.
    """

    number: int
    master: str
    wrapped: str


@dataclass(frozen=True, slots=True)
class Partition:
    """One replicated log.

    Attributes:
        number: 0-based, gap-free within the stream.
        incarnation: unique id of this creation; names the directory.
        leader: broker id; empty = none.
        leader_epoch: generation of the leader; index of the entry that chose it.
        epoch: index of the last entry that changed leader, replicas or ISR.
        replicas: broker ids, the preferred leader first.
        isr: replicas close enough to lead, in the order of `replicas`.
        readonly: publishes are refused.
        paused: closed until resumed.
        first_paused_ns: first change of `paused`.
        last_paused_ns: latest change of `paused`.
        first_readonly_ns: first change of `readonly`.
        last_readonly_ns: latest change of `readonly`.
        trimmed_to: everything below was removed on request.
    """

    number: int
    incarnation: int
    leader: str
    leader_epoch: int
    epoch: int
    replicas: tuple[str, ...]
    isr: tuple[str, ...]
    readonly: bool = False
    paused: bool = False
    first_paused_ns: int = 0
    last_paused_ns: int = 0
    first_readonly_ns: int = 0
    last_readonly_ns: int = 0
    trimmed_to: int = 0


@dataclass(frozen=True, slots=True)
class Stream:
    """A partitioned log attached to a subject.

    Attributes:
        namespace: part of the identity.
        name: part of the identity.
        id: number within the namespace, 0-based, never used again.
        incarnation: index of the entry that created it.
        subject: NATS subject; empty = none.
        queue_group: NATS queue group; empty = none.
        created_ns: when it was created.
        settings: what was asked for.
        partitions: by number.
        resume_all: a publish to any partition resumes all that are paused.
        data_keys: ascending by number; empty = batches are not encrypted.
    """

    namespace: str
    name: str
    id: int
    incarnation: int
    subject: str
    queue_group: str
    created_ns: int
    settings: StreamSettings
    partitions: tuple[Partition, ...]
    resume_all: bool = False
    data_keys: tuple[DataKey, ...] = ()

    @property
    def key(self) -> StreamKey:
        """The identity."""
        return StreamKey(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Assignment:
    """The partitions of one stream that a member of a group reads; at least one, ascending."""

    stream: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a consumer group.

    Attributes:
        id: the consumer's id, unique in the group.
        streams: what it wants to read, of the namespace `default`; distinct, ascending.
        joined: index of the entry that let it in; distinguishes two memberships of one id.
        assignments: what it reads, ascending by stream.
        hands_over: as it declared at its join.
    """

    id: str
    streams: tuple[str, ...]
    joined: int
    assignments: tuple[Assignment, ...] = ()
    hands_over: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group; it has at least one member.

    Attributes:
        id: its id, cluster-wide.
        coordinator: broker that serves its assignments and watches over its members.
        epoch: index of the last entry that changed it; 0 = as it was created.
        members: in the order of joining.
        created: index of the entry that created it; distinguishes two groups of one id. 0 = before this was kept.
    """

    id: str
    coordinator: str
    epoch: int
    members: tuple[Member, ...]
    created: int = 0

    @property
    def generation(self) -> int:
        """As `epoch`, but unique among all groups of this id: a new group has the index of its first entry."""
        return self.epoch or self.members[0].joined

    def member(self, consumer: str) -> Member | None:
        """The member of this id."""
        return next((item for item in self.members if item.id == consumer), None)


@dataclass(frozen=True, slots=True)
class Activity:
    """An event of a stream or a group that is not in the activity stream yet.

    Attributes:
        id: index of the entry.
        operation: what happened.
        name: the stream (of the namespace `default`) or the group.
        partitions: those meant, for operations on streams.
        consumer: the member, for operations on groups.
        streams: what a joining member wants to read.
        flag: resume-all of a pause, the value of readonly, or whether a membership expired.
    """

    id: int
    operation: Operation
    name: str
    partitions: tuple[int, ...] = ()
    consumer: str = ""
    streams: tuple[str, ...] = ()
    flag: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """The replicated state after the entry `index`.

    Attributes:
        index: last entry applied, 0 = none.
        brokers: by id.
        namespaces: by name.
        streams: by identity.
        next_namespace_id: number the next namespace gets.
        groups: consumer groups by id.
        activity_on: whether what happens is kept for the activity stream.
        activity: what has yet to be written there, in order; at most `MAX_ACTIVITY`, then the oldest are forgotten.
        sinks: by identity (namespace and name).
        clock_ms: time that has passed for controllers by their monotonic clocks; never goes back.
    """

    index: int = 0
    brokers: Mapping[str, Broker] = field(default_factory=dict[str, Broker])
    namespaces: Mapping[str, Namespace] = field(default_factory=dict[str, Namespace])
    streams: Mapping[StreamKey, Stream] = field(default_factory=dict[StreamKey, Stream])
    next_namespace_id: int = 0
    groups: Mapping[str, Group] = field(default_factory=dict[str, Group])
    activity_on: bool = False
    activity: tuple[Activity, ...] = ()
    sinks: Mapping[StreamKey, Sink] = field(default_factory=dict[StreamKey, Sink])
    clock_ms: int = 0

    def stream(self, namespace: str, name: str) -> Stream | None:
        """The stream of this identity, if it exists."""
        return self.streams.get(StreamKey(namespace, name))

    def at(self, index: int) -> "State":
        """The same state, counted as of `index`."""
        return replace(self, index=index)


def initial_state() -> State:
    """The state before the first entry: no brokers, no streams, the default namespace."""
    namespace = Namespace(DEFAULT_NAMESPACE, 0, 0, 0)
    return State(namespaces={DEFAULT_NAMESPACE: namespace}, next_namespace_id=1)


def incarnation_of(index: int, ordinal: int) -> int:
    """The incarnation made by entry `index` (≥ 1) as its `ordinal`th (0 ≤ ordinal < 65536)."""
    return index << INCARNATION_ORDINAL_BITS | ordinal
