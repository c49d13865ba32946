"""FetchMetadata and FetchPartitionMetadata (liftbridge §3.6, §3.10)."""

from collections.abc import Iterable
from typing import Any

from bascule._liftbridge_pb import message
from bascule.control import Controller
from bascule.control.dataplane import PartitionStatus
from bascule.control.decide import loads
from bascule.metadata import DEFAULT_NAMESPACE, Broker, Group, Partition, Stream
from bascule.protocols.grpc_status import Status, StatusError
from bascule.protocols.liftbridge.messages import parse, serialize
from bascule.protocols.router import AdminRequest, Handler

_FetchMetadataRequest = message("FetchMetadataRequest")
_FetchMetadataResponse = message("FetchMetadataResponse")
_FetchPartitionMetadataRequest = message("FetchPartitionMetadataRequest")
_FetchPartitionMetadataResponse = message("FetchPartitionMetadataResponse")
_StreamMetadata = message("StreamMetadata")
_UNKNOWN_STREAM = 1
_UNKNOWN_GROUP = 1

MAX_NAMES = 10_000
"""Streams and groups of one FetchMetadata, groups of one FetchGroupDetails."""

MAX_ANSWER_BYTES = 32 << 20
"""Of one of them; FetchMetadata counts before it makes the answer."""


class MetadataMethods:
    """The handlers."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> dict[str, Handler]:
        """Handler by method."""
        return {"FetchMetadata": self.fetch_metadata, "FetchPartitionMetadata": self.fetch_partition_metadata}

    async def fetch_metadata(self, request: AdminRequest) -> bytes:
        """FetchMetadata (liftbridge §3.6): from this broker's copy. A name that is given twice is answered once."""
        asked = parse(_FetchMetadataRequest, request.body)
        if len(asked.streams) + len(asked.groups) > MAX_NAMES:
            text = f"{len(asked.streams) + len(asked.groups)} streams and groups are asked for, at most {MAX_NAMES} are"
            raise StatusError(Status.INVALID_ARGUMENT, f"{text} answered at once")
        state = self._controller.state
        names: list[str] = list(dict.fromkeys(asked.streams)) or sorted(
            name for namespace, name in state.streams if namespace == DEFAULT_NAMESPACE
        )
        found = {name: stream for name in names if (stream := state.stream(DEFAULT_NAMESPACE, name)) is not None}
        status = self._controller.status(open_incarnations(found.values()))
        response = _FetchMetadataResponse()
        carried = loads(state)
        for broker in self._brokers():
            load = carried[broker.id]
            response.brokers.add(
                id=broker.id,
                host=broker.host,
                port=broker.port,
                partitionCount=load.replicas,
                leaderCount=load.leaders,
            )
        shown = [shown_stream(name, found.get(name), status) for name in names]
        if sum(item.ByteSize() for item in shown) > MAX_ANSWER_BYTES:
            text = f"the answer would have more than {MAX_ANSWER_BYTES >> 20} MiB: ask for fewer streams at once"
            raise StatusError(Status.RESOURCE_EXHAUSTED, text)
        response.streamMetadata.extend(shown)
        for group in dict.fromkeys(asked.groups):
            _show_group(response.groupMetadata.add(groupId=group), state.groups.get(group))
        return serialize(response)

    async def fetch_partition_metadata(self, request: AdminRequest) -> bytes:
        """FetchPartitionMetadata (liftbridge §3.10)."""
        asked = parse(_FetchPartitionMetadataRequest, request.body)
        stream = self._controller.state.stream(DEFAULT_NAMESPACE, asked.stream)
        number: int = asked.partition
        if stream is None or not 0 <= number < len(stream.partitions):
            raise StatusError(Status.NOT_FOUND, "partition not found", "partition_not_found")
        partition = stream.partitions[number]
        status = self._controller.status([partition.incarnation]).get(partition.incarnation)
        if partition.leader != self._controller.broker_id or partition.paused or status is None:
            text = "The request should be sent to partition leader"
            raise StatusError(Status.FAILED_PRECONDITION, text, "not_leader")
        if not status.may_read:
            why = "it has no lease, or has just begun to lead"
            text = f"This broker leads the partition and cannot say yet where it ends: {why}. Ask again"
            raise StatusError(Status.UNAVAILABLE, text, "unavailable")
        response = _FetchPartitionMetadataResponse()
        _show_partition(response.metadata, partition, status)
        return serialize(response)

    def _brokers(self) -> list[Broker]:
        """The brokers that clients can reach, this one first. Clients dial all of them, some of them for ever: as in
        Liftbridge, those are left out that are fenced, or that this broker does not reach.
        """
        here, missing = self._controller.broker_id, self._controller.cluster_status()["missing"]
        ordered = sorted(self._controller.state.brokers.values(), key=lambda broker: broker.id != here)
        return [item for item in ordered if item.id == here or (item.run != "fenced" and item.id not in missing)]


def _show_group(shown: Any, group: Group | None) -> None:
    if group is None:
        shown.error = _UNKNOWN_GROUP
        return
    shown.coordinator = group.coordinator
    shown.epoch = group.epoch
    shown.generation = group.generation


def open_incarnations(streams: Iterable[Stream]) -> list[int]:
    """Incarnations of the partitions of streams that are not paused."""
    return [item.incarnation for stream in streams for item in stream.partitions if not item.paused]


def shown_stream(name: str, stream: Stream | None, status: dict[int, PartitionStatus]) -> Any:
    """A StreamMetadata; `None` = there is no such stream. `status`: of the partitions that are open here."""
    shown = _StreamMetadata(name=name)
    if stream is None:
        shown.error = _UNKNOWN_STREAM
        return shown
    shown.subject = stream.subject
    shown.creationTimestamp = stream.created_ns
    for partition in stream.partitions:
        _show_partition(shown.partitions[partition.number], partition, status.get(partition.incarnation))
    return shown


def _show_partition(shown: Any, partition: Partition, status: PartitionStatus | None) -> None:
    shown.id = partition.number
    shown.leader = partition.leader
    shown.replicas.extend(partition.replicas)
    shown.isr.extend(partition.isr)
    shown.highWatermark = status.high_watermark - 1 if status else -1
    shown.newestOffset = status.log_end - 1 if status else -1
    shown.paused = partition.paused
    shown.readonly = partition.readonly
    received = shown.messagesReceivedTimestamps
    received.firstTimestamp = status.first_received_ns if status else 0
    received.latestTimestamp = status.last_received_ns if status else 0
    shown.pauseTimestamps.firstTimestamp = partition.first_paused_ns
    shown.pauseTimestamps.latestTimestamp = partition.last_paused_ns
    shown.readonlyTimestamps.firstTimestamp = partition.first_readonly_ns
    shown.readonlyTimestamps.latestTimestamp = partition.last_readonly_ns
    if status:
        shown.logStartOffset.value = status.log_start
