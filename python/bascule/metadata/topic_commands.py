"""Commands that change what stays as it was created elsewhere: how many partitions a stream has, and names."""

from dataclasses import dataclass
from typing import TypeAlias

from bascule.metadata.iggy import IggyTopic


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one partition lives: broker ids, distinct, the leader among them."""

    replicas: tuple[str, ...]
    leader: str


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Partitions after the last one of the stream of this identity and incarnation, empty, where `placements` says.

    Attributes:
        seen: how many partitions the proposer saw; the stream must have so many.
        placements: at least one.
        retention_bytes: the stream's setting from now on.
    """

    namespace: str
    name: str
    incarnation: int
    seen: int
    placements: tuple[Placement, ...]
    retention_bytes: int | None


@dataclass(frozen=True, slots=True)
class RemovePartitions:
    """Remove the last partitions of the stream of this identity and incarnation, with their data.

    Attributes:
        seen: how many partitions the proposer saw; the stream must have so many.
        count: how many go, 1 to `seen`.
        retention_bytes: the stream's setting from now on.
    """

    namespace: str
    name: str
    incarnation: int
    seen: int
    count: int
    retention_bytes: int | None


@dataclass(frozen=True, slots=True)
class ChangeTopic:
    """Change what a client of Iggy gave a stream of this identity and incarnation.

    Attributes:
        to: its name from now on; the same = it stays.
        iggy: what is shown of it from now on.
        retention_age_ms: the stream's setting from now on.
        retention_bytes: the stream's setting from now on.
    """

    namespace: str
    name: str
    incarnation: int
    to: str
    iggy: IggyTopic
    retention_age_ms: int | None
    retention_bytes: int | None


@dataclass(frozen=True, slots=True)
class RenameNamespace:
    """The namespace of this name and number has the name `to` from now on, with all that it holds."""

    name: str
    id: int
    to: str


@dataclass(frozen=True, slots=True)
class JoinTopicGroup:
    """A connection of this run of a broker becomes a member of the group that the entry `created` made.

    The group is one of the stream of this identity and incarnation.
    """

    namespace: str
    name: str
    incarnation: int
    created: int
    broker_id: str
    boot_epoch: int
    client: int


@dataclass(frozen=True, slots=True)
class LeaveTopicGroup:
    """A connection of this run of a broker leaves the group that the entry `created` made."""

    created: int
    broker_id: str
    boot_epoch: int
    client: int


TopicCommand: TypeAlias = (
    AddPartitions | RemovePartitions | ChangeTopic | RenameNamespace | JoinTopicGroup | LeaveTopicGroup
)
OfTopic: TypeAlias = AddPartitions | RemovePartitions | ChangeTopic | JoinTopicGroup
"""Those about one stream."""

TOPIC_TYPES: dict[str, type[TopicCommand]] = {
    "add_partitions": AddPartitions,
    "remove_partitions": RemovePartitions,
    "change_topic": ChangeTopic,
    "rename_namespace": RenameNamespace,
    "join_topic_group": JoinTopicGroup,
    "leave_topic_group": LeaveTopicGroup,
}
"""By the name that an entry gives them."""
