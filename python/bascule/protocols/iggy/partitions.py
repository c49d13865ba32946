"""Commands that change how many partitions a topic has, or remove the oldest segments of one."""

from bascule.control import Controller, Trim, decide_topics
from bascule.metadata import MAX_PARTITIONS, Stream
from bascule.protocols.iggy.commands import DeleteSegments, Partitions
from bascule.protocols.iggy.fields import Identifier
from bascule.protocols.iggy.lookup import find_stream, find_topic
from bascule.protocols.iggy.numbering import shown
from bascule.protocols.iggy.requests import IggyHandler, IggyRequest
from bascule.protocols.iggy.showing import MAX_U64
from bascule.protocols.iggy.statuses import IggyError, IggyStatus
from bascule.protocols.iggy.topics import partition_bytes, replicas
from bascule.protocols.liftbridge import CreationGuard

__all__ = ["PartitionCommands"]


class PartitionCommands:
    """The handlers. `creation_guard` bounds what is created."""

    def __init__(self, controller: Controller, creation_guard: CreationGuard) -> None:
        self._controller = controller
        self._creation_guard = creation_guard

    def handlers(self) -> dict[str, IggyHandler]:
        """Handler by command."""
        return {
            "CREATE_PARTITIONS": self.create,
            "DELETE_PARTITIONS": self.delete,
            "DELETE_SEGMENTS": self.delete_segments,
        }

    async def create(self, request: IggyRequest[Partitions]) -> bytes:
        """CREATE_PARTITIONS: after the last one, empty."""
        topic, count = self._find(request.command), request.command.count
        state = self._controller.state
        factor = replicas(state, topic.iggy.replication if topic.iggy else _replicas(topic))
        share = _share(topic, len(topic.partitions) + count)
        with self._creation_guard.partitions(state, count):
            await self._controller.decide(
                lambda _: decide_topics.add_partitions(state, topic, count, factor, share), request.timeout_s
            )
        return b""

    async def delete(self, request: IggyRequest[Partitions]) -> bytes:
        """DELETE_PARTITIONS: the last ones with their messages; all, when there are fewer."""
        topic, count = self._find(request.command), request.command.count
        share = _share(topic, max(0, len(topic.partitions) - count))
        await self._controller.decide(lambda _: decide_topics.remove_partitions(topic, count, share), request.timeout_s)
        return b""

    async def delete_segments(self, request: IggyRequest[DeleteSegments]) -> bytes:
        """DELETE_SEGMENTS: the oldest of a partition with their messages; all but the active one, when there are fewer.

        Messages above the high watermark stay, and with them their segments.
        """
        asked = request.command
        topic = self._topic(asked.path)
        number = asked.partition - 1
        if not 0 <= number < len(topic.partitions):
            text = f"topic {topic.name!r} has no partition {shown(asked.partition)}: it has {len(topic.partitions)}"
            raise IggyError(IggyStatus.PARTITION_NOT_FOUND, text)
        incarnation, leader = topic.partitions[number].incarnation, topic.partitions[number].leader
        if leader != self._controller.broker_id:
            text = f"only its leader, broker {leader!r}, knows the segments of the partition: ask that one"
            raise IggyError(IggyStatus.FEATURE_UNAVAILABLE, text)
        known = self._controller.status([incarnation]).get(incarnation)
        committed = known.high_watermark if known is not None else 0
        starts = [each for each in self._controller.segment_starts(incarnation) if each <= committed]
        before = starts[min(asked.count, len(starts) - 1)] if starts else 0
        trim = Trim(topic.namespace, topic.name, number, before)
        await self._controller.trim_partition(trim, dry_run=False, timeout_s=request.timeout_s)
        return b""

    def _find(self, asked: Partitions) -> Stream:
        found = self._topic(asked.path)
        if not 1 <= asked.count <= MAX_PARTITIONS:
            text = f"{asked.count} partitions are not between 1 and {MAX_PARTITIONS}: ask for them in several commands"
            raise IggyError(IggyStatus.TOO_MANY_PARTITIONS, text)
        return found

    def _topic(self, path: tuple[Identifier, ...]) -> Stream:
        stream, topic = path
        state = self._controller.state
        return find_topic(state, find_stream(state, stream), topic)


def _share(topic: Stream, partitions: int) -> int | None:
    """What each of so many partitions keeps, bytes: the topic's maximum size stays."""
    if topic.iggy is None:
        return topic.settings.retention_bytes
    return partition_bytes(topic.iggy.max_size & MAX_U64, partitions)


def _replicas(topic: Stream) -> int:
    return max((len(item.replicas) for item in topic.partitions), default=0)
