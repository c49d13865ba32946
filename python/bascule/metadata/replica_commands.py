"""Entries about brokers and replicas, from feature level 2 on. Their rules: `docs/decisions/replication.md`.

In every entry `broker_id` and `boot_epoch` name the run that speaks, or that is meant. Partitions are named by their
incarnation. Indexes, epochs and offsets lie in 0…2^63 − 1.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from bascule.metadata.model import LEVEL_2
from bascule.metadata.replicas import Position, Versions

MAX_CHANGES = 1_000
"""Most partitions of one entry that changes ISRs, resigns or reports another broker's replicas."""

Flag: TypeAlias = Literal["unclean", "cut", "unable", "able"]
"""Of a replica: it may lack what was counted of it; recovery cut a torn tail; it cannot lead; it can again."""

ResignReason: TypeAlias = Literal["transfer", "standstill", "failed", "disk_full", "nats_lost"]
"""Why a leader resigns: planned; its high watermark stands still; it cannot lead; its disk is full; NATS is lost."""

ChoiceReason: TypeAlias = Literal["waited", "operator", "rescue"]
"""Why a leader is named although the rules name none."""


@dataclass(frozen=True, slots=True)
class Addresses:
    """Where a broker is dialled: by clients, and by other brokers (empty host = by none). Ports 0..65535."""

    host: str
    port: int
    peer_host: str = ""
    peer_port: int = 0


@dataclass(frozen=True, slots=True)
class Finalize:
    """Raise the feature level by one; all brokers speak it.

    Attributes:
        level: the new level.
        cluster_id: of the cluster, which level 2 gives it; empty afterwards.
        raft_id: of the broker, in a cluster that several brokers founded; 0 = the entry's index.
    """

    level: int
    cluster_id: str = ""
    raft_id: int = field(default=0, metadata=LEVEL_2)


@dataclass(frozen=True, slots=True)
class JoinBroker:
    """A broker with an empty directory becomes known.

    Attributes:
        raft_id: that it founded the cluster with; 0 = the entry's index, and it does not vote yet.
    """

    broker_id: str
    directory_id: str
    addresses: Addresses
    versions: Versions
    rack: str
    joined_ns: int
    raft_id: int = field(default=0, metadata=LEVEL_2)


@dataclass(frozen=True, slots=True)
class Register:
    """A run of a known broker begins; the entry's index is its boot epoch.

    Attributes:
        nonce: of the run, 1…2^63 − 1.
        stored: the boot epoch that its directory has; 0 = none.
        kernel_boot_id: of its kernel.
        mount_id: of the file system of its data.
    """

    broker_id: str
    nonce: int
    directory_id: str
    stored: int
    kernel_boot_id: str
    mount_id: str
    addresses: Addresses
    versions: Versions


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What is known of one replica.

    Attributes:
        incarnation: of the partition.
        flags: what is new, distinct; not both unable and able.
        position: where its log ends; None = not reported.
        leader_epoch: that the position, or a report about another broker's replica, was made in; 0 in
            `confirm_broker`, whose replicas have no role yet.
        broker_id: whose replica it is; empty = that of the run which reports.
        broker_boot_epoch: the run of `broker_id` that is meant; 0 = that of the run which reports.
        durable_past: the change of class (`Partition.volatile_since`) past which it is durable; −1 = not reported.
    """

    incarnation: int
    flags: tuple[Flag, ...] = ()
    position: Position | None = None
    leader_epoch: int = 0
    broker_id: str = ""
    broker_boot_epoch: int = 0
    durable_past: int = -1


@dataclass(frozen=True, slots=True)
class ConfirmBroker:
    """The run has synced its boot epoch and reports what its recovery found."""

    broker_id: str
    boot_epoch: int
    reports: tuple[ReplicaReport, ...] = ()


@dataclass(frozen=True, slots=True)
class ReportReplicas:
    """The run reports its own replicas, or as a leader those of others."""

    broker_id: str
    boot_epoch: int
    reports: tuple[ReplicaReport, ...]


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """The run is dead.

    Attributes:
        live: the brokers that may be chosen instead, distinct.
        fenced_ns: when the controller proposed it, ns since 1970; 0 = unknown.
    """

    broker_id: str
    boot_epoch: int
    live: tuple[str, ...]
    fenced_ns: int = field(default=0, metadata=LEVEL_2)


@dataclass(frozen=True, slots=True)
class Verified:
    """A member that its leader has counted up to the high watermark and the start of the epoch, in this run of it."""

    broker_id: str
    boot_epoch: int


@dataclass(frozen=True, slots=True)
class IsrChange:
    """The ISR that the leader asks for, as of these epochs.

    Attributes:
        isr: distinct replicas, the leader among them; the order does not matter.
        verified: members of `isr`, distinct; every one that is added is among them.
    """

    incarnation: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[str, ...]
    verified: tuple[Verified, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangeIsr:
    """A leader's changes of ISRs; each is applied or refused for itself."""

    broker_id: str
    boot_epoch: int
    changes: tuple[IsrChange, ...]


@dataclass(frozen=True, slots=True)
class Resigned:
    """A partition whose leader resigns, as of these epochs.

    Attributes:
        hw_moved: the high watermark has moved since the last resignation for a standstill.
    """

    incarnation: int
    leader_epoch: int
    partition_epoch: int
    hw_moved: bool = False


@dataclass(frozen=True, slots=True)
class Resign:
    """A leader gives up partitions; each is applied or refused for itself.

    Attributes:
        target: who is to lead; empty = whom the rules name.
    """

    broker_id: str
    boot_epoch: int
    partitions: tuple[Resigned, ...]
    reason: ResignReason
    target: str = ""


@dataclass(frozen=True, slots=True)
class ReportLeader:
    """An eligible follower has a high watermark above the branch of its leader.

    Attributes:
        leader_epoch: of the leader that is meant.
        position: of the reporter: it had learned this high watermark from a leader.
    """

    incarnation: int
    leader_epoch: int
    reporter: str
    boot_epoch: int
    position: Position


@dataclass(frozen=True, slots=True)
class EndLeader:
    """Nobody leads the partition until its leader has applied this."""

    incarnation: int
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class StoppedLeading:
    """The data plane of the run has applied everything up to entry `index`."""

    broker_id: str
    boot_epoch: int
    index: int


@dataclass(frozen=True, slots=True)
class ChooseLeader:
    """Name a leader although the rules name none; the loss is recorded.

    Attributes:
        by: who decided it.
    """

    incarnation: int
    partition_epoch: int
    leader: str
    reason: ChoiceReason
    by: str


@dataclass(frozen=True, slots=True)
class AcceptLoss:
    """No replica has the offsets [start, end); all of them skip the range.

    Attributes:
        by: who decided it.
    """

    incarnation: int
    start: int
    end: int
    by: str


ReplicaCommand: TypeAlias = (
    Finalize
    | JoinBroker
    | Register
    | ConfirmBroker
    | ReportReplicas
    | FenceBroker
    | ChangeIsr
    | Resign
    | ReportLeader
    | EndLeader
    | StoppedLeading
    | ChooseLeader
    | AcceptLoss
)

REPLICA_TYPES: dict[str, type[ReplicaCommand]] = {
    "finalize": Finalize,
    "join_broker": JoinBroker,
    "register": Register,
    "confirm_broker": ConfirmBroker,
    "report_replicas": ReportReplicas,
    "fence_broker": FenceBroker,
    "change_isr": ChangeIsr,
    "resign": Resign,
    "report_leader": ReportLeader,
    "end_leader": EndLeader,
    "stopped_leading": StoppedLeading,
    "choose_leader": ChooseLeader,
    "accept_loss": AcceptLoss,
}
"""By the name that the entry has."""
