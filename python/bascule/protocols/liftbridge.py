"""Liftbridge's admin methods: exact checks, codes and texts; our words behind them.

Liftbridge's streams are those of the namespace `default`. Its high watermark is ours − 1 and its newest offset is the
end − 1, both −1 when there is nothing. Timestamps are nanoseconds, durations milliseconds.
"""

import re
from collections.abc import Iterable
from typing import Any

from bascule._liftbridge_pb import DecodeError, message
from bascule.control import Controller, RefusalCode, StreamRequest
from bascule.control.controller import PartitionStatus, RefusedError
from bascule.control.decide import ALL_BROKERS, loads
from bascule.errors import BrokerError, OutcomeUnknownError
from bascule.metadata import DEFAULT_NAMESPACE, Broker, Partition, Stream, StreamSettings
from bascule.protocols.router import AdminRequest, Handler
from bascule.protocols.status import Status, StatusError

RESERVED = frozenset({"__activity", "__cursors"})
MAX_NAME_BYTES = 255
MAX_INT32 = (1 << 31) - 1

_FORBIDDEN_IN_NAME = re.compile(r"[/\\*>\s\x00-\x1f\x7f-\x9f]")
_FORBIDDEN_IN_SUBJECT = re.compile(r"[\x00-\x20\x7f]")
_LATER = {
    "PauseStream": "pausing streams",
    "SetStreamReadonly": "making streams read-only",
    "SetCursor": "cursors",
    "FetchCursor": "cursors",
    "JoinConsumerGroup": "consumer groups",
    "LeaveConsumerGroup": "consumer groups",
    "FetchConsumerGroupAssignments": "consumer groups",
    "ReportConsumerGroupCoordinator": "consumer groups",
}
_REFUSED = {
    RefusalCode.NO_PARTITIONS: Status.INVALID_ARGUMENT,
    RefusalCode.TOO_MANY_PARTITIONS: Status.INVALID_ARGUMENT,
    RefusalCode.SUBJECT_HAS_NO_ROOM: Status.INVALID_ARGUMENT,
    RefusalCode.INVALID_REPLICATION_FACTOR: Status.INVALID_ARGUMENT,
    RefusalCode.NOT_ENOUGH_BROKERS: Status.INVALID_ARGUMENT,
    RefusalCode.STREAM_EXISTS: Status.ALREADY_EXISTS,
    RefusalCode.STREAM_NOT_FOUND: Status.NOT_FOUND,
    RefusalCode.INVALID: Status.INVALID_ARGUMENT,
}
_REFUSED_TEXT = {
    RefusalCode.STREAM_EXISTS: "stream already exists",
    RefusalCode.STREAM_NOT_FOUND: "stream does not exist",
}

_CreateStreamRequest = message("CreateStreamRequest")
_CreateStreamResponse = message("CreateStreamResponse")
_DeleteStreamRequest = message("DeleteStreamRequest")
_DeleteStreamResponse = message("DeleteStreamResponse")
_FetchMetadataRequest = message("FetchMetadataRequest")
_FetchMetadataResponse = message("FetchMetadataResponse")
_FetchPartitionMetadataRequest = message("FetchPartitionMetadataRequest")
_FetchPartitionMetadataResponse = message("FetchPartitionMetadataResponse")
_UNKNOWN_STREAM = 1
_UNKNOWN_GROUP = 1


class LiftbridgeAdmin:
    """The handlers. `defaults` holds what a stream gets whose creator did not say."""

    def __init__(self, controller: Controller, defaults: StreamSettings) -> None:
        self._controller = controller
        self._defaults = defaults

    def handlers(self) -> dict[str, Handler]:
        """Handler by method, for the router."""
        handlers: dict[str, Handler] = {
            "CreateStream": self.create_stream,
            "DeleteStream": self.delete_stream,
            "FetchMetadata": self.fetch_metadata,
            "FetchPartitionMetadata": self.fetch_partition_metadata,
        }
        handlers.update(dict.fromkeys(_LATER, _not_yet))
        return {f"liftbridge/{name}": handler for name, handler in handlers.items()}

    async def create_stream(self, request: AdminRequest) -> bytes:
        """CreateStream (specification §3.1)."""
        asked = _parse(_CreateStreamRequest, request.body)
        wish = stream_request(asked, self._defaults)
        try:
            await self._controller.create_stream(wish, request.timeout_s)
        except RefusedError as refused:
            raise _refused(refused) from refused
        except BrokerError as failure:
            raise _not_applied("Failed to replicate partition", failure) from failure
        return _bytes(_CreateStreamResponse())

    async def delete_stream(self, request: AdminRequest) -> bytes:
        """DeleteStream (specification §3.2)."""
        name: str = _parse(_DeleteStreamRequest, request.body).name
        if name in RESERVED:
            raise StatusError(Status.INVALID_ARGUMENT, "Stream is reserved")
        try:
            await self._controller.delete_stream(DEFAULT_NAMESPACE, name, request.timeout_s)
        except RefusedError as refused:
            raise _refused(refused) from refused
        except BrokerError as failure:
            raise _not_applied("Failed to delete stream", failure) from failure
        return _bytes(_DeleteStreamResponse())

    async def fetch_metadata(self, request: AdminRequest) -> bytes:
        """FetchMetadata (specification §3.6): from this broker's copy."""
        asked = _parse(_FetchMetadataRequest, request.body)
        state = self._controller.state
        names: list[str] = list(asked.streams) or sorted(
            name for namespace, name in state.streams if namespace == DEFAULT_NAMESPACE
        )
        found = {name: stream for name in names if (stream := state.stream(DEFAULT_NAMESPACE, name)) is not None}
        status = self._controller.status(_open_incarnations(found.values()))
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
        for name in names:
            shown = response.streamMetadata.add(name=name)
            if name in found:
                _show_stream(shown, found[name], status)
            else:
                shown.error = _UNKNOWN_STREAM
        for group in asked.groups:
            response.groupMetadata.add(groupId=group, error=_UNKNOWN_GROUP)
        return _bytes(response)

    async def fetch_partition_metadata(self, request: AdminRequest) -> bytes:
        """FetchPartitionMetadata (specification §3.10)."""
        asked = _parse(_FetchPartitionMetadataRequest, request.body)
        stream = self._controller.state.stream(DEFAULT_NAMESPACE, asked.stream)
        number: int = asked.partition
        if stream is None or not 0 <= number < len(stream.partitions):
            raise StatusError(Status.NOT_FOUND, "partition not found")
        partition = stream.partitions[number]
        status = self._controller.status([partition.incarnation]).get(partition.incarnation)
        if partition.leader != self._controller.broker_id or partition.paused or status is None:
            raise StatusError(Status.FAILED_PRECONDITION, "The request should be sent to partition leader")
        response = _FetchPartitionMetadataResponse()
        _show_partition(response.metadata, partition, status)
        return _bytes(response)

    def _brokers(self) -> list[Broker]:
        """All brokers, this one first."""
        here = self._controller.broker_id
        return [
            broker for _, broker in sorted(self._controller.state.brokers.items(), key=lambda item: item[0] != here)
        ]


def stream_request(asked: Any, defaults: StreamSettings) -> StreamRequest:
    """The wish in a CreateStreamRequest, after the checks that need no state, in the specification's order.

    Raises:
        StatusError: what is wrong with it.
    """
    if not asked.name:
        raise StatusError(Status.INVALID_ARGUMENT, "Name cannot be empty")
    if not is_subject(asked.subject):
        raise StatusError(Status.INVALID_ARGUMENT, "Subject is invalid")
    if asked.name in RESERVED:
        raise StatusError(Status.INVALID_ARGUMENT, "Stream is reserved")
    _check_name(asked.name)
    if _FORBIDDEN_IN_SUBJECT.search(asked.group):
        text = f"Queue group {asked.group[:80]!r} is invalid: white space and control characters are not allowed"
        raise StatusError(Status.INVALID_ARGUMENT, text)
    if asked.partitions < 0:
        raise StatusError(Status.INVALID_ARGUMENT, f"Invalid partitions {asked.partitions}, must not be negative")
    for field, what in (("encryption", "encryption at rest"), ("compactEnabled", "compaction")):
        if asked.HasField(field) and getattr(asked, field).value:
            text = f"{what} is not available in this version; create the stream without {field}"
            raise StatusError(Status.UNIMPLEMENTED, text)
    return StreamRequest(
        namespace=DEFAULT_NAMESPACE,
        name=asked.name,
        subject=asked.subject,
        queue_group=asked.group,
        partitions=asked.partitions or 1,
        replication_factor=_replication_factor(asked.replicationFactor),
        settings=_settings(asked, defaults),
    )


def is_subject(subject: str) -> bool:
    """Whether a stream may sit on `subject`: no white space, no empty token, `>` only at the end; `*` anywhere."""
    tokens = subject.split(".")
    return not _FORBIDDEN_IN_SUBJECT.search(subject) and all(tokens) and ">" not in tokens[:-1]


def _check_name(name: str) -> None:
    """Names appear in subjects, paths and logs, so some characters are refused."""
    reason = ""
    if len(name.encode()) > MAX_NAME_BYTES:
        reason = f"it is longer than {MAX_NAME_BYTES} bytes"
    elif name in (".", ".."):
        reason = "it must not be . or .."
    elif found := _FORBIDDEN_IN_NAME.search(name):
        reason = f"it contains {found.group()!r}; white space, control characters and / \\ * > are not allowed"
    if reason:
        raise StatusError(Status.INVALID_ARGUMENT, f"Stream name {name[:80]!r} is invalid: {reason}")


def _replication_factor(asked: int) -> int:
    """0 stands for 1, −1 for all brokers; other negative numbers are refused when replicas are placed."""
    if asked == 0:
        return 1
    return ALL_BROKERS if asked == -1 else asked


def _settings(asked: Any, defaults: StreamSettings) -> StreamSettings:
    def number(field: str) -> int | None:
        if not asked.HasField(field):
            return None
        value: int = getattr(asked, field).value
        if value < 0:
            raise StatusError(Status.INVALID_ARGUMENT, f"{field} is {value}, must not be negative")
        return value

    def flag(field: str) -> bool | None:
        return bool(getattr(asked, field).value) if asked.HasField(field) else None

    concurrency_control = flag("optimisticConcurrencyControl")
    return StreamSettings(
        durability=defaults.durability,
        codec=defaults.codec,
        nats_copy=defaults.nats_copy,
        concurrency_control=defaults.concurrency_control if concurrency_control is None else concurrency_control,
        retention_bytes=number("retentionMaxBytes"),
        retention_messages=number("retentionMaxMessages"),
        retention_age_ms=number("retentionMaxAge"),
        cleaner_interval_ms=number("cleanerInterval"),
        segment_bytes=number("segmentMaxBytes"),
        segment_age_ms=number("segmentMaxAge"),
        compact_enabled=flag("compactEnabled"),
        compact_parallelism=number("compactMaxGoroutines"),
        auto_pause_ms=number("autoPauseTime"),
        auto_pause_disable_if_subscribers=flag("autoPauseDisableIfSubscribers"),
        min_isr=number("minIsr"),
        encryption=flag("encryption"),
    )


def _open_incarnations(streams: Iterable[Stream]) -> list[int]:
    return [item.incarnation for stream in streams for item in stream.partitions if not item.paused]


def _show_stream(shown: Any, stream: Stream, status: dict[int, PartitionStatus]) -> None:
    shown.subject = stream.subject
    shown.creationTimestamp = stream.created_ns
    for partition in stream.partitions:
        _show_partition(shown.partitions[partition.number], partition, status.get(partition.incarnation))


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


async def _not_yet(request: AdminRequest) -> bytes:
    name = request.method.rpartition("/")[2]
    raise StatusError(Status.UNIMPLEMENTED, f"{name}: {_LATER[name]} are not available in this version")


def _refused(refused: RefusedError) -> StatusError:
    code = refused.refusal.code
    return StatusError(_REFUSED[code], _REFUSED_TEXT.get(code, refused.refusal.message))


def _not_applied(prefix: str, failure: BrokerError) -> StatusError:
    reason = "raft operation timed out" if isinstance(failure, OutcomeUnknownError) else str(failure)
    return StatusError(Status.INTERNAL, f"{prefix}: {reason}")


def _parse(kind: Any, body: bytes) -> Any:
    try:
        return kind.FromString(body)
    except DecodeError as damage:
        text = f"grpc: error unmarshalling request: malformed {kind.DESCRIPTOR.name}"
        raise StatusError(Status.INTERNAL, text) from damage


def _bytes(response: Any) -> bytes:
    serialized: bytes = response.SerializeToString()
    return serialized
