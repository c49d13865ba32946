"""Commands about topics: streams of a namespace here."""

from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from bascule.control import Controller, StreamRequest, decide_topics
from bascule.control.decide import ALL_BROKERS
from bascule.control.decide_topics import Limits
from bascule.metadata import MAX_NUMBERS, MAX_PARTITIONS, IggyTopic, Namespace, State, Stream, StreamSettings
from bascule.protocols.iggy.commands import CreateTopic, Named, TopicSettings, UpdateTopic
from bascule.protocols.iggy.lookup import find_stream, find_topic, topics_of
from bascule.protocols.iggy.names import check_name, check_renames
from bascule.protocols.iggy.requests import IggyHandler, IggyRequest
from bascule.protocols.iggy.showing import MAX_U64, Showing
from bascule.protocols.iggy.statuses import IggyError, IggyStatus
from bascule.protocols.liftbridge import CreationGuard

__all__ = ["TopicCommands", "partition_bytes", "replicas"]

LARGEST_RECORD: Final = 16 << 20
"""A send may have 10,000,000 bytes of payload in one message, and 100,000 of header values with their keys."""
_US_PER_MS: Final = 1000


class TopicCommands:
    """The handlers. `defaults`: settings that are stored with a topic; `creation_guard` bounds what is created."""

    def __init__(
        self, controller: Controller, showing: Showing, defaults: StreamSettings, creation_guard: CreationGuard
    ) -> None:
        self._controller = controller
        self._showing = showing
        self._defaults = defaults
        self._creation_guard = creation_guard

    def handlers(self) -> dict[str, IggyHandler]:
        """Handler by command."""
        return {
            "GET_TOPIC": self.get,
            "GET_TOPICS": self.list,
            "CREATE_TOPIC": self.create,
            "DELETE_TOPIC": self.delete,
            "UPDATE_TOPIC": self.update,
            "PURGE_TOPIC": self.purge,
        }

    async def get(self, request: IggyRequest[Named]) -> bytes:
        """GET_TOPIC; a topic that does not exist is an empty answer."""
        try:
            _, topic = self._find(request.command)
        except IggyError:
            return b""
        return self._showing.topic(topic)

    async def list(self, request: IggyRequest[Named]) -> bytes:
        """GET_TOPICS; those of a stream that does not exist are none."""
        state = self._controller.state
        try:
            namespace = find_stream(state, request.command.path[0])
        except IggyError:
            return self._showing.topics([])
        return self._showing.topics(topics_of(state, namespace))

    async def create(self, request: IggyRequest[CreateTopic]) -> bytes:
        """CREATE_TOPIC."""
        asked = request.command
        namespace = find_stream(self._controller.state, asked.stream)
        check_name(asked.settings.name, IggyStatus.INVALID_TOPIC_NAME)
        if asked.partitions > MAX_PARTITIONS:
            text = f"{asked.partitions} partitions are more than the {MAX_PARTITIONS} a topic may have"
            raise IggyError(IggyStatus.TOO_MANY_PARTITIONS, text)
        if asked.number > MAX_NUMBERS:
            raise IggyError(IggyStatus.INVALID_TOPIC_ID, f"number {asked.number} of a topic is above {MAX_NUMBERS}")
        wanted = self._request(namespace, asked)
        with self._creation_guard.stream(self._controller.state, wanted):
            await self._controller.create_stream(wanted, request.timeout_s)
        return self._showing.topic(find_topic(self._controller.state, namespace, asked.settings.name))

    async def delete(self, request: IggyRequest[Named]) -> bytes:
        """DELETE_TOPIC."""
        _, topic = self._find(request.command)
        await self._controller.delete_stream(topic.namespace, topic.name, request.timeout_s)
        return b""

    async def update(self, request: IggyRequest[UpdateTopic]) -> bytes:
        """UPDATE_TOPIC: name and limits; number, partitions and messages stay."""
        asked = request.command.settings
        _, topic = self._find(Named(request.command.path))
        if asked.name != topic.name:
            check_renames(self._controller)
            check_name(asked.name, IggyStatus.INVALID_TOPIC_NAME)
            self._creation_guard.check_name(asked.name)
        limits = Limits(_age_ms(asked.expiry), partition_bytes(asked.max_size, len(topic.partitions)))
        iggy, limits = _with_kept(topic, request.command.kept, _kept(asked), limits)
        await self._controller.decide(
            lambda _: decide_topics.change_topic(topic, asked.name, iggy, limits), request.timeout_s
        )
        return b""

    async def purge(self, request: IggyRequest[Named]) -> bytes:
        """PURGE_TOPIC."""
        _, topic = self._find(request.command)
        await self._controller.purge_stream(
            topic.namespace, topic.name, now=False, dry_run=False, timeout_s=request.timeout_s
        )
        return b""

    def _find(self, command: Named) -> tuple[Namespace, Stream]:
        state, (stream, topic) = self._controller.state, command.path
        namespace = find_stream(state, stream)
        return namespace, find_topic(state, namespace, topic)

    def _request(self, namespace: Namespace, asked: CreateTopic) -> StreamRequest:
        settings = asked.settings
        return StreamRequest(
            namespace=namespace.name,
            name=settings.name,
            subject="",
            queue_group="",
            partitions=asked.partitions,
            replication_factor=replicas(self._controller.state, settings.replication),
            settings=replace(
                self._defaults,
                retention_age_ms=_age_ms(settings.expiry),
                retention_bytes=partition_bytes(settings.max_size, asked.partitions),
                max_record_bytes=LARGEST_RECORD,
                segment_bytes=self._defaults.segment_bytes if asked.segment_bytes is None else asked.segment_bytes,
                durability="disk" if asked.fsync else self._defaults.durability,
            ),
            id=asked.number - 1 if asked.number else None,
            iggy=_kept(settings),
        )


def replicas(state: State, replication: int) -> int:
    """Replicas of a partition: the factor is kept and shown; a cluster places as many as it has brokers, up to that."""
    return ALL_BROKERS if replication > len(state.brokers) else replication or 1


def _kept(settings: TopicSettings) -> IggyTopic:
    return IggyTopic(
        compression=settings.compression,
        expiry_us=_signed(settings.expiry),
        max_size=_signed(settings.max_size),
        replication=settings.replication,
    )


def _with_kept(topic: Stream, kept: AbstractSet[str], iggy: IggyTopic, limits: Limits) -> tuple[IggyTopic, Limits]:
    """What a topic is to have, where the settings `kept` stay: those that a client of v2 does not name."""
    if not kept:
        return iggy, limits
    has = topic.iggy or IggyTopic(compression=1, expiry_us=0, max_size=0, replication=0)
    iggy = replace(
        iggy,
        compression=has.compression if "compression_algorithm" in kept else iggy.compression,
        expiry_us=has.expiry_us if "message_expiry" in kept else iggy.expiry_us,
        max_size=has.max_size if "max_topic_size" in kept else iggy.max_size,
        replication=has.replication,
    )
    settings = topic.settings
    return iggy, Limits(
        settings.retention_age_ms if "message_expiry" in kept else limits.age_ms,
        settings.retention_bytes if "max_topic_size" in kept else limits.partition_bytes,
    )


def _signed(value: int) -> int:
    """A u64 as what 64 signed bits of it are."""
    return value - (1 << 64) if value >> 63 else value


def _age_ms(expiry: int) -> int | None:
    """What retention is set to: 0 = never, `None` = the broker's default. Rounded up: nothing goes too early."""
    if expiry == 0:
        return None
    # Beyond 2^63 µs there is no difference to never.
    return 0 if expiry == MAX_U64 or expiry >> 63 else -(-expiry // _US_PER_MS)


def partition_bytes(max_size: int, partitions: int) -> int | None:
    """The share of one partition, rounded up: 0 = unlimited, `None` = the broker's default."""
    if max_size == 0:
        return None
    return 0 if max_size == MAX_U64 or max_size >> 63 else -(-max_size // max(1, partitions))
