"""The state: immutable values, shared between versions.

A new version shares everything that did not change with the one before, so keeping an old version (for a snapshot, or
for comparing what was with what is) costs nothing. Mappings are never changed in place. Whoever iterates a mapping
and lets the order show must sort by key: after a restore from a snapshot the order of insertion is another one.

Timestamps are nanoseconds since 1970 by the proposer's clock; 0 stands for "never".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, TypeAlias

from bascule.metadata.iggy import IggyTopic, TopicGroup
from bascule.metadata.json_codec import ADDED
from bascule.metadata.replicas import Answer, Ending, Loss, Proposal, Reported, Run, Versions
from bascule.metadata.sinks import Sink
from bascule.metadata.users import User

LEVEL_2: Mapping[str, int] = {"level": 2}
"""Marks a field that entries of level 2 set: it is written only where it differs from its default, so that what level 1
writes keeps its bytes."""

DEFAULT_NAMESPACE = "default"
"""The namespace that Liftbridge's streams live in; it exists from the beginning."""

MAX_PARTITIONS = 1000
"""Most partitions of one stream at its creation; also keeps the entry below the bound of the log."""

MAX_TOPIC_PARTITIONS = 10_000
"""Most partitions of one stream to which some are added."""

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

MAX_NUMBERS = (1 << 32) - 2
"""Numbers of namespaces, and of streams in one, that a creator may choose are below this."""

SETTING_BOUNDS: Mapping[str, tuple[int, int]] = {
    "max_record_bytes": (1, 64 << 20),
    "retention_bytes": (0, MAX_NUMBER),
    "retention_messages": (0, MAX_NUMBER),
    "retention_age_ms": (0, MAX_NUMBER),
    "cleaner_interval_ms": (0, MAX_NUMBER),
    "segment_bytes": (0, MAX_NUMBER),
    "segment_age_ms": (0, MAX_NUMBER),
    "retention_after_archive_max_bytes": (1, MAX_NUMBER),
    "retention_hold_max_bytes": (1, MAX_NUMBER),
    "retention_hold_expiry_ms": (30_000, 7 * 86_400_000),
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
        registered_ns: when it registered for the first time, or joined.
        nonce: of its last run, 1…2^63 − 1; 0 = registered at level 1.
        directory_id: of its data directory, made once; empty = registered at level 1.
        confirmed: the last boot epoch that it confirmed; 0 = never.
        run: what its last run may do.
        peer_host: what other brokers dial; empty = none.
        peer_port: what other brokers dial, 0..65535.
        rack: where it stands; empty = unknown.
        versions: the feature levels that it speaks.
        kernel_boot_id: of the kernel, as last reported.
        mount_id: of the file system of its data, as last reported.
        draining: it gives up its replicas.
        removed: it is gone; its id stays for ever.
        raft_id: of its metadata directory in the Raft group; 0 = not in the group.
        fenced_ns: when its last run was fenced, ns since 1970; 0 = it is not, or has never run.
    """

    id: str
    host: str
    port: int
    boot_epoch: int
    registered_ns: int
    nonce: int = field(default=0, metadata=LEVEL_2)
    directory_id: str = field(default="", metadata=LEVEL_2)
    confirmed: int = field(default=0, metadata=LEVEL_2)
    run: Run = field(default="registered", metadata=LEVEL_2)
    peer_host: str = field(default="", metadata=LEVEL_2)
    peer_port: int = field(default=0, metadata=LEVEL_2)
    rack: str = field(default="", metadata=LEVEL_2)
    versions: Versions = field(default=Versions(), metadata=LEVEL_2)
    kernel_boot_id: str = field(default="", metadata=LEVEL_2)
    mount_id: str = field(default="", metadata=LEVEL_2)
    draining: bool = field(default=False, metadata=LEVEL_2)
    removed: bool = field(default=False, metadata=LEVEL_2)
    raft_id: int = field(default=0, metadata=LEVEL_2)
    fenced_ns: int = field(default=0, metadata=LEVEL_2)


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
        retention_after_archive: retention waits until an archive has the records.
        retention_after_archive_max_bytes: per partition, above which it does not wait; needed for the former.
        retention_hold_max_bytes: queries may hold records until a partition has so many; None = they may not.
        retention_hold_expiry_ms: time after the last report of a query at which its hold ends; needs the former.
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
    retention_after_archive: bool | None = field(default=None, metadata=ADDED)
    retention_after_archive_max_bytes: int | None = field(default=None, metadata=ADDED)
    retention_hold_max_bytes: int | None = field(default=None, metadata=ADDED)
    retention_hold_expiry_ms: int | None = field(default=None, metadata=ADDED)


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
        epoch: the partition epoch: index of the last entry that changed leader, replicas or ISR; from level 2 on also
            `eligible`, `unclean`, `unable`, `cut` or `min_isr`, or that refused a change of the ISR or a resignation.
        replicas: broker ids, the preferred leader first.
        isr: replicas close enough to lead, in the order of `replicas`.
        readonly: publishes are refused.
        paused: closed until resumed.
        first_paused_ns: first change of `paused`.
        last_paused_ns: latest change of `paused`.
        first_readonly_ns: first change of `readonly`.
        last_readonly_ns: latest change of `readonly`.
        trimmed_to: everything below was removed on request.
        archived_to: an archive has everything below; 0 = none has.
        archive: the archive that reported last; empty = none did for this incarnation.
        eligible: the members that hold everything committed.
        unclean: replicas that may lack what was counted of them.
        unable: replicas that cannot lead now.
        cut: replicas whose recovery cut a torn tail.
        ending: an ended leader that may not know it; nobody leads then.
        volatile: members whose counted data may be in the page cache only.
        volatile_since: index of the entry that last changed `durability` of the stream; 0 = as it was created.
        reports: positions, at most one of each replica, while no leader can be chosen without them.
        losses: the last ones, at most `MAX_LOSSES`.
        tried: leaders that resigned since the high watermark last moved.
        adding: replicas that a move adds.
        removing: replicas that a move takes away.
        min_isr: in-sync replicas needed to commit, 1…255; 0 = decided by the broker's configuration (level 1).
        explicit_min_isr: somebody asked for that number.

    All sets of broker ids are in the order of `replicas`, and empty at level 1.
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
    archived_to: int = field(default=0, metadata=ADDED)
    archive: str = field(default="", metadata=ADDED)
    eligible: tuple[str, ...] = field(default=(), metadata=LEVEL_2)
    unclean: tuple[str, ...] = field(default=(), metadata=LEVEL_2)
    unable: tuple[str, ...] = field(default=(), metadata=LEVEL_2)
    cut: tuple[str, ...] = field(default=(), metadata=LEVEL_2)
    ending: Ending | None = field(default=None, metadata=LEVEL_2)
    volatile: tuple[str, ...] = field(default=(), metadata=LEVEL_2)
    volatile_since: int = field(default=0, metadata=LEVEL_2)
    reports: tuple[Reported, ...] = field(default=(), metadata=LEVEL_2)
    losses: tuple[Loss, ...] = field(default=(), metadata=LEVEL_2)
    tried: tuple[str, ...] = field(default=(), metadata=LEVEL_2)
    adding: tuple[str, ...] = field(default=(), metadata=LEVEL_2)
    removing: tuple[str, ...] = field(default=(), metadata=LEVEL_2)
    min_isr: int = field(default=0, metadata=LEVEL_2)
    explicit_min_isr: bool = field(default=False, metadata=LEVEL_2)


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
        compacted: compaction is on, or was at any time since level 2.
        iggy: what a client of Iggy created it with; `None` = another protocol created it.
        topic_groups: consumer groups of Iggy's clients, ascending by number.
        next_group_id: number the next of them gets.
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
    compacted: bool = field(default=False, metadata=LEVEL_2)
    iggy: IggyTopic | None = field(default=None, metadata=ADDED)
    topic_groups: tuple[TopicGroup, ...] = field(default=(), metadata=ADDED)
    next_group_id: int = field(default=0, metadata=ADDED)

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
        cluster_id: made when the cluster was founded; empty = level 1.
        rescues: how often a survivor was made the only voter.
        level: feature level; entries are treated by it, never by the version of the program.
        voters: Raft ids that should vote, ascending.
        answers: to the last proposals that had an id, at most `MAX_ANSWERS`, the newest last.
        answered_to: of each present run, by nonce, the highest counter that was removed from `answers`.
        users: by name.
        next_user_id: number the next user gets.
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
    cluster_id: str = ""
    rescues: int = 0
    level: int = 1
    voters: tuple[int, ...] = ()
    answers: tuple[Answer, ...] = ()
    answered_to: tuple[Proposal, ...] = ()
    users: Mapping[str, User] = field(default_factory=dict[str, User])
    next_user_id: int = 0

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
