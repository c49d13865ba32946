"""Decisions about what clients of Iggy change of streams: how many partitions, names, limits. Pure."""

from dataclasses import dataclass

from bascule.control.decide import ALL_BROKERS, loads, place
from bascule.metadata import AddPartitions, ChangeTopic, IggyTopic, RemovePartitions, State, Stream
from bascule.metadata.rejection import Rejection, RejectionCode


@dataclass(frozen=True, slots=True)
class Limits:
    """What a stream keeps. `None` = as the broker's configuration says, 0 = unlimited.

    Attributes:
        age_ms: of its records.
        partition_bytes: of each partition.
    """

    age_ms: int | None
    partition_bytes: int | None


def add_partitions(
    state: State, stream: Stream, count: int, factor: int, partition_bytes: int | None
) -> AddPartitions | Rejection:
    """The command that adds `count` ≥ 1 partitions with `factor` replicas, or `ALL_BROKERS`, to a stream."""
    size = len(state.brokers)
    replicas = size if factor == ALL_BROKERS else factor
    if not 1 <= replicas <= size:
        message = f"{replicas} replicas of a partition are not between 1 and the {size} brokers of the cluster"
        return Rejection(RejectionCode.NOT_ENOUGH_BROKERS, message)
    return AddPartitions(
        stream.namespace,
        stream.name,
        stream.incarnation,
        len(stream.partitions),
        place(loads(state), count, replicas),
        partition_bytes,
    )


def remove_partitions(stream: Stream, count: int, partition_bytes: int | None) -> RemovePartitions | None:
    """The command that removes the last `count` ≥ 1 partitions, all if there are fewer; None = there is none."""
    seen = len(stream.partitions)
    if not seen:
        return None
    return RemovePartitions(stream.namespace, stream.name, stream.incarnation, seen, min(count, seen), partition_bytes)


def change_topic(stream: Stream, name: str, iggy: IggyTopic, limits: Limits) -> ChangeTopic | None:
    """The command that gives a stream this name and these limits; None = it has them."""
    has = (stream.name, stream.iggy, stream.settings.retention_age_ms, stream.settings.retention_bytes)
    if has == (name, iggy, limits.age_ms, limits.partition_bytes):
        return None
    return ChangeTopic(
        stream.namespace, stream.name, stream.incarnation, name, iggy, limits.age_ms, limits.partition_bytes
    )
